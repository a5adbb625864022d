# SPDX-License-Identifier: Apache-2.0
"""A gRPC server that plays the controller's side of proto/fairway/v1/callbacks.proto.

Its messages are written and read by protobuf itself, from the .proto file.
"""

import concurrent.futures
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ROOT = pathlib.Path(__file__).resolve().parents[3]


def load_messages():
    """{name: class} of callbacks.proto."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "set")
        subprocess.run(["protoc", f"-I{ROOT / 'proto'}", f"-o{out}", "fairway/v1/callbacks.proto"],
                       check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    package = pool.FindFileByName("fairway/v1/callbacks.proto")
    return {name: message_factory.GetMessageClass(kind)
            for name, kind in package.message_types_by_name.items()}


PB = load_messages()
Client, Server = PB["CallbackClientMessage"], PB["CallbackServerMessage"]
sys.path.insert(0, str(ROOT / "client/python"))
from fairway import wire  # noqa: E402


def array(x, inline=True):
    x = np.asarray(x)
    return PB["CallbackArray"](dtype=wire.KINDS[x.dtype.name], dims=x.shape, size=x.nbytes,
                               data=x.tobytes() if inline else b"")


class Controller:
    """Serves streams on a loopback port. `refuse` is a gRPC status code that ends each of them."""

    def __init__(self, refuse=None):
        self.refuse = refuse
        self.channels, self.streams = [], 0
        self.opened = threading.Event()
        self._returns = queue.SimpleQueue()
        self._outgoing = None
        self._number = 0
        handler = grpc.method_handlers_generic_handler("fairway.v1.Callbacks", {
            "Serve": grpc.stream_stream_rpc_method_handler(
                self._serve, Client.FromString, Server.SerializeToString)})
        pool = concurrent.futures.ThreadPoolExecutor(8)
        self._server = grpc.server(pool, [handler])
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.target = f"127.0.0.1:{port}"
        self._server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._outgoing is not None:
            self._outgoing.put(None)
        self._server.stop(0).wait(10)

    def _serve(self, requests, context):
        if self.refuse is not None:
            context.abort(self.refuse, "refused,\nas asked")
        self.channels.append(next(requests).open.channel)
        self.streams += 1
        outgoing = self._outgoing = queue.SimpleQueue()
        reader = threading.Thread(target=self._read, args=(requests,), daemon=True)
        reader.start()
        yield Server(opened=PB["CallbackOpened"](limit_ms=1000))
        self.opened.set()
        yield from iter(outgoing.get, None)

    def _read(self, requests):
        try:
            for message in requests:
                self._returns.put(message)
        except Exception:
            pass

    def end_stream(self):
        assert self.opened.wait(120)
        self.opened.clear()
        self._outgoing.put(None)

    def send(self, **message):
        self._outgoing.put(Server(**message))

    def call(self, function, arguments=(), results=(), device=0, chunk=None):
        """Sends a call whose results have the types of the arrays `results`. `chunk` is the bytes
        per chunk; None: all inline. Returns the call's number."""
        self._number += 1
        message = PB["CallbackCall"](call=self._number, function=function, device=device,
                                     program="p")
        message.arguments.extend(array(x, chunk is None) for x in arguments)
        message.results.extend(array(x, False) for x in results)
        self.send(call=message)
        if chunk is not None:
            data = b"".join(np.asarray(x).tobytes() for x in arguments)
            for at in range(0, len(data), chunk):
                self.send(chunk=PB["CallbackChunk"](call=self._number, data=data[at:at + chunk]))
        return self._number

    def returns(self, seconds=120):
        """Returns the next Return with all of its chunks: (call, code, text, [(dims, bytes)])."""
        found = getattr(self._returns.get(timeout=seconds), "return")
        wanted = sum(a.size - len(a.data) for a in found.results)
        late = b""
        while len(late) < wanted:
            chunk = self._returns.get(timeout=seconds).chunk
            assert chunk.call == found.call and 0 < len(chunk.data) <= 1 << 20
            late += chunk.data
        out = []
        for a in found.results:
            data = a.data
            if a.size and not data:
                data, late = late[:a.size], late[a.size:]
            out.append((tuple(a.dims), a.dtype, data))
        return found.call, found.code, found.text.decode(), out
