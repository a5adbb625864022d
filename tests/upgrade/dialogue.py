# SPDX-License-Identifier: Apache-2.0
"""What processes of different versions say to each other: recorded once, and played to those of this tree.

A dialogue is a list of Frames of a worker's links (transport/link.h), in the order in which they passed. A player says
what one side said, each frame after all that the other side had said before it, and returns what the other side says
now. Both are compared by meaning: as the recorded version's messages, so what it does not know is left out, as it would
leave it out; MASKED names the fields that time, addresses and random numbers fill. docs/design/0087-upgrades.md.
"""

import base64
import dataclasses
import json
import pathlib
import re
import socket
import struct
import subprocess
import threading

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RECORDED = HERE / "recorded" / "0.1"
HEADER = struct.Struct("<IBBHQQII")
CONTROL, LOG, LOG_REPORT = 1, 2, 3
CLOSED = 0  # no frame: the worker's end of the link was closed
# The first message of a link says which it is.
KINDS = {"register_executor": "executor", "register_worker": "supervisor", "pulse": "pulse"}
# Filled by time, addresses, processes, random numbers, or how busy the host is.
MASKED = re.compile(
    r".*incarnation|ticket_.*|data_key_.*|.*endpoint|.*address|host|peer|.*pid|last_lines|last_error|.*_(s|ms|us|ns)|device_memory|"
    r"memory_(used|limit)|.*_bytes|open_commands|(platform_)?version|uptime.*")
# Come when they come, and say no more than that somebody is alive.
LIVENESS = ("heartbeat", "heartbeat_ack", "revoked_workers")
LIMIT = 120.0  # seconds


class Protocol:
    """The messages of fairway.v1 as a version has them."""

    def __init__(self, descriptors):
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        self.pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            self.pool.Add(file)
        self.services = [s for file in files.file if file.name == "fairway/v1/admin.proto" for s in file.service]

    def parse(self, name, data):
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"fairway.v1.{name}")).FromString(data)

    def methods(self):
        """Path -> the names of the request and of the answer, and whether that is a stream."""
        return {f"/fairway.v1.{s.name}/{m.name}": (m.input_type.rpartition(".")[2], m.output_type.rpartition(".")[2],
                                                   m.server_streaming)
                for s in self.services for m in s.method}


def descriptors(proto):
    """Those of a folder proto/."""
    return subprocess.run(
        ["protoc", f"-I{proto}", "--include_imports", "--descriptor_set_out=/dev/stdout",
         "fairway/v1/link.proto", "fairway/v1/admin.proto"], capture_output=True, check=True, timeout=240).stdout


def meaning(message):
    """A message without what is masked."""

    def strip(value):
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if not MASKED.fullmatch(k)}
        return [strip(v) for v in value] if isinstance(value, list) else value

    return strip(json_format.MessageToDict(message, preserving_proto_field_name=True))


@dataclasses.dataclass
class Frame:
    link: str    # "supervisor", "executor", "pulse", and of later ones of the kind "executor2", ...
    sender: str  # "worker", "controller"
    type: int
    flags: int
    id: int
    offset: int
    payload: bytes

    def line(self):
        payload = base64.b64encode(self.payload).decode()
        return f"{self.link} {self.sender} {self.type} {self.flags} {self.id} {self.offset} {payload}\n"

    @staticmethod
    def of(line):
        link, sender, *numbers, payload = line.rstrip("\n").split(" ")
        return Frame(link, sender, *map(int, numbers), base64.b64decode(payload))

    def bytes(self):
        # The checksum is CRC-32C; see crc32c.
        return HEADER.pack(0x59575246, 1, self.type, self.flags, self.id, self.offset, len(self.payload),
                           crc32c(self.payload)) + self.payload


def _table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = _table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
        if byte < 0x80:
            return value, at


def entries(payload):
    """The entries of a log frame (log/codec.h): their numbers, and the bytes of their bodies."""
    _, at = varint(payload, 0)
    ranges, at = varint(payload, at)
    for _ in range(2 * ranges):
        _, at = varint(payload, at)
    number = 0
    while at < len(payload):
        delta, at = varint(payload, at)
        _, at = varint(payload, at)  # the set
        _, at = varint(payload, at)  # kind and flags
        size, at = varint(payload, at)
        number += delta
        yield number, payload[at:at + size]
        at += size


def last_number(payload):
    """The highest number of an entry that a report of the log names (log/codec.h)."""
    _, at = varint(payload, 0)
    applied, at = varint(payload, at)
    count, at = varint(payload, at)
    last = 0
    for _ in range(2 * count):
        step, at = varint(payload, at)
        last += step
    return max(applied, last)


def said(protocol, frame):
    """What a frame says that counts: a list of meanings, one for a message, an entry of a log, or a part of a report.

    How entries, reports and freed groups are taken together depends on time, so an entry's number does, too."""
    if frame.type in (CLOSED, LOG_REPORT):
        return []
    if frame.type == LOG:
        commands = [meaning(protocol.parse("Command", body)) for _, body in entries(frame.payload)]
        return [part for command in commands for part in
                ([{"free": group} for group in command["free"]["groups"]] if "free" in command else [command])]
    message = protocol.parse("ToController" if frame.sender == "worker" else "FromController", frame.payload)
    kind = message.WhichOneof("message")
    if kind == "report":
        report = meaning(message)["report"]
        parts = [{name: part} for name, value in report.items() if isinstance(value, list) for part in value]
        return parts + [{name: report[name]} for name in ("finished_through",) if name in report]
    return [] if kind in LIVENESS else [{kind or "(unknown)": None, **meaning(message)}]


class Framed:
    """A socket that carries frames."""

    def __init__(self, sock):
        self.sock = sock
        sock.settimeout(LIMIT)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise EOFError("the other end has closed the link")
            data += more
        return data

    def take(self, link, sender):
        magic, version, kind, flags, number, offset, length, crc = HEADER.unpack(self._exactly(HEADER.size))
        payload = self._exactly(length)
        assert (magic, version, crc) == (0x59575246, 1, crc32c(payload))
        return Frame(link, sender, kind, flags, number, offset, payload)

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()


class Links:
    """Names the links that come: by the kind of their first message, and a number from the second on."""

    def __init__(self, protocol):
        self.protocol, self.count, self.lock = protocol, {}, threading.Lock()

    def name(self, payload):
        kind = KINDS[self.protocol.parse("ToController", payload).WhichOneof("message")]
        with self.lock:
            self.count[kind] = self.count.get(kind, 0) + 1
            return kind if self.count[kind] == 1 else f"{kind}{self.count[kind]}"


class Recorder:
    """A proxy before a controller's link port that keeps all frames, in the order in which they passed."""

    def __init__(self, protocol, target):
        self.links, self.target, self.frames, self.lock = Links(protocol), target, [], threading.Lock()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.server.accept()
                ends = Framed(near), Framed(socket.create_connection(("127.0.0.1", self.target)))
            except OSError:
                return
            threading.Thread(target=self._serve, args=ends, daemon=True).start()

    def _serve(self, near, far):
        first = near.take("", "worker")
        first.link = self.links.name(first.payload)
        self._pass(first, far)
        threading.Thread(target=self._copy, args=(far, near, first.link, "controller"), daemon=True).start()
        self._copy(near, far, first.link, "worker")

    def _pass(self, frame, to):
        with self.lock:
            self.frames.append(frame)
            to.sock.sendall(frame.bytes())

    def _copy(self, source, to, link, sender):
        try:
            while True:
                self._pass(source.take(link, sender), to)
        except (OSError, EOFError):
            if sender == "worker":
                with self.lock:
                    self.frames.append(Frame(link, sender, CLOSED, 0, 0, 0, b""))
            to.close()


class Player:
    """Plays one side of a dialogue, `side`, to a process that is the other one.

    `connect(link)` returns the socket of a link. `at(frame)` is called before what follows a frame of the other side is
    waited for.
    """

    def __init__(self, protocol, frames, side, connect, at=lambda frame: None):
        self.protocol, self.frames, self.side = protocol, frames, side
        self.other = "controller" if side == "worker" else "worker"
        self.connect, self.at = connect, at
        self.ends, self.heard, self.finished = {}, {}, {}
        self.numbers = {}  # of the newest entry, by link

    def _end(self, link):
        if link not in self.ends:
            self.ends[link] = Framed(self.connect(link))
        return self.ends[link]

    def _new(self, words, finished, link):
        """Without the words that nothing else is finished."""
        out = []
        for word in words:
            if "finished_through" not in word or finished.get(link) != word["finished_through"]:
                out.append(word)
            finished[link] = word.get("finished_through", finished.get(link))
        return out

    def _hear(self, link, count):
        queue = self.heard.setdefault(link, [])
        while len(queue) < count:
            frame = self._end(link).take(link, self.other)
            if frame.type == LOG:
                self.numbers[link] = max([self.numbers.get(link, 0), *(number for number, _ in entries(frame.payload))])
            queue.extend(self._new(said(self.protocol, frame), self.finished, link))
        heard, self.heard[link] = queue[:count], queue[count:]
        return heard

    def play(self):
        """Returns (link, what was said on it between two frames of ours, what is said now), in no order."""
        out, finished, waiting = [], {}, {}

        def hear():
            for link, words in waiting.items():
                now = self._hear(link, len(words))
                out.append((link, *(sorted(json.dumps(word, sort_keys=True) for word in each) for each in (words, now))))
            waiting.clear()

        for frame in self.frames:
            if frame.sender == self.other:
                words = self._new(said(self.protocol, frame), finished, frame.link)
                if words or frame.type == CLOSED:
                    self.at(frame)
                if words:
                    waiting.setdefault(frame.link, []).extend(words)
            elif frame.type == CLOSED:
                hear()
                self.ends.pop(frame.link).close()
            elif frame.type == LOG_REPORT:
                hear()
                if last_number(frame.payload) <= self.numbers.get(frame.link, 0):
                    self._end(frame.link).sock.sendall(frame.bytes())
            elif frame.type == LOG or said(self.protocol, frame):
                hear()
                self._end(frame.link).sock.sendall(frame.bytes())
        hear()
        return out

    def close(self):
        for end in self.ends.values():
            end.close()


def read_dialogue(name):
    return [Frame.of(line) for line in (RECORDED / name).read_text().splitlines() if line]
