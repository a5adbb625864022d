// SPDX-License-Identifier: Apache-2.0
#include "fairway/session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/host.h"
#include "base/status.h"
#include "base/utf8.h"
#include "client/cpp/access.h"
#include "client/cpp/host_fetch.h"

namespace fairway::client {
namespace {

// Shards of up to this size travel inside the request.
constexpr size_t kInlineBytes = 64 << 10;

// Returns whether the box's bytes lie together.
bool Together(const Box& box) {
  size_t d = 0;
  while (d < box.dims.size() && box.extents[d] == 1) ++d;
  for (++d; d < box.dims.size(); ++d) {
    if (box.extents[d] != box.dims[d]) return false;
  }
  return true;
}

size_t OffsetOf(const Box& box) {
  int64_t offset = 0;
  for (size_t d = 0; d < box.dims.size(); ++d) offset = offset * box.dims[d] + box.origin[d];
  return static_cast<size_t>(offset * box.element_bytes);
}

// Returns the bytes of one tile in place, or a copy of them.
Upload BytesOf(const HostBytes& host, const Box& box) {
  Upload out;
  out.size = static_cast<size_t>(box.bytes());
  const char* data = static_cast<const char*>(host.data);
  const bool together = Together(box);
  if (together && (host.keep_alive != nullptr || out.size <= kInlineBytes)) {
    out.keep_alive = host.keep_alive;
    out.data = data + OffsetOf(box);
    return out;
  }
  const std::shared_ptr<char[]> copy(new char[out.size]);
  if (together) {
    std::memcpy(copy.get(), data + OffsetOf(box), out.size);
  } else {
    CopyBox(box, data, box.Alone(), copy.get());
  }
  out.data = copy.get();
  out.keep_alive = copy;
  return out;
}

// Returns for each shard the tile that has its bytes.
absl::StatusOr<std::vector<int32_t>> TileOfShard(const ::fairway::ArraySpec& spec,
                                                 const std::vector<Tile>& tiles) {
  std::vector<int32_t> out;
  for (int i = 0; i < spec.sharding.num_shards(); ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(const IndexDomain domain, spec.sharding.Domain(spec.shape, i));
    const auto tile = std::find_if(tiles.begin(), tiles.end(), [&](const Tile& t) {
      return t.box.origin == domain.origin && t.box.extents == domain.shape.dims;
    });
    out.push_back(static_cast<int32_t>(tile - tiles.begin()));
  }
  return out;
}

// `fill` writes the request that makes an executable with the given handle. `error` is that of the
// program.
template <typename Fill>
Future<Result<Executable>> Compile(const std::shared_ptr<Connection>& connection,
                                   const Status& error, const Fill& fill) {
  Promise<Result<Executable>> promise;
  if (!error.ok()) {
    promise.Set(error);
    return promise.future();
  }
  const uint64_t handle = connection->NewHandles(1);
  connection->Ask(
      [promise, connection, handle](const v1::Answer& answer) {
        if (answer.has_error()) {
          promise.Set(FromError(answer.error()));
          return true;
        }
        const v1::Compiled& compiled = answer.compiled();
        auto state = std::make_shared<ExecutableState>();
        state->connection = connection;
        state->handle = handle;
        state->name = compiled.name();
        for (const v1::ArraySpec& spec : compiled.parameters())
          state->parameters.push_back(FromProto(spec));
        for (const v1::ArraySpec& spec : compiled.results()) {
          state->results.push_back(FromProto(spec));
          state->shared_results.push_back(std::make_shared<ArraySpec>(state->results.back()));
        }
        state->donated.assign(compiled.donated().begin(), compiled.donated().end());
        state->memory = {compiled.memory().generated_code(), compiled.memory().argument(),
                         compiled.memory().output(), compiled.memory().temp()};
        state->cost = {compiled.cost().begin(), compiled.cost().end()};
        promise.Set(Access::Make(std::move(state)));
        return true;
      },
      [&](v1::Request& request) { fill(request, handle); });
  return promise.future();
}

}  // namespace

Session::Session(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&& other) noexcept {
  if (this != &other) {
    Close();
    connection_ = std::move(other.connection_);
  }
  return *this;
}
Session::~Session() { Close(); }

Result<Session> Connect(const std::string& address, const ConnectOptions& options) {
  const auto host_port = ControllerAddress(address);
  if (!host_port.ok()) return FromAbsl(host_port.status());
  Result<std::shared_ptr<Connection>> connection = Connection::Open(*host_port, options);
  if (!connection.ok()) return connection.status();
  return Access::Make(*std::move(connection));
}

const std::vector<Slice>& Session::slices() const { return connection_->slices(); }
const std::vector<Device>& Session::devices() const { return connection_->devices(); }
const std::string& Session::server() const { return connection_->server(); }
Status Session::status() const { return connection_->status(); }

void Session::Close() {
  if (connection_ != nullptr) connection_->Close();
}

Array Session::Put(const HostBytes& bytes, const Sharding& sharding) {
  auto spec = std::make_shared<ArraySpec>(ArraySpec{bytes.dtype, bytes.shape, sharding});
  const auto prepare =
      [&]() -> absl::StatusOr<std::pair<std::vector<Upload>, std::vector<int32_t>>> {
    FAIRWAY_ASSIGN_OR_RETURN(const ::fairway::ArraySpec core, ToCore(*spec));
    FAIRWAY_ASSIGN_OR_RETURN(const int64_t size, ByteSize(core.dtype, core.shape));
    if (bytes.data == nullptr && size > 0)
      return InvalidArgument("put: HostBytes::data is null, but {} has {} bytes", ToString(*spec),
                             size);
    FAIRWAY_ASSIGN_OR_RETURN(std::vector<Tile> tiles, TilesOf(core));
    FAIRWAY_ASSIGN_OR_RETURN(std::vector<int32_t> tile_of, TileOfShard(core, tiles));
    std::vector<Upload> parts;
    for (const Tile& tile : tiles) parts.push_back(BytesOf(bytes, tile.box));
    return std::make_pair(std::move(parts), std::move(tile_of));
  };
  auto prepared = prepare();
  if (!prepared.ok()) return ErrorArray(std::move(spec), FromAbsl(prepared.status()));
  std::vector<Upload>& parts = prepared->first;
  const std::vector<int32_t>& tile_of = prepared->second;
  const uint64_t handle = connection_->NewHandles(1);
  std::vector<Upload> uploads;
  const Status sent = connection_->Send([&](v1::Request& request) {
    v1::Put* put = request.mutable_put();
    put->set_array(handle);
    ToProto(*spec, put->mutable_spec());
    put->mutable_bytes_of_shard()->Assign(tile_of.begin(), tile_of.end());
    for (Upload& part : parts) {
      v1::HostBytes* given = put->add_bytes();
      if (part.size <= kInlineBytes) {
        given->set_data(part.data, part.size);
      } else {
        part.number = connection_->NewHandles(1);
        given->set_upload(part.number);
        given->set_size(static_cast<int64_t>(part.size));
        uploads.push_back(std::move(part));
      }
    }
  });
  if (sent.ok() && !uploads.empty()) connection_->Send(std::move(uploads));
  return NewArray(connection_, handle, std::move(spec), sent);
}

Array Session::MakeError(const ArraySpec& spec, const Status& error) {
  auto shared = std::make_shared<ArraySpec>(spec);
  if (error.ok())
    return ErrorArray(std::move(shared),
                      Status(StatusCode::kInvalidArgument,
                             "an error array needs an error, but its status is OK"));
  // The controller gets the error too, so that of a program with several results only the dependent
  // ones fail.
  const uint64_t handle = connection_->NewHandles(1);
  const Status sent = connection_->Send([&](v1::Request& request) {
    v1::MakeError* make = request.mutable_make_error();
    make->set_array(handle);
    ToProto(spec, make->mutable_spec());
    make->mutable_error()->set_code(static_cast<int>(error.code()));
    make->mutable_error()->set_text(ValidUtf8(error.message()));
  });
  return NewArray(connection_, handle, std::move(shared), sent);
}

Array Session::Assemble(const ArraySpec& spec, std::span<const Array> shards) {
  auto shared = std::make_shared<ArraySpec>(spec);
  for (const Array& shard : shards) {
    if (Status status = Access::CheckUse(shard, connection_.get()); !status.ok())
      return ErrorArray(std::move(shared), std::move(status));
  }
  const uint64_t handle = connection_->NewHandles(1);
  const Status sent = connection_->Send([&](v1::Request& request) {
    v1::Assemble* assemble = request.mutable_assemble();
    for (const Array& shard : shards) assemble->add_arrays(Access::Of(shard)->handle);
    assemble->set_result(handle);
    ToProto(spec, assemble->mutable_spec());
  });
  return NewArray(connection_, handle, std::move(shared), sent);
}

Future<Result<Executable>> Session::CompileStableHlo(std::string_view program,
                                                     const std::vector<int>& devices,
                                                     const CompileOptions& options) {
  return client::Compile(connection_, Status(), [&](v1::Request& request, uint64_t handle) {
    v1::Compile* compile = request.mutable_compile();
    compile->set_executable(handle);
    compile->set_stablehlo(program.data(), program.size());
    compile->mutable_devices()->Assign(devices.begin(), devices.end());
    v1::CompileOptions* out = compile->mutable_options();
    out->set_num_replicas(options.num_replicas);
    out->set_num_partitions(options.num_partitions);
    out->set_use_spmd_partitioning(options.use_spmd_partitioning);
    out->set_use_shardy_partitioner(options.use_shardy_partitioner);
    for (const auto& [name, value] : options.compiler_options) {
      v1::CompilerOption* option = out->add_compiler_options();
      option->set_name(ValidUtf8(name));
      if (const auto* text = std::get_if<std::string>(&value)) option->set_text(ValidUtf8(*text));
      if (const auto* flag = std::get_if<bool>(&value)) option->set_flag(*flag);
      if (const auto* integer = std::get_if<int64_t>(&value)) option->set_integer(*integer);
      if (const auto* number = std::get_if<double>(&value)) option->set_number(*number);
    }
  });
}

Future<Result<Executable>> Session::Compile(const NativeProgram& program,
                                            const std::vector<int>& devices) {
  return client::Compile(
      connection_, Access::ErrorOf(program), [&](v1::Request& request, uint64_t handle) {
        request.mutable_compile()->set_executable(handle);
        *request.mutable_compile()->mutable_native() = Access::Of(program);
        request.mutable_compile()->mutable_devices()->Assign(devices.begin(), devices.end());
      });
}

Future<Result<Executable>> Session::Bind(const ProgramBuilder& program,
                                         const std::vector<std::vector<int>>& devices,
                                         const BindOptions& options) {
  return client::Compile(connection_, Access::ErrorOf(program),
                         [&](v1::Request& request, uint64_t handle) {
                           v1::BindProgram* bind = request.mutable_bind_program();
                           bind->set_executable(handle);
                           *bind->mutable_program()->mutable_program() = Access::Of(program);
                           for (const std::vector<int>& slice : devices)
                             bind->mutable_program()->add_slices()->mutable_devices()->Assign(
                                 slice.begin(), slice.end());
                           bind->mutable_program()->set_sequential(options.sequential);
                         });
}

Future<Status> Session::Ready(std::span<const Array> arrays) {
  Promise<Status> promise;
  Status status;
  // Finds the first failed one in the given order; arrays that the controller does not know may
  // come later.
  size_t known = 0;
  while (known < arrays.size() && status.ok()) {
    status = Access::CheckUse(arrays[known], connection_.get());
    if (status.ok()) ++known;
  }
  connection_->Ask(
      [promise, status](const v1::Answer& answer) {
        promise.Set(answer.has_error() ? FromError(answer.error()) : status);
        return true;
      },
      [&](v1::Request& request) {
        v1::Watch* watch = request.mutable_watch();
        for (size_t i = 0; i < known; ++i) watch->add_arrays(Access::Of(arrays[i])->handle);
      });
  return promise.future();
}

Future<Status> Session::Ping() {
  Promise<Status> promise;
  connection_->Ask(
      [promise](const v1::Answer& answer) {
        promise.Set(StatusOf(answer));
        return true;
      },
      [](v1::Request& request) { request.mutable_ping(); });
  return promise.future();
}

}  // namespace fairway::client
