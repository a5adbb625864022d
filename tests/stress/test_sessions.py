# SPDX-License-Identifier: Apache-2.0
"""Sessions that go too far: others must not notice, and nothing of them may be left."""

import signal
import threading
import time

import grpc
import numpy as np
import pytest

from accounting import anonymous_memory
from cluster import wait_for, wait_for_count
from conftest import program
from raw_client import Refused, Session, message

MIB = 1 << 20
NOT_FOUND = 5
ones = np.ones(4, np.float32)


def controller(cluster):
    (found,) = [p for p in cluster.processes() if p.program == "fairway-controller"]
    return found


class Neighbour:
    """Another session, which works all the time; its results must be right and come soon."""

    def __init__(self, cluster, device=0):
        self.cluster, self.device = cluster, device
        self.slowest, self.rounds, self.failure = 0.0, 0, None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            with Session(self.cluster.address) as session:
                add = session.compile(program("add"), self.device)
                session.put(1, ones, self.device)
                while not self._stop.is_set():
                    started = time.monotonic()
                    session.execute(add, [1], [2])
                    got = np.frombuffer(session.get(2, 100), np.float32)
                    np.testing.assert_array_equal(got, ones + 1)
                    session.call("destruct_array_request", array_handle=[2])
                    self.slowest = max(self.slowest, time.monotonic() - started)
                    self.rounds += 1
                    self._stop.wait(0.01)  # the processor time of this process is the others' too
        except BaseException as failure:
            self.failure = failure

    def __enter__(self):
        self._thread.start()
        self.goes_on()
        return self

    def goes_on(self):
        """Waits for three more rounds."""
        seen = self.rounds
        wait_for(lambda: self.rounds >= seen + 3 or self.failure, "the neighbour's next rounds", 240)
        assert self.failure is None, self.failure

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(240)
        print(f"neighbour: {self.rounds} rounds, the slowest {self.slowest * 1e3:.0f} ms")
        assert self.failure is None, self.failure


TWO_THREADS = """
import threading
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

failures = []
def work(number):
    try:
        devices = [d for d in jax.devices() if d.slice_index == number % 2]
        split = NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
        step = jax.jit(lambda v: v + number + 1)  # two threads of each: the same first call
        for i in range(50):
            x = jax.device_put(np.full((8, 4), i, np.float32), split)
            y = step(step(x))
            z = jax.device_put(y, jax.devices()[-1 - number % 2])
            np.testing.assert_array_equal(np.asarray(z), i + 2 * number + 2)
    except BaseException as error:
        failures.append(error)
        raise

threads = [threading.Thread(target=work, args=(n,)) for n in (0, 0, 1, 1)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not failures
"""


def test_threads_of_one_client_do_not_disturb_each_other(cluster):
    cluster.python("-c", TWO_THREADS)


def test_ten_clients_work_at_once(cluster):
    rounds = {}

    def work(number):
        with Session(cluster.address) as session:
            add = session.compile(program("add"), number % 4)
            session.put(1, ones * number, number % 4)
            for i in range(50):
                session.execute(add, [1 + i], [2 + i])
            got = np.frombuffer(session.get(51, 1000), np.float32)
            np.testing.assert_array_equal(got, ones * number + 50)
            rounds[number] = True

    threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert sorted(rounds) == list(range(10))


def test_a_client_that_never_reads_is_held_back_and_forgotten(cluster):
    pid = controller(cluster).pid
    before = anonymous_memory(pid)
    with Neighbour(cluster) as neighbour, Session(cluster.address) as session:
        wide = session.compile(program("wide"))
        # Each answer describes 500 results; nobody reads the answers.
        request = session.make(
            "loaded_executable_metadata_request", loaded_executable_handle=wide)
        answer_bytes = session.answer(session.send_made(request)).ByteSize()
        assert answer_bytes > 5000
        session.stop_reading()
        # An unknown field of 4 KiB makes each request large, so buffers on the way are soon full.
        request = request.SerializeToString() + b"\xc2\x3e\x80\x20" + bytes(4096)
        sent = 0

        def held_back():
            """Sends until the controller reads no more."""
            nonlocal sent
            if session._requests.qsize() < 500:
                for _ in range(2000):
                    session.send_bytes(request)
                sent += 2000
                return False
            return stuck(session)

        wait_for(held_back, "the controller to read no more", 300)
        grown = anonymous_memory(pid) - before
        print(f"{sent} requests for {answer_bytes} bytes each; the controller holds {grown / MIB:.0f} MiB more")
        assert grown < 200 * MIB
        neighbour.goes_on()
        session.close()
        neighbour.goes_on()


def stuck(session):
    """Whether the length of the queue of unsent requests stays the same for a second."""
    seen, until = session._requests.qsize(), time.monotonic() + 1
    wait_for(lambda: session._requests.qsize() != seen or time.monotonic() > until, "a second")
    return session._requests.qsize() == seen


def test_100000_executions_ahead_are_kept_in_bounds(cluster):
    pid = controller(cluster).pid
    before = anonymous_memory(pid)
    executor = cluster.executors()[0]
    count = 110000
    with Neighbour(cluster, device=2) as neighbour, Session(cluster.address) as session:
        add = session.compile(program("add"))
        session.put(1, ones)
        session.execute(add, [1], [2])
        assert session.get(2, 3)
        executor.signal(signal.SIGSTOP)
        try:
            for i in range(count):
                last = session.execute(add, [2 + i], [3 + i])
                if i % 10 == 0:  # unused arrays are freed all the same
                    session.send("destruct_array_request", array_handle=[2 + i])
            unfinished = lambda: cluster.metrics().total("fairway_nodes_unfinished")
            wait_for_count(unfinished, lambda n: n >= 100000, "100,000 executions ahead")
            wait_for(lambda: stuck(session), "the controller to read no more", 240)
            grown = anonymous_memory(pid) - before
            print(f"{unfinished():g} executions ahead, the controller holds {grown / MIB:.0f} MiB")
            assert unfinished() < count
            assert grown < 512 * MIB
            neighbour.goes_on()
        finally:
            executor.signal(signal.SIGCONT)
        wait_for_count(unfinished, lambda n: n < 1000, "few executions ahead")
        session.answer(last)
        got = np.frombuffer(session.get(2 + count, 10**6), np.float32)
        np.testing.assert_array_equal(got, ones + 1 + count)


def test_a_session_that_ends_with_100000_executions_ahead_leaves_nothing(cluster):
    with Neighbour(cluster, device=2) as neighbour:
        session = Session(cluster.address)
        slow = session.compile(program("slow"), seconds=240)
        session.put(1, ones)
        for i in range(100000):
            session.execute(slow, [1 + i], [2 + i])
        wait_for(lambda: cluster.metrics().total("fairway_nodes_unfinished") > 1000, "work")
        session.close()
        neighbour.goes_on()


def test_another_sessions_handles_and_buffers_are_not_there(cluster):
    with Session(cluster.address) as owner, Session(cluster.address) as thief:
        assert owner.id != thief.id
        add = owner.compile(program("add"))
        owner.put(1, ones)
        owner.store(50, b"secret")
        owner.call("copy_to_host_buffer_request", array_handle=1, host_buffer_handle=60)

        def refused(*arguments, **fields):
            with pytest.raises(Refused) as caught:
                thief.call(*arguments, **fields)
            assert caught.value.code == NOT_FOUND, caught.value
            return caught.value.text

        for request in (
            ("copy_to_host_buffer_request", {"array_handle": 1, "host_buffer_handle": 7}),
            ("destruct_array_request", {"array_handle": [1]}),
            ("is_array_deleted_request", {"array_handle": 1}),
            ("check_value_ready_request", {"value_handles": [1]}),
            ("fully_replicated_shard_request",
             {"array_handle": 1, "copy_semantics": 1, "result_handle": 8}),
            ("disassemble_into_single_device_arrays_request",
             {"array_handle": 1, "copy_semantics": 1, "result_handles": [9]}),
            ("copy_arrays_request",
             {"array_handles": [1], "device_ids": [1], "copy_semantics": 1,
              "result_handles": [10]}),
            ("loaded_executable_metadata_request", {"loaded_executable_handle": add}),
            ("loaded_executable_execute_request",
             {"loaded_executable_handle": add, "args_handles": [1], "result_array_handle": [11]}),
            ("loaded_executable_destruct_request", {"loaded_executable_handle": add}),
        ):
            text = refused(request[0], **request[1])
            assert "1" in text or "executable" in text
        deleted = thief.call("delete_array_request", array_handle=[1]).delete_array_response
        refused("check_future_request", future_handle=deleted.deletion_future_handle)

        # Host buffers: the thief's session has none, and other sessions' numbers cannot be guessed.
        for session_id in (thief.id, owner.id + 1, 1, 0, 2**64 - 1):
            for handle in (1, 50, 60):
                for attempt in (thief.lookup, thief.delete_buffer):
                    with pytest.raises(grpc.RpcError) as caught:
                        attempt(handle, session_id)
                    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
            if session_id != thief.id:
                with pytest.raises(grpc.RpcError) as caught:
                    thief.store(50, b"changed", session_id)
                assert caught.value.code() == grpc.StatusCode.NOT_FOUND

        # The owner still has all of it.
        owner.execute(add, [1], [2])
        np.testing.assert_array_equal(np.frombuffer(owner.get(2, 61), np.float32), ones + 1)
        assert owner.lookup(60) == ones.tobytes()
        assert owner.lookup(50) == b"secret"


def test_host_buffers_that_nobody_takes_go_with_their_session(cluster):
    pid = controller(cluster).pid
    before = anonymous_memory(pid)
    with Neighbour(cluster) as neighbour:
        with Session(cluster.address) as session:
            for handle in range(1, 65):
                session.store(handle, bytes(4 * MIB))
            session.store(1000, bytes(MIB), announced=2**62)  # too few bytes
            with pytest.raises(grpc.RpcError, match="-1 bytes were announced, 1048576 came"):
                session.store(1001, bytes(MIB), announced=-1)
            print(f"{(anonymous_memory(pid) - before) / MIB:.0f} MiB for 257 MiB of buffers")
            neighbour.goes_on()
        wait_for(lambda: anonymous_memory(pid) - before < 100 * MIB, "the buffers to go")


def test_more_than_a_cap_is_refused_by_name(cluster):
    with Neighbour(cluster), Session(cluster.address) as session:
        shape = message("xla.ifrt.ShapeProto")
        f32 = message("xla.ifrt.DTypeProto")(kind=11)

        def make(shape):
            return session.call(
                "make_array_from_host_buffer_request", dtype=f32, shape=shape,
                sharding=session.single_device(), host_buffer_handle=5, array_handle=6)

        for dims, word in (
            ([1] * 65, "rank 65"), ([-1], "-1"), ([2**40, 2**40], "bytes"),
        ):
            with pytest.raises(Refused) as caught:
                make(shape(dims=dims))
            assert word in caught.value.text, caught.value
        # The session is alive.
        add = session.compile(program("add"))
        session.put(1, ones)
        session.execute(add, [1], [2])
        np.testing.assert_array_equal(np.frombuffer(session.get(2, 3), np.float32), ones + 1)

