# SPDX-License-Identifier: Apache-2.0
"""A client that sends whatever a test wants: fairway.v1 over plain gRPC, no SDK."""

import itertools
import math
import queue
import threading
import time

import grpc
from google.protobuf import text_format

from raw_client import F32, UNLIMITED, message

SERVICE = "/fairway.v1.Client/"


class RawNative:
    """One session on a connection of its own. Answers are kept until asked for."""

    def __init__(self, address, reads=True):
        """`reads`=False: after the welcome it reads no answer."""
        self.channel = grpc.insecure_channel(
            address, options=[*UNLIMITED, ("grpc.use_local_subchannel_pool", 1)])
        self._requests = queue.Queue(64)  # blocks the sender while nobody reads
        self._ids = itertools.count(1)
        self._answers, self._arrived = {}, threading.Condition()
        self._reads = reads
        self.error = None
        self.gives_up = math.inf
        self.stream = self.channel.stream_stream(
            SERVICE + "Session",
            request_serializer=lambda m: m if isinstance(m, bytes) else m.SerializeToString(),
            response_deserializer=message("fairway.v1.ServerMessage").FromString,
        )(iter(self._requests.get, None))
        threading.Thread(target=self._read, daemon=True).start()
        self.welcome = self.call("hello", min_version=1, max_version=1000, tenant="default", client="raw").welcome

    def close(self):
        self.stream.cancel()
        self.channel.close()

    def _read(self):
        try:
            for answers in self.stream:
                with self._arrived:
                    for answer in answers.answers:
                        self._answers[answer.id] = answer
                    self._arrived.notify_all()
                if not self._reads:
                    return
        except grpc.RpcError as error:
            with self._arrived:
                self.error = error
                self._arrived.notify_all()

    def send(self, kind, wants_answer=False, **fields):
        """Sends one request without waiting. Returns its id, or 0 if no answer is wanted."""
        number = next(self._ids) if wants_answer else 0
        sent = message("fairway.v1.ClientMessage")()
        request = sent.requests.add(id=number)
        body = getattr(request, kind)
        body.SetInParent()
        body.MergeFrom(type(body)(**fields))
        self.send_bytes(sent.SerializeToString())
        return number

    def send_bytes(self, data):
        """Waits while the controller reads nothing; from `gives_up` on (of time.monotonic) raises
        TimeoutError. Raises when the session has ended."""
        while True:
            if self.error is not None:
                raise self.error
            try:
                return self._requests.put(data, timeout=0.2)
            except queue.Full:
                if time.monotonic() > self.gives_up:
                    raise TimeoutError("the controller reads no more of this session") from None

    def answer(self, number, seconds=240):
        """The answer to a request; None if none came in that time. Raises when the session has ended."""
        with self._arrived:
            self._arrived.wait_for(lambda: number in self._answers or self.error is not None, seconds)
            if number in self._answers:
                return self._answers.pop(number)
            if self.error is not None:
                raise self.error
            return None

    def call(self, kind, seconds=240, **fields):
        return self.answer(self.send(kind, True, **fields), seconds)

    # ---- what cases do often ----

    def put(self, array, data=b"\0\0\x80?", dims=(), devices=(0,), upload=None):
        """Makes a replicated f32 array. `upload`: (number, bytes) that chunks will bring."""
        spec = spec_of(dims, devices)
        host = message("fairway.v1.HostBytes")
        host = host(data=data) if upload is None else host(upload=upload[0], size=upload[1])
        self.send("put", array=array, spec=spec, bytes=[host], bytes_of_shard=[0] * len(devices))

    def compile_scale(self, executable, devices=(0,), dims=(), milliseconds=0, kernel="busy_wait"):
        """Compiles a program that multiplies by one; it may be made to take time, by that kernel."""
        native = message("fairway.v1.NativeProgram")()
        native.parameters.add(dtype=F32, global_dims=list(dims))
        native.steps.add(kernel="scale", operands=[0], factor=1)
        if milliseconds:
            native.steps.add(kernel=kernel, operands=[1], nanoseconds=milliseconds * 1000000)
        native.results.add(value=len(native.steps))
        return self.call("compile", executable=executable, native=native, devices=list(devices))


def spec_of(dims=(), devices=(0,)):
    return message("fairway.v1.ArraySpec")(
        dtype=F32, dims=list(dims),
        sharding=message("fairway.v1.Sharding")(devices=list(devices), tiles=[]))


def program_of(text):
    """Parses a fairway.v1.Program from its text form."""
    return text_format.Parse(text, message("fairway.v1.Program")())
