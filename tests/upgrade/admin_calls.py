# SPDX-License-Identifier: Apache-2.0
"""Calls of the administration: passed on and kept, made again, and answered as they were answered once."""

import base64
import json
from concurrent import futures

import grpc


def encode(data):
    return base64.b64encode(data).decode()


class Server:
    """A gRPC server on a free port that has `answer(path, request, stream)` answer each call: a list of messages, and
    the code and text of the end."""

    def __init__(self, methods):
        self.methods = methods
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers([self])
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def service(self, details):
        """What gRPC asks of its handlers."""
        path = details.method
        stream = self.methods[path][2] if path in self.methods else False

        def unary(request, context):
            messages, code, text = self.answer(path, request, stream)
            if code:
                context.abort(grpc.StatusCode[code], text)
            return messages[0]

        def many(request, context):
            messages, code, text = self.answer(path, request, stream)
            yield from messages
            if code:
                context.abort(grpc.StatusCode[code], text)

        return (grpc.unary_stream_rpc_method_handler(many) if stream else grpc.unary_unary_rpc_method_handler(unary))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop(None).wait()


def call(channel, path, request, stream):
    """The messages of the answer, and the code and text of an error."""
    messages = []
    try:
        if stream:
            for message in channel.unary_stream(path)(request, timeout=240):
                messages.append(message)
        else:
            messages.append(channel.unary_unary(path)(request, timeout=240))
    except grpc.RpcError as error:
        return messages, error.code().name, error.details()
    return messages, "", ""


class Passer(Server):
    """Passes calls on to a controller, and keeps them."""

    def __init__(self, protocol, target):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{target}")
        self.calls = []
        super().__init__(protocol.methods())

    def answer(self, path, request, stream):
        messages, code, text = call(self.channel, path, request, stream)
        self.calls.append({"path": path, "request": encode(request), "answer": [encode(m) for m in messages],
                           "code": code, "text": text})
        return messages, code, text


class Answerer(Server):
    """Answers calls in the order in which they were made once."""

    def __init__(self, protocol, calls):
        self.calls, self.asked = list(calls), []
        super().__init__(protocol.methods())

    def answer(self, path, request, stream):
        self.asked.append((path, request))
        if not self.calls or self.calls[0]["path"] != path:
            return [], "UNIMPLEMENTED", f"{path} was not called here"
        entry = self.calls.pop(0)
        return [base64.b64decode(m) for m in entry["answer"]], entry["code"], entry["text"]


def read_calls(path):
    return [json.loads(line) for line in path.read_text().splitlines()]
