# SPDX-License-Identifier: Apache-2.0
"""Cases that make the controller hold more and more: records, answers, mapped files. See hostile_cases.py."""

import os
import signal
import threading
import time

import grpc

from hostile_case import KIB, MIB, case, numbers, outcome
from raw_client import Session, message
from raw_native import RawNative, spec_of


@case("copies one array 65,536 times in one request and keeps the copies, again and again",
      r"[1-9]\d* requests, then error 8: (this session has|the records of what this request makes) .*")
def kept_copies(at):
    session = RawNative(at["address"])
    session.put(1)
    count = 1 << 16
    for turn in range(30):
        done = session.call("copy", arrays=[1] * count, results=numbers(count, 1000 + turn * count),
                            semantics="COPY_SEMANTICS_ALWAYS_COPY")
        if done is None or done.error.code:
            break
    return f"{turn} requests, then {outcome(done)}"


@case("asks in 40 sessions for 8,000 error texts of 4 KB each and reads no answer", "done")
def many_unread_sessions(at):
    sessions = []
    for _ in range(40):
        session = RawNative(at["address"], reads=False)
        session.gives_up = time.monotonic() + at["seconds"]
        session.send("make_error", array=1, spec=spec_of(),
                     error=message("fairway.v1.Error")(code=13, text="x" * 4000))
        for turn in range(8):
            batch = message("fairway.v1.ClientMessage")()
            for number in range(1000):
                batch.requests.add(id=1000 * turn + number + 10).watch.arrays.append(1)
            session.send_bytes(batch.SerializeToString())
        sessions.append(session)
    time.sleep(2 * at["seconds"])
    # One that comes later, and reads, is served.
    return outcome(RawNative(at["address"]).call("ping"))


@case("fills its share of the memory for uploads and uploads 4 bytes 10,000 times, each in a file",
      r"error 8: host buffer: \d+ uploads of this session lie in mapped files.*")
def many_mappings(at):
    os.kill(at["executors"][0], signal.SIGSTOP)  # it takes none of the large ones
    try:
        session = RawNative(at["address"])
        sizes = [8 * MIB] * 56 + [size for size in (256 * KIB, 8 * KIB, 256, 64) for _ in range(64)]
        for number, size in enumerate(sizes, 1000):
            session.put(number, upload=(number, size), dims=[size // 4])
            session.send("chunk", upload=number, data=bytes(size))
        for first in range(10000, 20000, 500):
            batch = message("fairway.v1.ClientMessage")()
            for number in range(first, first + 500):
                put = batch.requests.add().put
                put.MergeFrom(type(put)(array=number, spec=spec_of(), bytes_of_shard=[0],
                                        bytes=[message("fairway.v1.HostBytes")(upload=number, size=4)]))
                chunk = batch.requests.add().chunk
                chunk.MergeFrom(type(chunk)(upload=number, data=bytes(4)))
            session.send_bytes(batch.SerializeToString())
        return outcome(session.call("watch", arrays=[19999]))
    finally:
        os.kill(at["executors"][0], signal.SIGCONT)


@case("puts 64 KiB arrays to a stopped executor in session after session, and closes each", r"\d+ MiB sent, \d+ sessions; done")
def messages_to_a_stopped_executor(at):
    os.kill(at["executors"][0], signal.SIGSTOP)
    sent, sessions, until = 0, 0, time.monotonic() + 12 * at["seconds"]
    try:
        while time.monotonic() < until and sent < 3 << 14:  # 3 GiB
            session = RawNative(at["address"])
            session.gives_up = time.monotonic() + 1
            sessions += 1
            try:
                # Two shards of the same 64 KiB: too many bytes to be kept until something uses them.
                for number in range(4000):
                    session.put(1000 + number, data=bytes(64 * KIB), dims=[16 * KIB], devices=[0, 1])
                    sent += 1
                session.call("ping", 1)
            except TimeoutError:
                pass
            session.close()
        return f"{sent // 16} MiB sent, {sessions} sessions; " + outcome(RawNative(at["address"]).call("ping"))
    finally:
        os.kill(at["executors"][0], signal.SIGCONT)


# ---- one of fifty: each goes on until it is refused or `until` ----

def keep_copies(address, until):
    session = RawNative(address)
    session.put(1, devices=[2])
    for turn in range(1000):
        done = session.call("copy", arrays=[1] * 4096, results=numbers(4096, 1000 + turn * 4096),
                            semantics="COPY_SEMANTICS_ALWAYS_COPY")
        if done is None or done.error.code or time.monotonic() > until:
            return session


def leave_answers(address, until):
    session = RawNative(address, reads=False)
    session.gives_up = until
    session.send("make_error", array=1, spec=spec_of(), error=message("fairway.v1.Error")(code=13, text="x" * 4000))
    for _ in range(100):
        batch = message("fairway.v1.ClientMessage")()
        for number in range(1000):
            batch.requests.add(id=number + 10).watch.arrays.append(1)
        session.send_bytes(batch.SerializeToString())
    return session


def wait_for_much(address, until):
    session = RawNative(address)
    session.gives_up = until
    session.put(1, upload=(7, 4))
    for _ in range(100):
        session.send("watch", True, arrays=[1] * (1 << 16))
    return session


def leave_buffers(address, until):
    session = Session(address)
    data = bytes(8 * MIB)
    for number in range(10):
        if time.monotonic() < until:
            session.store(1 + number, data)
    return session


def leave_commands(address, until):
    """The executor of devices 0 and 1 is stopped."""
    session = RawNative(address)
    session.gives_up = until
    for number in range(4000):
        session.put(1000 + number, data=bytes(64 * KIB), dims=[16 * KIB], devices=[0, 1])
    return session


@case("holds as much as it can in 50 sessions at once, in five ways, beside a stopped executor", "50 sessions; done")
def fifty_sessions(at):
    ways = [keep_copies, leave_answers, wait_for_much, leave_buffers, leave_commands]
    until = time.monotonic() + 6 * at["seconds"]
    # One thread makes the classes of the messages.
    spec_of(), [message(f"fairway.v1.{name}")() for name in ("ClientMessage", "ServerMessage", "HostBytes", "Error")]
    Session(at["address"]).close()
    kept = []  # sessions, and what ended them

    def go_on(way):
        try:
            kept.append(way(at["address"], until))
        except (TimeoutError, RuntimeError, grpc.RpcError) as error:
            kept.append(error)

    os.kill(at["executors"][0], signal.SIGSTOP)
    try:
        threads = [threading.Thread(target=go_on, args=[ways[number % len(ways)]]) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return f"{len(kept)} sessions; " + outcome(RawNative(at["address"]).call("ping"))
    finally:
        os.kill(at["executors"][0], signal.SIGCONT)
