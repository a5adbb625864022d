# SPDX-License-Identifier: Apache-2.0
"""Cases that make the controller hold more and more: records, answers, mapped files. See hostile_cases.py."""

import os
import signal
import time

from hostile_case import KIB, MIB, case, numbers, outcome
from raw_client import message
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
