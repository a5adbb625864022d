# SPDX-License-Identifier: Apache-2.0
"""Clients that take more than their share.

Each case is a function that does as much harm as one client can, and returns a text about what it saw. It runs
in a process of its own beside a neighbour (hostile.py): python hostile_cases.py NAME CLUSTER, where CLUSTER is
the JSON {"address", "links", "http", "executors": [pid], "controller": pid, "seconds", "begins"}; `seconds`: how
long a case without an end of its own goes on; `begins`: a file descriptor that gets a byte when the case begins.
"""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time

import grpc

import hostile_holdings  # noqa: F401
from hostile_case import CASES, CODE, KIB, MANY, MIB, case, going, numbers, outcome
from hostile_programs import PINGPONG, TWO_ANSWERS, endless, loop_of, wide, written_out
from ports import listening
from raw_client import Refused, Session, message
from raw_native import RawNative, program_of, spec_of

# ---- requests that name much ----

@case("copies one array 262,144 times in one request", "done")
def many_copies(at):
    session = RawNative(at["address"])
    session.put(1)
    done = session.call("copy", arrays=[1] * MANY, results=numbers(MANY), semantics="COPY_SEMANTICS_ALWAYS_COPY")
    return outcome(done)


@case("makes 262,144 views of one array in one request, again and again",
      r"\d+ requests, then error 8: this session has \d+ arrays.*")
def many_views(at):
    session = RawNative(at["address"])
    session.put(1)
    for turn in range(40):
        done = session.call("copy", arrays=[1] * MANY, results=numbers(MANY, 1000 + turn * MANY),
                            semantics="COPY_SEMANTICS_REUSE", devices=[0])
        if done is None or done.error.code:
            break
    return f"{turn} requests, then {outcome(done)}"


@case("makes 262,144 arrays, deletes all in one request and releases all in one",
      "made: done; deleted: done; released: done")
def many_deletes(at):
    session = RawNative(at["address"])
    session.put(1)
    made = session.call("copy", arrays=[1] * MANY, results=numbers(MANY), semantics="COPY_SEMANTICS_REUSE", devices=[0])
    deleted = session.call("delete", arrays=numbers(MANY))
    released = session.call("release", arrays=numbers(MANY))
    return f"made: {outcome(made)}; deleted: {outcome(deleted)}; released: {outcome(released)}"


@case("waits for 262,144 handles of an array that never comes, again and again", "done")
def many_watches(at):
    session = RawNative(at["address"])
    session.put(1, upload=(7, 4))
    for turn in range(30):
        session.send("watch", True, arrays=[1] * MANY)
    return outcome(session.call("ping"))


@case("reshards 65,536 arrays at once", "done")
def many_reshards(at):
    session = RawNative(at["address"])
    count = 1 << 16
    session.put(1, data=bytes(8), dims=[2], devices=[0, 1])
    sharding = message("fairway.v1.Sharding")(devices=[1, 0], tiles=[2])
    return outcome(session.call("reshard", arrays=[1] * count, results=numbers(count), shardings=[sharding] * count))


@case("reshards one array from 500 tiles to 500 other devices' copies", "done", flags=["--devices=500"])
def many_pieces(at):
    session = RawNative(at["address"])
    devices = list(range(500))
    tiled = message("fairway.v1.Sharding")(devices=devices, tiles=[500])
    session.put(1, data=bytes(2000), dims=[500], devices=devices)
    session.send("reshard", True, arrays=[1], results=[2], shardings=[tiled])
    seen = []
    for turn in range(4):
        done = session.call("reshard", arrays=[2], results=[10 + turn],
                            shardings=[message("fairway.v1.Sharding")(devices=devices)])
        seen.append(outcome(done))
    return "; ".join(sorted(set(seen)))


@case("makes 100,000 copies wait for an upload, which then fails: all fail at once",
      r"error 3: put: shard 0 is f32\[\], which is 4 bytes, but 8 were given")
def poison_chain(at):
    session = RawNative(at["address"])
    session.put(1, upload=(7, 8))  # a scalar has half of that
    for turn in range(10):
        session.send("copy", arrays=[1] * 10000, results=numbers(10000, 1000 + 10000 * turn),
                     semantics="COPY_SEMANTICS_ALWAYS_COPY")
    session.send("chunk", upload=7, data=bytes(8))
    return outcome(session.call("watch", arrays=[1000 + 99999]))


@case("asks for 100,000 unknown handles and reads no answer", r"[1-9]\d* sent")
def unknown_handles(at):
    session = RawNative(at["address"], reads=False)
    sent = 0
    until = time.monotonic() + at["seconds"]
    while sent < 100000 and (time.monotonic() < until or sent == 0):
        batch = message("fairway.v1.ClientMessage")()
        for _ in range(1000):
            sent += 1
            batch.requests.add(id=sent + 10).watch.arrays.append(1 << 40)
        session.send_bytes(batch.SerializeToString())
    return f"{sent} sent"


# ---- programs ----

def bind(session, executable, program, slices):
    bound = message("fairway.v1.BoundProgram")(program=program)
    for devices in slices:
        bound.slices.add(devices=devices)
    return session.call("bind_program", executable=executable, program=bound)


@case("calls a program of 8,000 steps over two islands 256 times without waiting", "bound: done; called: under way")
def many_steps(at):
    session = RawNative(at["address"])
    bound = bind(session, CODE, program_of(PINGPONG), [[0], [2]])
    session.put(1, data=bytes(32), dims=[8])
    for turn in range(256):
        session.send("call", executable=CODE, arguments=[1], results=[1000 + turn])
    return f"bound: {outcome(bound)}; called: {going(session, 1255, at['seconds'])}"


@case("binds a program of 107 KB that is 4,000,000 values when written out", "error 3: .*more than 262144 values.*")
def wide_program(at):
    session = RawNative(at["address"])
    return outcome(bind(session, 1, loop_of(2000, wide(2000)), [[0]]))


@case("binds programs that take long to lower, one after the other", "done")
def slow_lowering(at):
    session = RawNative(at["address"])
    program = loop_of(1300, wide(200))
    seen = [outcome(bind(session, 1 + turn, program, [[0]])) for turn in range(12)]
    return "; ".join(sorted(set(seen)))


@case("binds a program of 50 KB whose nodes have 8,000,000 outputs",
      r"\d+ bytes: error 8: .*it takes \d+.\d MiB of the controller\'s memory.*")
def wide_nodes(at):
    session = RawNative(at["address"])
    program = written_out(4000, 2000, False)
    return f"{program.ByteSize()} bytes: " + outcome(bind(session, 1, program, [[0]]))


@case("calls a program of 60,000 results again and again", r"bound: done; [1-9]\d* calls; the last: done, released: done",
      same_island=True)
def wide_calls(at):
    session = RawNative(at["address"])
    bound = bind(session, CODE, written_out(1, 60000, True), [[0]])
    session.put(1, data=bytes(32), dims=[8])
    calls, end = 0, time.time() + at["seconds"]
    while calls == 0 or time.time() < end:
        calls += 1
        called = session.call("call", executable=CODE, arguments=[1], results=numbers(60000))
        released = session.call("release", arrays=numbers(60000))
    return f"bound: {outcome(bound)}; {calls} calls; the last: {outcome(called)}, released: {outcome(released)}"


@case("binds programs of 60,000 results and keeps them", r"[1-9]\d* bound, then error 8: .*; one released: done")
def kept_programs(at):
    session = RawNative(at["address"])
    program = written_out(300, 200, True)
    for turn in range(20):
        bound = bind(session, 1 + turn, program, [[0]])
        if bound is None or bound.error.code:
            break
    # It may reuse what it gives up.
    session.call("release", executables=[1])
    again = bind(session, 100, program, [[0]])
    return f"{turn} bound, then {outcome(bound)}; one released: {outcome(again)}"


@case("binds programs of 60,000 results without waiting, and gives them up", r"[1-9]\d* times, the last: done; done")
def bound_again_and_again(at):
    session = RawNative(at["address"])
    program = written_out(300, 200, True)
    until, turn, asked = time.monotonic() + at["seconds"], 0, []
    while time.monotonic() < until or turn < 6:
        turn += 1
        bound = message("fairway.v1.BoundProgram")(program=program)
        bound.slices.add(devices=[0])
        asked.append(session.send("bind_program", True, executable=turn, program=bound))
        if turn > 2:
            session.answer(asked[turn - 3])
            session.send("release", executables=[turn - 2])
    said = [outcome(session.answer(number)) for number in asked[-2:]]
    session.close()
    return f"{turn} times, the last: {'; '.join(said)}"


@case("runs a loop of 2^28 rounds on its island", "bound: done; called: under way")
def endless_loop(at):
    session = RawNative(at["address"])
    program = endless((1 << 28) - 8)
    bound = bind(session, CODE, program, [[0]])
    session.put(1, data=bytes(32), dims=[8])
    session.send("call", executable=CODE, arguments=[1], results=[2])
    return f"bound: {outcome(bound)}; called: {going(session, 2, at['seconds'])}"


FOUR_DEVICES = {"flags": ["--devices=4"], "same_island": True, "gang": True}


@case("runs a loop of 2^28 rounds on two devices, beside gangs of two others of its executor",
      "bound: done; called: under way", **FOUR_DEVICES)
def endless_gangs(at):
    session = RawNative(at["address"])
    bound = bind(session, CODE, endless((1 << 28) - 8, devices=2), [[0, 1]])
    session.put(1, data=bytes(32), dims=[8], devices=[0, 1])
    session.send("call", executable=CODE, arguments=[1], results=[2])
    return f"bound: {outcome(bound)}; called: {going(session, 2, at['seconds'])}"


@case("runs 40 gangs of 4 s on two devices, beside gangs of two others of its executor",
      "compiled: done; called: under way", **FOUR_DEVICES)
def long_gangs(at):
    session = RawNative(at["address"])
    compiled = session.compile_scale(CODE, devices=[0, 1], milliseconds=4000, kernel="sleep")
    session.put(1, devices=[0, 1])
    for turn in range(40):
        session.send("call", executable=CODE, arguments=[1], results=[1000 + turn])
    return f"compiled: {outcome(compiled)}; called: {going(session, 1039, at['seconds'])}"


@case("compiles 300 MB of nothing", "error 12: .*does not run StableHLO.*")
def large_program(at):
    session = RawNative(at["address"])
    return outcome(session.call("compile", executable=1, stablehlo=bytes(300 * MIB), devices=[0]))


@case("compiles 375 programs for each second and keeps them", "done")
def many_programs(at):
    session = RawNative(at["address"])
    for number in range(1, 1 + int(375 * at["seconds"])):
        native = message("fairway.v1.NativeProgram")(name=f"p{number}" + "x" * 200)
        native.parameters.add(dtype=11)
        native.steps.add(kernel="scale", operands=[0], factor=number)
        native.results.add(value=1)
        last = session.send("compile", True, executable=number, native=native, devices=[0])
    return outcome(session.answer(last))


# ---- texts and bytes ----

@case("makes errors with texts of 100 MB and calls programs with them", "error 13: x+")
def long_texts(at):
    session = RawNative(at["address"])
    session.compile_scale(CODE)
    error = message("fairway.v1.Error")(code=13, text="x" * (100 * MIB))
    for number in range(1, 4):
        session.send("make_error", array=number, spec=spec_of(), error=error)
        session.send("call", executable=CODE, arguments=[number], results=[100 + number])
    return outcome(session.call("watch", arrays=[103]))


@case("calls a program with three errors of 100 MB, one of whose results needs none of them",
      r"bound: done; f\(errors\): error 13: x+; g\(good\): done")
def failed_arguments(at):
    session = RawNative(at["address"])
    bound = bind(session, CODE, program_of(TWO_ANSWERS), [[0]])
    error = message("fairway.v1.Error")(code=13, text="x" * (100 * MIB))
    for number in range(1, 4):
        session.send("make_error", array=number, spec=spec_of(), error=error)
    session.put(4)
    session.send("call", executable=CODE, arguments=[1, 2, 3, 4], results=[10, 11])
    failed, good = (session.call("watch", arrays=[number]) for number in (10, 11))
    return f"bound: {outcome(bound)}; f(errors): {outcome(failed)}; g(good): {outcome(good)}"


@case("puts small arrays to 500 devices at once, again and again", "done", flags=["--devices=500"])
def replicated_puts(at):
    session = RawNative(at["address"])
    devices = list(range(500))
    for turn in range(200):
        session.put(1000 + turn, data=bytes(64 * KIB), dims=[16 * KIB], devices=devices)
    return outcome(session.call("watch", arrays=[1199]))


@case("puts 64 KiB arrays to an executor that was stopped, for eight seconds",
      r"[1-9]\d* sent(, then the controller reads no more of this session)?")
def puts_to_a_stopped_executor(at):
    os.kill(at["executors"][0], signal.SIGSTOP)
    try:
        session = RawNative(at["address"])
        until, sent, said = time.monotonic() + at["seconds"], 0, "sent"
        session.gives_up = until
        while time.monotonic() < until or sent == 0:
            session.put(1000 + sent, data=bytes(64 * KIB), dims=[16 * KIB])
            sent += 1
    except TimeoutError as error:
        said = f"sent, then {error}"
    finally:
        os.kill(at["executors"][0], signal.SIGCONT)
    return f"{sent} {said}"


@case("uploads host buffers that no array takes, up to 3 GiB", r"\d+ MiB(, then RESOURCE_EXHAUSTED: .*)?")
def buffers_that_nobody_takes(at):
    session = Session(at["address"])
    data, stored = bytes(8 * MIB), 0
    try:
        while stored < 3 << 30:
            session.store(1 + stored, data)
            stored += len(data)
    except grpc.RpcError as error:
        return f"{stored / MIB:.0f} MiB, then {error.code().name}: {error.details()[:160]}"
    return f"{stored / MIB:.0f} MiB"


@case("announces an upload of one byte and sends without end",
      r"\d+ MiB sent, then DATA_LOSS: host buffer: 1 bytes were announced, 1048576 came")
def endless_upload(at):
    session = Session(at["address"])
    metadata = message("GrpcHostBufferStoreMetadata")(session_id=session.id, handle=1, buffer_size=1)
    chunk = message("GrpcHostBufferStoreRequest")(data=bytes(MIB))
    sent = 0

    def chunks():
        nonlocal sent
        until = time.monotonic() + at["seconds"]
        while time.monotonic() < until and sent < 4096:
            sent += 1
            yield chunk

    try:
        session.channel.stream_unary(
            "/xla.ifrt.proxy.GrpcIfrtService/HostBufferStore",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=message("GrpcHostBufferStoreResponse").FromString,
        )(chunks(), metadata=[("ifrt-proxy-grpc-host-buffer-store-metadata-bin", metadata.SerializeToString())],
          timeout=60)
    except grpc.RpcError as error:
        return f"{sent} MiB sent, then {error.code().name}: {error.details()[:160]}"
    return f"{sent} MiB sent"


@case("fetches an array into host buffers that it never deletes, up to 3 GiB",
      r"[1-9]\d* MB kept, then no answer to \d+ within .*")
def fetched_buffers_kept(at):
    import numpy as np

    session = Session(at["address"])
    session.put(1, np.zeros(250000, np.float32))
    kept = 0
    try:
        for number in range(3000):
            session.call("copy_to_host_buffer_request", seconds=at["seconds"] if kept else 240, array_handle=1,
                         host_buffer_handle=100 + number)
            kept += 1
    except (AssertionError, Refused, grpc.RpcError) as error:  # it is no longer answered
        return f"{kept} MB kept, then {str(error)[:160]}"
    return f"{kept} MB kept"


@case("fetches 1 MB 3,000 times and reads no answer", r"[1-9]\d* sent")
def unread_fetches(at):
    session = RawNative(at["address"], reads=False)
    session.put(1, data=bytes(1000000), dims=[250000])
    until, sent = time.monotonic() + at["seconds"], 0
    while sent < 3000 and (time.monotonic() < until or sent == 0):
        session.send("fetch", True, array=1, shards=[0])
        sent += 1
    return f"{sent} sent"


@case("fetches into a host buffer that is already an array's", r"\[1.0, 1.0, 1.0, 1.0\]")
def fetch_feeds_an_array(at):
    import numpy as np

    session = Session(at["address"])
    session.put(1, np.ones(4, np.float32))
    for turn in range(200):
        session.send("make_array_from_host_buffer_request",
                     dtype=message("xla.ifrt.DTypeProto")(kind=11), shape=message("xla.ifrt.ShapeProto")(dims=[4]),
                     sharding=session.single_device(0), host_buffer_handle=1000 + turn, array_handle=1000 + turn)
        session.call("copy_to_host_buffer_request", array_handle=1, host_buffer_handle=1000 + turn)
    return np.frombuffer(session.get(1199, 5), np.float32).tolist().__repr__()


# ---- memory of devices ----

@case("holds most of a device, asks for more and frees a scalar now and then",
      "error 8: Out of memory: copy of .*", flags=["--device-memory=64MiB"], same_island=True)
def memory_hog(at):
    session = RawNative(at["address"])
    size = 10 * MIB
    session.put(1, data=bytes(4 * size), dims=[size])
    for number in range(20):
        session.put(100 + number)
    session.call("watch", arrays=[1])
    waits = session.send("copy", True, arrays=[1], results=[2], semantics="COPY_SEMANTICS_ALWAYS_COPY")
    for number in range(int(2 * at["seconds"])):
        time.sleep(0.5)
        session.send("release", arrays=[100 + number])
    session.answer(waits, 1)
    return outcome(session.call("watch", arrays=[2]))


@case("asks for uploads early and sends their bytes late, on a device that is nearly full",
      "error 8: Out of memory: put of .*",
      flags=["--device-memory=64MiB"], same_island=True)
def late_uploads(at):
    session = RawNative(at["address"])
    for number in range(2000):
        session.put(1000 + number, upload=(1000 + number, MIB), dims=[MIB // 4])
    for number in range(300):
        session.send("chunk", upload=1000 + number, data=bytes(MIB))
        time.sleep(0.02)
    return outcome(session.call("watch", arrays=[1299]))


# ---- connections ----

@case("opens and closes sessions as fast as it can", r"[1-9]\d* sessions")
def session_churn(at):
    until, opened = time.monotonic() + at["seconds"], 0
    while time.monotonic() < until or opened == 0:
        session = RawNative(at["address"])
        session.put(1)
        session.close()
        opened += 1
    return f"{opened} sessions"


@case("keeps 300 sessions with 2,000 arrays each", "done")
def many_sessions(at):
    sessions = []
    for _ in range(300):
        session = RawNative(at["address"])
        session.put(1)
        session.send("copy", arrays=[1] * 2000, results=numbers(2000), semantics="COPY_SEMANTICS_REUSE", devices=[0])
        sessions.append(session)
    return outcome(sessions[-1].call("ping"))


@case("ends with 100,000 copies queued behind an array that never comes", "left")
def leaves_much_behind(at):
    session = RawNative(at["address"])
    session.put(1, upload=(7, 4))
    for turn in range(10):
        session.send("copy", arrays=[1] * 10000, results=numbers(10000, 1000 + 10000 * turn),
                     semantics="COPY_SEMANTICS_ALWAYS_COPY")
    session.call("ping")
    session.close()
    time.sleep(3)
    return "left"


@case("sends 100 half frames of 100 MB each to the port of the workers",
      r"\d+ MiB sent, [1-9]\d* of 100 connections closed")
def half_frames(at):
    host, port = at["links"].rsplit(":", 1)
    header = bytes.fromhex("46525759" + "01" + "01" + "0000") + bytes(16) + (100 * MIB).to_bytes(4, "little") + bytes(4)
    held, sent, closed = [], 0, 0
    until = time.monotonic() + at["seconds"]
    for _ in range(100):
        link = socket.create_connection((host, int(port)))
        link.settimeout(1)
        try:
            link.sendall(header)
            for _ in range(99):
                if time.monotonic() > until:
                    break
                link.sendall(bytes(MIB))
                sent += 1
            held.append(link)
        except OSError:
            closed += 1
    time.sleep(max(0, until - time.monotonic()))
    return f"{sent} MiB sent, {closed} of 100 connections closed"


@case("opens 10,000 connections to each port from three addresses, says nothing or half a greeting, and holds them",
      r"\d+ opened at each of 5 ports, [1-9]\d* of them closed")
def half_open(at):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    many, closed = min(10000, limit - 500), 0
    ports = [int(at[name].rpartition(":")[2]) for name in ("address", "links", "http")]
    ports += [port for pid in (at["controller"], at["executors"][0]) for port in listening(pid) if port not in ports]
    for port in ports:
        held = []
        for number in range(many):
            peer = socket.socket()
            held.append(peer)
            peer.bind((f"127.0.0.{2 + number % 3}", 0))
            peer.settimeout(10)
            try:
                peer.connect(("127.0.0.1", port))
                if number % 2:
                    peer.send(b"\x16\x03\x01\x02")
            except OSError:
                pass
        for peer in held:
            peer.setblocking(False)
            try:
                closed += peer.recv(1) == b""
            except BlockingIOError:
                pass
            except OSError:
                closed += 1
            peer.close()
    return f"{many} opened at each of {len(ports)} ports, {closed} of them closed"


@case("asks for /metrics and the status without end, and holds 200 HTTP connections open",
      r"[1-9]\d* answers beside [1-9]\d* open connections")
def http_flood(at):
    host, port = at["http"].rsplit(":", 1)
    held = []
    for _ in range(200):
        try:
            held.append(socket.create_connection((host, int(port)), timeout=60))
            held[-1].sendall(b"GET /metrics HTTP/1.1\r\n")
        except OSError:
            break
    until, asked = time.monotonic() + at["seconds"], 0
    while time.monotonic() < until or (asked == 0 and time.monotonic() < until + 120):
        try:
            with socket.create_connection((host, int(port)), timeout=60) as one:
                one.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                while one.recv(65536):
                    pass
            asked += 1
        except OSError:
            time.sleep(0.01)
    return f"{asked} answers beside {len(held)} open connections"


# ---- processes ----

@case("an executor with 50,000 copies of one session queued is killed", "done", loses_executor=True)
def lost_executor(at):
    session = RawNative(at["address"])
    os.kill(at["executors"][0], signal.SIGSTOP)
    session.put(1)
    for turn in range(5):
        session.send("copy", arrays=[1] * 10000, results=numbers(10000, 1000 + 10000 * turn),
                     semantics="COPY_SEMANTICS_ALWAYS_COPY")
    session.call("ping")
    time.sleep(1)
    os.kill(at["executors"][0], signal.SIGKILL)
    return outcome(session.call("watch", arrays=[1]))


@case("the controller is stopped for 11 s", "done", stops_all=True)
def stopped_controller(at):
    os.kill(at["controller"], signal.SIGSTOP)
    try:
        time.sleep(11)
    finally:
        os.kill(at["controller"], signal.SIGCONT)
    return outcome(RawNative(at["address"]).call("ping"))


@case("two processes compute and send nothing", "burnt")
def burn(at):
    """The control case: a neighbour's view of busy processors alone."""
    end = time.time() + at["seconds"]
    code = f"import time\nwhile time.time() < {end}: pass"
    for process in [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]:
        process.wait()
    return "burnt"


def main():
    name, cluster = sys.argv[1], json.loads(sys.argv[2])
    os.write(cluster["begins"], b"\n")
    os.close(cluster["begins"])
    try:
        said = CASES[name].run(cluster)
    except grpc.RpcError as error:
        said = f"the session ended: {error.code().name}: {(error.details() or '')[:200]}"
    print(said, flush=True)
    os._exit(0)  # leaves all connections as they are


if __name__ == "__main__":
    main()
