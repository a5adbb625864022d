// SPDX-License-Identifier: Apache-2.0
#include "wire/client_values.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "wire/limits.h"

namespace fairway {
namespace {

// Checks that every device is named once: there is a shard per device.
absl::Status CheckDevices(std::vector<int32_t> devices) {
  if (devices.empty()) return InvalidArgument("a sharding names no device");
  std::sort(devices.begin(), devices.end());
  const auto twice = std::adjacent_find(devices.begin(), devices.end());
  if (twice == devices.end()) return absl::OkStatus();
  return InvalidArgument("a sharding names device {} twice", *twice);
}

}  // namespace

absl::StatusOr<Sharding> ShardingFromProto(const v1::Sharding& proto, int rank) {
  std::vector<int32_t> devices(proto.devices().begin(), proto.devices().end());
  std::vector<int64_t> tiles(proto.tiles().begin(), proto.tiles().end());
  std::vector<int64_t> tile_of(proto.tile_of().begin(), proto.tile_of().end());
  FAIRWAY_RETURN_IF_ERROR(CheckDevices(devices));
  if (tiles.empty()) {
    if (!tile_of.empty()) return InvalidArgument("a sharding places tiles but names none");
    if (devices.size() == 1) return Sharding::SingleDevice(devices[0], proto.memory_kind());
    return Sharding::Replicated(std::move(devices), proto.memory_kind());
  }
  if (static_cast<int>(tiles.size()) != rank)
    return InvalidArgument("a sharding cuts {} dimensions of an array of rank {}", tiles.size(),
                           rank);
  if (tile_of.empty()) {
    int64_t count = 1;
    for (const int64_t n : tiles) {
      if (n < 1 || __builtin_mul_overflow(count, n, &count)) count = -1;
      if (count < 0) break;
    }
    if (count != static_cast<int64_t>(devices.size()))
      return InvalidArgument("a sharding over {} devices has another number of tiles",
                             devices.size());
    tile_of.resize(devices.size());
    std::iota(tile_of.begin(), tile_of.end(), 0);
  }
  return Sharding::Tiled(std::move(devices), std::move(tiles), std::move(tile_of),
                         proto.memory_kind());
}

void ShardingToProto(const Sharding& sharding, v1::Sharding* proto) {
  proto->Clear();
  proto->mutable_devices()->Assign(sharding.devices().begin(), sharding.devices().end());
  proto->set_memory_kind(ValidUtf8(sharding.memory_kind()));
  if (sharding.kind() != Sharding::Kind::kTiled || sharding.fully_replicated()) return;
  proto->mutable_tiles()->Assign(sharding.tiles().begin(), sharding.tiles().end());
  const std::vector<int64_t>& tile_of = sharding.tile_of();
  int64_t count = 1;
  for (const int64_t n : sharding.tiles()) count *= n;
  bool in_order = count == static_cast<int64_t>(tile_of.size());
  for (size_t i = 0; in_order && i < tile_of.size(); ++i)
    in_order = tile_of[i] == static_cast<int64_t>(i);
  if (!in_order) proto->mutable_tile_of()->Assign(tile_of.begin(), tile_of.end());
}

absl::StatusOr<ArraySpec> ArraySpecFromProto(const v1::ArraySpec& proto) {
  const std::optional<DType> dtype = DTypeFromNumber(proto.dtype());
  if (!dtype.has_value() || *dtype == DType::kInvalid)
    return InvalidArgument("element type number {} is unknown", proto.dtype());
  if (BitsInMemory(*dtype) == 0)
    return InvalidArgument("arrays of element type {} have no bytes", Name(*dtype));
  if (proto.dims_size() > kMaxRank)
    return InvalidArgument("a shape of rank {} is larger than the limit of {}", proto.dims_size(),
                           kMaxRank);
  ArraySpec spec;
  spec.dtype = *dtype;
  spec.shape.dims.assign(proto.dims().begin(), proto.dims().end());
  FAIRWAY_RETURN_IF_ERROR(ByteSize(spec.dtype, spec.shape).status());
  FAIRWAY_ASSIGN_OR_RETURN(spec.sharding, ShardingFromProto(proto.sharding(), spec.shape.rank()));
  return spec;
}

void ArraySpecToProto(const ArraySpec& spec, v1::ArraySpec* proto) {
  proto->set_dtype(static_cast<int32_t>(spec.dtype));
  proto->mutable_dims()->Assign(spec.shape.dims.begin(), spec.shape.dims.end());
  ShardingToProto(spec.sharding, proto->mutable_sharding());
}

absl::Status StatusFromError(const v1::Error& error) {
  const bool known =
      error.code() >= 1 && error.code() <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return {known ? static_cast<absl::StatusCode>(error.code()) : absl::StatusCode::kUnknown,
          BoundedText(error.text())};
}

void ErrorFromStatus(const absl::Status& status, v1::Error* error) {
  error->set_code(static_cast<int>(status.code()));
  error->set_text(ValidUtf8(Text(status)));
}

}  // namespace fairway
