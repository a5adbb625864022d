// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>

#include "base/status.h"
#include "base/utf8.h"
#include "client/cpp/access.h"
#include "wire/client_values.h"

namespace fairway::client {

std::string Status::ToString() const {
  const absl::Status same(static_cast<absl::StatusCode>(code_), message_);
  return Describe(same);
}

void DieOf(const Status& status) {
  std::fprintf(stderr, "fairway: the value of an error was taken: %s\n", status.ToString().c_str());
  std::abort();
}

std::string Name(DType dtype) {
  return std::string(::fairway::Name(static_cast<::fairway::DType>(dtype)));
}

int64_t BytesPerElement(DType dtype) {
  return ::fairway::BytesPerElement(static_cast<::fairway::DType>(dtype));
}

std::string ToString(const ArraySpec& spec) {
  return ::fairway::ToString(static_cast<::fairway::DType>(spec.dtype),
                             ::fairway::Shape{spec.shape});
}

Status FromError(const v1::Error& error) {
  return {static_cast<StatusCode>(error.code()), error.text()};
}

Status StatusOf(const v1::Answer& answer) {
  return answer.has_error() ? FromError(answer.error()) : Status();
}

Status FromAbsl(const absl::Status& status) {
  return {static_cast<StatusCode>(status.code()), Text(status)};
}

void ToProto(const Sharding& sharding, v1::Sharding* proto) {
  proto->mutable_devices()->Assign(sharding.devices.begin(), sharding.devices.end());
  proto->mutable_tiles()->Assign(sharding.tiles.begin(), sharding.tiles.end());
  proto->mutable_tile_of()->Assign(sharding.tile_of.begin(), sharding.tile_of.end());
  proto->set_memory_kind(ValidUtf8(sharding.memory_kind));
}

void ToProto(const ArraySpec& spec, v1::ArraySpec* proto) {
  proto->set_dtype(static_cast<int32_t>(spec.dtype));
  proto->mutable_dims()->Assign(spec.shape.begin(), spec.shape.end());
  ToProto(spec.sharding, proto->mutable_sharding());
}

ArraySpec FromProto(const v1::ArraySpec& proto) {
  ArraySpec spec;
  spec.dtype = static_cast<DType>(proto.dtype());
  spec.shape.assign(proto.dims().begin(), proto.dims().end());
  const v1::Sharding& sharding = proto.sharding();
  spec.sharding.devices.assign(sharding.devices().begin(), sharding.devices().end());
  spec.sharding.tiles.assign(sharding.tiles().begin(), sharding.tiles().end());
  spec.sharding.tile_of.assign(sharding.tile_of().begin(), sharding.tile_of().end());
  spec.sharding.memory_kind = sharding.memory_kind();
  return spec;
}

absl::StatusOr<::fairway::ArraySpec> ToCore(const ArraySpec& spec) {
  v1::ArraySpec proto;
  ToProto(spec, &proto);
  return ArraySpecFromProto(proto);
}

}  // namespace fairway::client
