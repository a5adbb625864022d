# SPDX-License-Identifier: Apache-2.0
"""A compile process of fairway-worker, told what to compile for and asked as a supervisor asks.

Its message types (proto/fairway/v1/compiler.proto) are built from our .proto files at run time.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKER = ROOT / "build/release/bin/fairway-worker"
LINK_FD = 3  # kCompileLinkFd


@functools.cache
def _pool():
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(
            ["protoc", "-I", str(ROOT / "proto"), "--include_imports",
             f"--descriptor_set_out={out.name}", "fairway/v1/compiler.proto", "xla/hlo_subset.proto"],
            check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


def message(name):
    """The class of a message, by its full name."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


class Refused(Exception):
    """An answer was an error: .code (absl's), .text."""

    def __init__(self, response):
        self.code = response.status_code
        self.text = response.status_message.decode(errors="replace")
        super().__init__(f"{self.code}: {self.text}")


@dataclasses.dataclass
class Compiled:
    code: object  # fairway.v1.PjrtCode
    metadata: object  # fairway.v1.ExecutableMetadata

    @property
    def text(self):
        """The optimized program, as HLO text."""
        return self.metadata.program_text


def work_of_children(pid):
    """Page faults of all children that the process waited for; 0: it started none."""
    fields = pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return int(fields[8])  # cminflt


class CompileProcess:
    """One process. Ends with the `with` block."""

    def __init__(self, plugin, target, devices=8, flags=(), environment=None):
        ours, theirs = socket.socketpair()
        self.link = ours
        self.link.settimeout(300)
        argv = [str(WORKER), "--role=compiler", "--runtime=pjrt", "--plugin-kind=cuda",
                f"--plugin={plugin}", f"--devices={devices}", "--log-level=warn", *flags]
        read_log, write_log = os.pipe()
        self.log = os.fdopen(read_log, "rb")

        # It gets a process group of its own, as from its supervisor.
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", f'exec "$@" {LINK_FD}<&{theirs.fileno()}', "bash", *argv],
            stdin=subprocess.DEVNULL, stdout=write_log, stderr=write_log,
            pass_fds=(theirs.fileno(),), process_group=0, env=environment)
        os.close(write_log)
        theirs.close()
        first = message("fairway.v1.CompileRequest")()
        first.target.config = target
        self._send(first)
        self.ready = self._receive()
        if self.ready.status_code != 0:
            self.__exit__()
            raise Refused(self.ready)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.link.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        self.process.wait()
        sys.stderr.write(self.log.read().decode(errors="replace"))
        self.log.close()

    def compile(self, program, devices=1, **options):
        """Returns compiled code, or Refused. ConnectionError: the process is gone."""
        self.ask(program, devices, **options)
        return self.answer()

    def ask(self, program, devices=1, **options):
        request = message("fairway.v1.CompileRequest")(id=1, program=program)
        request.options.num_replicas = 1
        request.options.num_partitions = devices
        request.options.use_spmd_partitioning = devices > 1
        request.options.use_shardy_partitioner = devices > 1
        request.options.devices.extend(range(devices))
        for name, value in options.items():
            option = request.options.compiler_options.add(name=name)
            setattr(option, {bool: "flag", int: "integer", str: "text"}[type(value)], value)
        self._send(request)

    def answer(self):
        response = self._receive()
        if response.status_code != 0:
            raise Refused(response)
        code = message("fairway.v1.PjrtCode").FromString(response.code)
        return Compiled(code, response.metadata)

    def _send(self, request):
        data = request.SerializeToString()
        self.link.sendall(len(data).to_bytes(4, "little") + data)

    def _receive(self):
        size = int.from_bytes(self._read(4), "little")
        return message("fairway.v1.CompileResponse").FromString(self._read(size))

    def _read(self, size):
        data = b""
        while len(data) < size:
            more = self.link.recv(size - len(data))
            if not more:
                raise ConnectionError(f"the compile process is gone: {self.process.wait(120)}")
            data += more
        return data
