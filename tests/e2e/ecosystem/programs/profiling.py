# SPDX-License-Identifier: Apache-2.0
"""jax.profiler: of a cluster it shows the client's side only; nothing in it may crash."""

import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

from cases import case, islands, main, rows, split

x = rows(16, 8)
step = jax.jit(lambda v: jnp.tanh(v @ v.T) @ v)


def work():
    (devices, _) = islands()
    return np.asarray(step(step(jax.device_put(x, split(devices)))))


@case
def a_trace_with_annotations():
    folder = pathlib.Path(tempfile.mkdtemp())
    with jax.profiler.trace(folder):
        with jax.profiler.TraceAnnotation("outer", number=1):
            for i in range(3):
                with jax.profiler.StepTraceAnnotation("train", step_num=i):
                    result = work()
    jax.profiler.start_trace(folder / "again")
    jax.profiler.annotate_function(work, name="named")()
    jax.profiler.stop_trace()
    (file,) = folder.glob("plugins/profile/*/*.xplane.pb")
    (again,) = (folder / "again").glob("plugins/profile/*/*.xplane.pb")
    assert b"outer" in file.read_bytes() and b"named" in again.read_bytes()
    data = jax.profiler.ProfileData.from_file(str(file))
    assert any(event.name.startswith("train") for plane in data.planes
               for line in plane.lines for event in line.events)
    return result


@case
def a_profiler_server():
    import socket

    # Only the server can hold its port, and it does not say that another program was faster.
    for attempts_left in reversed(range(10)):
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        jax.profiler.start_server(port)
        result = work()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=240).close()
            return result
        except ConnectionRefusedError:
            if attempts_left == 0:
                raise
        finally:
            jax.profiler.stop_server()


@case
def named_scopes_reach_the_program():
    def scoped(v):
        with jax.named_scope("here"):
            return jnp.sin(v)

    compiled = jax.jit(scoped).lower(x).compile()
    assert "here/sin" in compiled.as_text()
    return compiled(x)


@case
def memory_profiles_say_what_they_cannot():
    held = jax.device_put(x)
    try:
        profile = jax.profiler.device_memory_profile()
        assert isinstance(profile, bytes)
    except jax.errors.JaxRuntimeError as error:
        assert str(error)
    assert any(array is held for array in jax.live_arrays())


if __name__ == "__main__":
    main()
