# SPDX-License-Identifier: Apache-2.0
"""The package without any controller: addresses, registration, and clear errors."""

import os
import re
import socket
import subprocess
import sys
import threading

import pytest

import fairway
from fairway import connection


@pytest.fixture
def closed_port():
    """A loopback port where nothing listens: bound, never listened on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.fixture
def silent_server():
    """A loopback port that accepts connections and closes them at once; not a controller."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            peer.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(10)


def run_python(code, **environment):
    """Runs `code` in a fresh Python with a clean JAX environment; returns the finished process."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "FAIRWAY_", "XLA_"))}
    env.update(environment)
    return subprocess.run(
        [sys.executable, "-c", code], env=env, text=True, capture_output=True, timeout=300
    )


@pytest.mark.parametrize(
    "text, expected",
    [
        ("host:1234", ("host", 1234)),
        ("grpc://host:1234", ("host", 1234)),
        ("grpc://host:1234/", ("host", 1234)),
        (" 10.0.0.1:7 ", ("10.0.0.1", 7)),
        ("host", ("host", 29000)),
        ("[::1]:29001", ("::1", 29001)),
        ("[::1]", ("::1", 29000)),
    ],
)
def test_an_address_is_split(text, expected):
    assert connection.parse_address(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":1", "host:", "host:x", "host:0", "host:65536", "a/b", "http://host:1", "::1"]
)
def test_a_bad_address_is_named_in_the_error(text):
    with pytest.raises(fairway.ControllerError) as caught:
        connection.parse_address(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unreachable_controller_is_one_clear_line(closed_port):
    with pytest.raises(fairway.ControllerError) as caught:
        connection.make_client(f"127.0.0.1:{closed_port}")
    text = str(caught.value)
    assert f"no Fairway controller at 127.0.0.1:{closed_port} (Connection refused)" in text
    assert "fairway up" in text and "FAIRWAY_CONTROLLER" in text
    assert "\n" not in text


def test_a_server_that_is_no_controller_is_one_clear_line(silent_server, monkeypatch):
    monkeypatch.setattr(connection, "_SESSION_SECONDS", 2)
    with pytest.raises(fairway.ControllerError) as caught:
        connection.make_client(f"127.0.0.1:{silent_server}")
    text = str(caught.value)
    assert f"127.0.0.1:{silent_server} accepts connections but opened no Fairway session" in text
    assert "\n" not in text


def test_islands_group_devices_by_slice_index():
    class Device:
        def __init__(self, name, **attributes):
            self.name = name
            self.__dict__.update(attributes)

    a, b, c = Device("a", slice_index=1), Device("b", slice_index=0), Device("c", slice_index=1)
    assert fairway.islands([a, b, c]) == [[b], [a, c]]
    d, e = Device("d"), Device("e")
    assert fairway.islands([d, e]) == [[d, e]]
    assert fairway.islands([]) == []


def test_jax_finds_the_platform_and_names_the_address_that_does_not_answer(closed_port):
    done = run_python(
        "import jax; jax.devices()",
        JAX_PLATFORMS="fairway,cpu", FAIRWAY_CONTROLLER=f"127.0.0.1:{closed_port}",
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert f"no Fairway controller at 127.0.0.1:{closed_port}" in last
    assert "fairway up" in last


def test_jax_says_so_when_no_address_was_given():
    done = run_python("import jax; jax.devices()", JAX_PLATFORMS="fairway,cpu")
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert "set FAIRWAY_CONTROLLER=host:port" in last


def test_the_plain_proxy_platform_is_registered_too(closed_port):
    done = run_python(
        "import jax; jax.devices()",
        JAX_PLATFORMS="proxy", JAX_BACKEND_TARGET=f"grpc://127.0.0.1:{closed_port}",
    )
    assert done.returncode == 1
    assert f"no Fairway controller at 127.0.0.1:{closed_port}" in done.stderr
    assert "set JAX_BACKEND_TARGET=host:port to a running one" in done.stderr
    done = run_python("import jax; jax.devices()", JAX_PLATFORMS="proxy")
    assert "needs JAX_BACKEND_TARGET=grpc://host:port" in done.stderr.strip().splitlines()[-1]


def test_a_proxy_that_somebody_else_registered_is_left_alone():
    done = run_python(
        "import jax\n"
        "from jax.extend.backend import register_backend_factory\n"
        "def mine(): raise ValueError('my own factory')\n"
        "register_backend_factory('proxy', mine)\n"
        "jax.devices()",
        JAX_PLATFORMS="proxy",
    )
    assert "my own factory" in done.stderr.strip().splitlines()[-1]


def test_a_process_that_names_no_platform_keeps_its_own(closed_port):
    done = run_python(
        "import jax; print(jax.default_backend(), jax.devices()[0].platform)",
        FAIRWAY_CONTROLLER=f"127.0.0.1:{closed_port}",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["cpu", "cpu"]
    assert done.stderr == "" or "rror" not in done.stderr


def test_a_process_that_names_no_platform_asks_no_controller():
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = run_python(
            "import jax; print(jax.default_backend())",
            FAIRWAY_CONTROLLER=f"127.0.0.1:{server.getsockname()[1]}",
        )
        assert (done.returncode, done.stdout.strip()) == (0, "cpu"), done.stderr
        assert "airway" not in done.stderr
        server.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody had connected
            server.accept()


def test_connect_refuses_at_once_when_nobody_listens(closed_port):
    done = run_python(f"import fairway; fairway.connect('127.0.0.1:{closed_port}')")
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("fairway.connection.ControllerError: no Fairway controller at 127.0.0.1")


def test_connect_refuses_what_is_no_text():
    done = run_python("import fairway; fairway.connect(('host', 1))")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("TypeError: ('host', 1) is no address of a controller; expected a string")


def test_connect_without_an_address_takes_the_environment_s_else_the_local_cluster(silent_server):
    code = "import fairway; print(fairway.connect())"
    done = run_python(code, FAIRWAY_CONTROLLER=f"127.0.0.1:{silent_server}")
    assert done.stdout == f"127.0.0.1:{silent_server}\n", done.stderr
    # Whether or not a cluster runs there, that is the address.
    done = run_python(code)
    last = (done.stdout or done.stderr).strip().splitlines()[-1]
    assert last == connection.LOCAL or f"no Fairway controller at {connection.LOCAL}" in last


def test_the_examples_connect_unless_jax_was_told_what_to_use(silent_server, closed_port):
    alone = "import fairway.examples, jax; print(jax.config.jax_platforms)"
    done = run_python(alone, FAIRWAY_CONTROLLER=f"127.0.0.1:{silent_server}")
    assert (done.stdout, done.stderr) == ("None\n", "")
    code = f"import sys; sys.orig_argv = ['python', '-m', 'fairway.examples.digits_pipeline']; {alone}"
    done = run_python(code, FAIRWAY_CONTROLLER=f"127.0.0.1:{silent_server}")
    assert done.stdout == "fairway,cpu\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"fairway.examples: on the cluster at 127.0.0.1:{silent_server} (")
    done = run_python(code, FAIRWAY_CONTROLLER=f"127.0.0.1:{closed_port}")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"fairway.examples: no Fairway controller at 127.0.0.1:{closed_port}")
    done = run_python(code, JAX_PLATFORMS="cpu")
    assert (done.stdout, done.stderr) == ("cpu\n", "")


def test_connect_refuses_when_jax_already_has_its_backends(silent_server):
    done = run_python(
        "import jax, fairway\n"
        "jax.devices()\n"
        f"fairway.connect('127.0.0.1:{silent_server}')",
        JAX_PLATFORMS="cpu",
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "came too late: JAX already uses its backends (cpu)" in last


@pytest.mark.parametrize(
    "before, after", [(None, "fairway,cpu"), ("cpu", "fairway,cpu"), ("cpu,fairway", "fairway,cpu")]
)
def test_connect_puts_the_cluster_first_and_keeps_the_other_platforms(silent_server, before, after):
    done = run_python(
        f"import jax, fairway; fairway.connect('127.0.0.1:{silent_server}');"
        "print(jax.config.jax_platforms)",
        **({"JAX_PLATFORMS": before} if before else {}),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == after


def test_connect_takes_the_address_of_the_environment(silent_server):
    done = run_python(
        "import fairway; fairway.connect(); from fairway import connection;"
        "print(connection._chosen['address'])",
        FAIRWAY_CONTROLLER=f"127.0.0.1:{silent_server}",
    )
    assert re.fullmatch(r"127\.0\.0\.1:\d+", done.stdout.strip()), done.stderr


def test_a_token_is_not_sent_without_tls(silent_server, monkeypatch):
    monkeypatch.delenv("FAIRWAY_TLS_CA", raising=False)
    with pytest.raises(connection.ControllerError, match="a token goes by TLS only: set FAIRWAY_TLS_CA"):
        connection.make_client(f"127.0.0.1:{silent_server}", token_file="/no/such")
    monkeypatch.setenv("FAIRWAY_TOKEN_FILE", "/no/such")
    with pytest.raises(connection.ControllerError, match="a token goes by TLS only"):
        connection.make_client(f"127.0.0.1:{silent_server}")
