// SPDX-License-Identifier: Apache-2.0
#include "fairway/array.h"

#include <utility>

#include "client/cpp/access.h"
#include "client/cpp/host_fetch.h"

namespace fairway::client {
namespace {

v1::CopySemantics ToProto(CopySemantics semantics) {
  switch (semantics) {
    case CopySemantics::kReuse:
      return v1::COPY_SEMANTICS_REUSE;
    case CopySemantics::kCopy:
      return v1::COPY_SEMANTICS_ALWAYS_COPY;
    case CopySemantics::kDonate:
      return v1::COPY_SEMANTICS_DONATE;
  }
  return v1::COPY_SEMANTICS_REUSE;
}

Status NoArray() { return {StatusCode::kInvalidArgument, "an empty Array was used"}; }

template <typename T>
Future<T> Already(T value) {
  Promise<T> promise;
  promise.Set(std::move(value));
  return promise.future();
}

}  // namespace

Status Access::CheckUse(const Array& array, const Connection* connection) {
  if (array.state_ == nullptr) return NoArray();
  if (!array.state_->error.ok()) return array.state_->error;
  if (array.state_->connection.get() != connection)
    return {StatusCode::kInvalidArgument, "an array of another session was used"};
  return Status();
}

Array NewArray(const std::shared_ptr<Connection>& connection, uint64_t handle,
               std::shared_ptr<const ArraySpec> spec, const Status& sent) {
  if (!sent.ok()) return ErrorArray(std::move(spec), sent);
  auto state = std::make_shared<ArrayState>();
  state->connection = connection;
  state->handle = handle;
  state->spec = std::move(spec);
  return Access::Make(std::move(state));
}

Array ErrorArray(std::shared_ptr<const ArraySpec> spec, Status error) {
  auto state = std::make_shared<ArrayState>();
  state->spec = std::move(spec);
  state->error = std::move(error);
  return Access::Make(std::move(state));
}

const ArraySpec& Array::spec() const {
  static const ArraySpec none;
  return state_ == nullptr ? none : *state_->spec;
}

Future<Status> Array::Ready() const {
  if (state_ == nullptr) return Already(NoArray());
  if (!state_->error.ok()) return Already(state_->error);
  Promise<Status> promise;
  state_->connection->Ask(
      [promise](const v1::Answer& answer) {
        promise.Set(StatusOf(answer));
        return true;
      },
      [&](v1::Request& request) { request.mutable_watch()->add_arrays(state_->handle); });
  return promise.future();
}

Future<Result<HostArray>> Array::ToHost() const {
  if (state_ == nullptr) return Already<Result<HostArray>>(NoArray());
  if (!state_->error.ok()) return Already<Result<HostArray>>(state_->error);
  auto fetch = HostFetch::Make(*state_->spec);
  if (!fetch.ok()) return Already<Result<HostArray>>(FromAbsl(fetch.status()));
  Promise<Result<HostArray>> promise;
  const std::shared_ptr<HostFetch> shared = *std::move(fetch);
  state_->connection->Ask(
      [promise, shared](const v1::Answer& answer) {
        if (answer.has_error()) {
          promise.Set(FromError(answer.error()));
          return true;
        }
        Result<bool> complete = shared->Take(answer.fetched());
        if (!complete.ok()) {
          promise.Set(complete.status());
          return true;
        }
        if (*complete) promise.Set(shared->Array());
        return *complete;
      },
      [&](v1::Request& request) {
        request.mutable_fetch()->set_array(state_->handle);
        shared->Name(request.mutable_fetch());
      });
  return promise.future();
}

Array Array::CopyTo(std::vector<int> devices, CopySemantics semantics) const {
  if (state_ == nullptr) return ErrorArray(std::make_shared<ArraySpec>(), NoArray());
  auto spec = std::make_shared<ArraySpec>(*state_->spec);
  spec->sharding.devices = devices;
  if (!state_->error.ok()) return ErrorArray(std::move(spec), state_->error);
  const uint64_t handle = state_->connection->NewHandles(1);
  const Status sent = state_->connection->Send([&](v1::Request& request) {
    v1::Copy* copy = request.mutable_copy();
    copy->add_arrays(state_->handle);
    copy->add_results(handle);
    copy->mutable_devices()->Assign(devices.begin(), devices.end());
    copy->set_semantics(ToProto(semantics));
  });
  return NewArray(state_->connection, handle, std::move(spec), sent);
}

Array Array::Reshard(const Sharding& sharding, CopySemantics semantics) const {
  if (state_ == nullptr) return ErrorArray(std::make_shared<ArraySpec>(), NoArray());
  auto spec = std::make_shared<ArraySpec>(*state_->spec);
  spec->sharding = sharding;
  if (!state_->error.ok()) return ErrorArray(std::move(spec), state_->error);
  const uint64_t handle = state_->connection->NewHandles(1);
  const Status sent = state_->connection->Send([&](v1::Request& request) {
    v1::Reshard* reshard = request.mutable_reshard();
    reshard->add_arrays(state_->handle);
    reshard->add_results(handle);
    client::ToProto(sharding, reshard->add_shardings());
    reshard->set_semantics(ToProto(semantics));
  });
  return NewArray(state_->connection, handle, std::move(spec), sent);
}

std::vector<Array> Array::Shards() const {
  std::vector<Array> out;
  if (state_ == nullptr) return out;
  const ArraySpec& whole = *state_->spec;
  const auto core = ToCore(whole);
  const size_t count = whole.sharding.devices.size();
  const uint64_t first = state_->handle == 0 ? 0 : state_->connection->NewHandles(count);
  Status sent = state_->error;
  if (sent.ok())
    sent = state_->connection->Send([&](v1::Request& request) {
      request.mutable_disassemble()->set_array(state_->handle);
      for (size_t i = 0; i < count; ++i) request.mutable_disassemble()->add_results(first + i);
    });
  for (size_t i = 0; i < count; ++i) {
    auto spec = std::make_shared<ArraySpec>();
    spec->dtype = whole.dtype;
    spec->sharding = {{whole.sharding.devices[i]}, {}, {}, whole.sharding.memory_kind};
    if (core.ok()) {
      const auto shape = core->sharding.ShardShape(core->shape, static_cast<int>(i));
      if (shape.ok()) spec->shape = shape->dims;
    }
    out.push_back(NewArray(state_->connection, first + i, std::move(spec), sent));
  }
  return out;
}

void Array::Delete() const {
  if (state_ == nullptr || state_->handle == 0) return;
  (void)state_->connection->Send(
      [&](v1::Request& request) { request.mutable_delete_()->add_arrays(state_->handle); });
}

}  // namespace fairway::client
