# SPDX-License-Identifier: Apache-2.0
"""A client that sends whatever a test wants: the session protocol over plain gRPC, no jaxlib.

The message types are built from our .proto files at run time.
"""

import functools
import itertools
import pathlib
import queue
import subprocess
import tempfile
import threading

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
PACKAGE = "xla.ifrt.proxy"
SERVICE = f"/{PACKAGE}.GrpcIfrtService/"
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
F32 = 11  # DTypeProto.KIND_F32
REUSE, ALWAYS_COPY = 2, 1


@functools.cache
def _pool():
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(
            ["protoc", "-I", str(PROTO), "--include_imports", f"--descriptor_set_out={out.name}"]
            + [str(p.relative_to(PROTO)) for p in sorted(PROTO.glob("ifrt/*.proto"))]
            + ["fairway/v1/client.proto"],
            check=True,
        )
        files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


@functools.cache
def message(name):
    """The class of a message, by its name in the protocol's package, or by its full name."""
    full = name if "." in name else f"{PACKAGE}.{name}"
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(full))


class Refused(Exception):
    """An answer had an error status: .code, .text."""

    def __init__(self, status):
        super().__init__(f"{status.code}: {status.message}")
        self.code, self.text = status.code, status.message


class Session:
    """One session on a connection of its own. Answers are kept until asked for."""

    def __init__(self, address, version=(25, 3)):
        self.channel = grpc.insecure_channel(
            address, options=[*UNLIMITED, ("grpc.use_local_subchannel_pool", 1)])
        self._requests = queue.SimpleQueue()
        self._ids = itertools.count(1)
        self._answers, self._arrived = {}, threading.Condition()
        self.error = None
        self._stops_reading = False
        metadata = message("GrpcIfrtSessionMetadata")()
        metadata.version.protocol_version, metadata.version.ifrt_serdes_version_number = version
        self.stream = self.channel.stream_stream(
            SERVICE + "IfrtSession",
            request_serializer=lambda m: m if isinstance(m, bytes) else m.SerializeToString(),
            response_deserializer=message("IfrtResponse").FromString,
        )(
            iter(self._requests.get, None),
            metadata=[("ifrt-proxy-grpc-ifrt-session-metadata-bin", metadata.SerializeToString())],
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        init = self.call("init_request").init_response
        self.id, self.devices = init.session_id, init.all_devices

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._requests.put(None)
        self.stream.cancel()
        self._reader.join(30)
        self.channel.close()

    def _read(self):
        try:
            for answer in self.stream:
                with self._arrived:
                    self._answers[answer.response_metadata.op_id] = answer
                    self._arrived.notify_all()
                if self._stops_reading:
                    return
        except grpc.RpcError as error:
            self.error = error
        with self._arrived:
            self.error = self.error or EOFError("the stream ended")
            self._arrived.notify_all()

    def stop_reading(self):
        """Reads one more answer, then no more."""
        self._stops_reading = True

    def make(self, kind, **fields):
        """Makes a request with the next op_id; kind: the field of IfrtRequest."""
        request = message("IfrtRequest")()
        request.request_metadata.op_id = next(self._ids)
        body = getattr(request, kind)
        body.SetInParent()
        for name, value in fields.items():
            if isinstance(value, (list, tuple)):
                getattr(body, name).extend(value)
            elif hasattr(value, "SerializeToString"):
                getattr(body, name).CopyFrom(value)
            else:
                setattr(body, name, value)
        return request

    def send(self, kind, **fields):
        """Sends without waiting. Returns the op_id."""
        return self.send_made(self.make(kind, **fields))

    def send_made(self, request):
        self.send_bytes(request.SerializeToString())
        return request.request_metadata.op_id

    def send_bytes(self, data):
        self._requests.put(data)

    def answer(self, op_id, seconds=240):
        with self._arrived:
            assert self._arrived.wait_for(
                lambda: op_id in self._answers or self.error is not None, seconds
            ), f"no answer to {op_id} within {seconds} s"
            if op_id not in self._answers:
                raise self.error
            answer = self._answers.pop(op_id)
        if answer.WhichOneof("response") is None:
            raise Refused(answer.response_metadata.status)
        return answer

    def call(self, kind, seconds=240, **fields):
        return self.answer(self.send(kind, **fields), seconds)

    # ---- what tests do often ----

    def single_device(self, device=0):
        sharding = message("xla.ifrt.SingleDeviceShardingProto")(
            device_id=device, memory_kind="device")
        out = message("xla.ifrt.ShardingProto")()
        out.serialized_sharding.type_name = "xla::ifrt::SingleDeviceSharding"
        out.serialized_sharding.data = sharding.SerializeToString()
        return out

    def store(self, handle, data, session_id=None, announced=None):
        """Calls HostBufferStore; raises grpc.RpcError."""
        metadata = message("GrpcHostBufferStoreMetadata")(
            session_id=self.id if session_id is None else session_id, handle=handle,
            buffer_size=len(data) if announced is None else announced)
        chunk = message("GrpcHostBufferStoreRequest")
        step = 1 << 20
        self.channel.stream_unary(
            SERVICE + "HostBufferStore",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=message("GrpcHostBufferStoreResponse").FromString,
        )(
            (chunk(data=data[at : at + step]) for at in range(0, max(len(data), 1), step)),
            metadata=[("ifrt-proxy-grpc-host-buffer-store-metadata-bin",
                       metadata.SerializeToString())],
            timeout=240,
        )

    def lookup(self, handle, session_id=None):
        """Calls HostBufferLookup; returns the bytes, or raises grpc.RpcError."""
        request = message("GrpcHostBufferLookupRequest")(
            session_id=self.id if session_id is None else session_id, handle=handle)
        parts = self.channel.unary_stream(
            SERVICE + "HostBufferLookup",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=message("GrpcHostBufferLookupResponse").FromString,
        )(request, timeout=240)
        return b"".join(part.data for part in parts)

    def delete_buffer(self, handle, session_id=None):
        request = message("GrpcHostBufferDeleteRequest")(
            session_id=self.id if session_id is None else session_id, handle=handle)
        self.channel.unary_unary(
            SERVICE + "HostBufferDelete",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=message("GrpcHostBufferDeleteResponse").FromString,
        )(request, timeout=240)

    def put(self, handle, values, device=0):
        """Makes an f32 vector from a numpy array, as `handle`; the host buffer has the same id."""
        self.store(handle, values.tobytes())
        self.call(
            "make_array_from_host_buffer_request",
            dtype=message("xla.ifrt.DTypeProto")(kind=F32),
            shape=message("xla.ifrt.ShapeProto")(dims=list(values.shape)),
            sharding=self.single_device(device), host_buffer_handle=handle, array_handle=handle,
        )

    def get(self, handle, buffer):
        """Returns the bytes of an array, by way of host buffer `buffer`."""
        self.call("copy_to_host_buffer_request", array_handle=handle, host_buffer_handle=buffer)
        try:
            return self.lookup(buffer)
        finally:
            self.delete_buffer(buffer)

    def ask_compile(self, program, devices=(0,), change=None):
        """Sends a program to compile, with one partition per device. Returns the op_id. `change`
        may edit the options."""
        options = message("xla.ifrt.XlaCompileOptionsProto")()
        build = options.compile_options.executable_build_options
        build.num_replicas, build.num_partitions = 1, len(devices)
        build.use_spmd_partitioning = build.use_shardy_partitioner = len(devices) > 1
        build.device_ordinal = -1
        build.device_assignment.replica_count = 1
        build.device_assignment.computation_count = len(devices)
        for device in devices:
            build.device_assignment.computation_devices.add(replica_device_ids=[device])
        if change is not None:
            change(options.compile_options)
        serialized = message("xla.ifrt.Serialized")
        return self.send(
            "compile_request",
            program=serialized(type_name="xla::ifrt::XlaProgram", data=program),
            compile_options=serialized(
                type_name="xla::ifrt::XlaCompileOptions", data=options.SerializeToString()),
        )

    def compile(self, program, device=0, seconds=240):
        """Compiles a program (StableHLO artifact) for one device. Returns its handle."""
        done = self.answer(self.ask_compile(program, [device]), seconds).compile_response
        self.call("check_future_request", future_handle=done.ready_future_handle)
        return done.loaded_executable_handle

    def execute(self, executable, args, results):
        """Sends one execution. Returns the op_id."""
        return self.send("loaded_executable_execute_request", loaded_executable_handle=executable,
                         args_handles=args, result_array_handle=results)
