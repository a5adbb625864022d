# SPDX-License-Identifier: Apache-2.0
"""A process with a worker's certificate asks the data ports of others, without a ticket (docs/design/0069-tickets.md)."""

import json
import socket
import ssl
import struct

from test_relays import crc32c
from test_settings import run
from test_tls import PROGRAM, certificates, secured, tls_of, user_of  # noqa: F401 (fixtures)

PULL, CHUNK, ERROR, PUSH = 1, 2, 3, 4
INVALID_ARGUMENT, PERMISSION_DENIED, ABORTED = 3, 7, 10


def frame(kind, number, payload):
    return struct.pack("<IBBHQQII", 0x59575246, 1, kind, 0, number, 0, len(payload), crc32c(payload)) + payload


def pull(number, transfer, incarnation, ticket=bytes(16), turn=0, sender=9):
    payload = struct.pack("<QiIQqQ", transfer, 0, turn, incarnation, 4, sender) + ticket
    return frame(PULL, number, payload)


def push(incarnation, ticket=bytes(16), sender=9):
    return frame(PUSH, 0, struct.pack("<QIiQQ", 1, 1, 0, incarnation, sender) + ticket + bytes(60000))


class Asking:
    """A connection to a data port with the certificate of worker w1."""

    def __init__(self, certificates, port):  # noqa: F811
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(certificates / "w1" / "ca.pem")
        context.load_cert_chain(certificates / "w1" / "worker.pem", certificates / "w1" / "worker.key")
        self.socket = context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=60))

    def take(self, size):
        got = b""
        while len(got) < size:
            more = self.socket.recv(size - len(got))
            assert more, "the port has closed the connection"
            got += more
        return got

    def answer(self):
        """(number of the request, code, text)"""
        _, _, kind, _, number, _, size, _ = struct.unpack("<IBBHQQII", self.take(32))
        payload = self.take(size)
        assert kind == ERROR, f"a frame of type {kind} with {size} bytes"
        return number, struct.unpack("<I", payload[:4])[0], payload[4:].decode()

    def ask(self, *frames):
        self.socket.sendall(b"".join(frames))
        return [self.answer() for _ in frames]


def port_of(daemon):
    return int(daemon.wait("data port 127.0.0.1:").rpartition(":")[2])


def test_a_daemon_of_the_cluster_gets_nothing_without_the_right_ticket(secured, certificates):  # noqa: F811
    workers = [secured.worker(f"w{n}", f"island{n}", *tls_of(certificates, f"w{n}")) for n in (0, 1)]
    secured.controller.wait("islands up: 2")

    def program_runs():
        done = run("fairway", "run", str(PROGRAM), "--controller", f"127.0.0.1:{secured.port}", "--arg", "x=1.5",
                   *user_of(certificates))
        assert done.returncode == 0, done.stderr
        assert "sum  f32[4]  [6, 6, 6, 6]" in done.stdout

    program_runs()
    status = run("fairway", "status", "--controller", f"127.0.0.1:{secured.port}", "-o", "json",
                 f"--tls-ca={certificates}/ca.pem", f"--token-file={certificates}/admin.token")
    assert status.returncode == 0, status.stderr
    status = json.loads(status.stdout)
    # Whoever looks at the cluster may know all this; it is no secret.
    executor = int(next(e["incarnation"] for e in status["executors"] if e["worker"] == "w0"))
    controller = int(status["incarnation"])
    ports = ((port_of(workers[0]), executor),
             (int(secured.controller.wait("listening on").rpartition("data ")[2].partition(",")[0].split()[0]),
              controller))
    for port, incarnation in ports:
        asking = Asking(certificates, port)
        for transfer in (*range(1, 40), 1 << 63, (1 << 63) + 1):
            for ticket, how in ((bytes(16), "no"), (bytes(range(16)), "a wrong"), (b"\xff" * 16, "a wrong")):
                assert asking.ask(pull(5, transfer, incarnation, ticket)) == [(
                    5, PERMISSION_DENIED,
                    f"incarnation 9 asked for bytes of transfer {transfer} with {how} ticket, so it gets nothing. The "
                    "controller gives tickets to those who are to ask, and to nobody else")]
        # What executors of a gang send each other: a round, the address of shared memory, a push.
        for transfer in (0, 1):
            (_, code, text), = asking.ask(pull(6, transfer, incarnation, bytes(range(16)), turn=1))
            assert code == PERMISSION_DENIED and "the exchange of gangs with a wrong ticket" in text
        # It may say that it is the controller.
        (_, code, _), = asking.ask(pull(7, 1 << 63, incarnation, bytes(range(16)), sender=controller))
        assert code == PERMISSION_DENIED
        (_, code, text), = asking.ask(frame(PULL, 8, struct.pack("<QiIQqQ", 1, 0, 0, incarnation, 4, 9)))
        assert code == INVALID_ARGUMENT and "who asks is of another version" in text
        (_, code, _), = asking.ask(pull(9, 1, incarnation + 1))
        assert code == ABORTED
    asking = Asking(certificates, ports[0][0])
    (_, code, text), = asking.ask(push(executor, bytes(range(16))))
    assert code == PERMISSION_DENIED and "the exchange of gangs with a wrong ticket" in text

    # Some 250 refusals are a line a second at most.
    refusals = [line for line in workers[0].log.read_text().splitlines() if "so it gets nothing" in line]
    assert 1 <= len(refusals) < 100, len(refusals)
    program_runs()
