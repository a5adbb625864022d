// SPDX-License-Identifier: Apache-2.0
#include "core/sharding.h"

#include <algorithm>
#include <utility>

namespace fairway {

Sharding Sharding::SingleDevice(int32_t device, std::string memory_kind) {
  Sharding s;
  s.kind_ = Kind::kSingleDevice;
  s.replicated_ = true;
  s.devices_ = std::vector<int32_t>{device};
  s.memory_kind_ = std::move(memory_kind);
  return s;
}

Sharding Sharding::Replicated(std::vector<int32_t> devices, std::string memory_kind) {
  Sharding s;
  s.kind_ = Kind::kTiled;
  s.replicated_ = true;
  s.tile_of_ = std::vector<int64_t>(devices.size(), 0);
  s.devices_ = std::move(devices);
  s.memory_kind_ = std::move(memory_kind);
  return s;
}

absl::StatusOr<Sharding> Sharding::Tiled(std::vector<int32_t> devices, std::vector<int64_t> tiles,
                                         std::vector<int64_t> tile_of, std::string memory_kind) {
  if (tile_of.size() != devices.size())
    return InvalidArgument("tiled sharding names {} tiles for {} devices", tile_of.size(),
                           devices.size());
  int64_t count = 1;
  for (const int64_t n : tiles) {
    if (n < 1 || __builtin_mul_overflow(count, n, &count))
      return InvalidArgument("tiled sharding cuts a dimension into {} pieces", n);
  }
  for (const int64_t tile : tile_of) {
    if (tile < 0 || tile >= count)
      return InvalidArgument("tiled sharding places tile {} of {}", tile, count);
  }
  Sharding s;
  s.kind_ = Kind::kTiled;
  s.replicated_ = count == 1;
  s.devices_ = std::move(devices);
  s.memory_kind_ = std::move(memory_kind);
  s.tiles_ = std::move(tiles);
  s.tile_of_ = std::move(tile_of);
  return s;
}

Sharding Sharding::ConcreteEven(std::vector<int32_t> devices, Shape shard_shape, bool replicated,
                                std::string memory_kind) {
  Sharding s;
  s.kind_ = Kind::kConcreteEven;
  s.replicated_ = replicated;
  s.devices_ = std::move(devices);
  s.memory_kind_ = std::move(memory_kind);
  s.shard_shapes_ = std::vector<Shape>{std::move(shard_shape)};
  return s;
}

Sharding Sharding::PerDevice(std::vector<int32_t> devices, Shape shard_shape,
                             std::vector<int64_t> contents, std::string memory_kind) {
  Sharding s = ConcreteEven(std::move(devices), std::move(shard_shape), /*replicated=*/false,
                            std::move(memory_kind));
  s.tile_of_ = std::move(contents);
  return s;
}

absl::StatusOr<Sharding> Sharding::Concrete(std::vector<int32_t> devices,
                                            std::vector<Shape> shard_shapes,
                                            std::string memory_kind) {
  if (shard_shapes.size() != devices.size())
    return InvalidArgument("concrete sharding gives {} shard shapes for {} devices",
                           shard_shapes.size(), devices.size());
  Sharding s;
  s.kind_ = Kind::kConcrete;
  s.devices_ = std::move(devices);
  s.memory_kind_ = std::move(memory_kind);
  s.shard_shapes_ = std::move(shard_shapes);
  return s;
}

Sharding Sharding::Opaque(std::vector<int32_t> devices, std::string memory_kind) {
  Sharding s;
  s.kind_ = Kind::kOpaque;
  s.devices_ = std::move(devices);
  s.memory_kind_ = std::move(memory_kind);
  return s;
}

bool Sharding::fully_replicated() const { return replicated_; }

absl::StatusOr<Shape> Sharding::ShardShape(const Shape& global, int i) const {
  if (i < 0 || i >= num_shards())
    return InvalidArgument("shard {} of a sharding over {} devices", i, num_shards());
  switch (kind_) {
    case Kind::kConcreteEven:
      return shard_shapes_[0];
    case Kind::kConcrete:
      return shard_shapes_[i];
    case Kind::kOpaque:
      if (num_shards() == 1) return global;
      return InvalidArgument("an opaque sharding does not give its shard shapes");
    case Kind::kSingleDevice:
    case Kind::kTiled: {
      FAIRWAY_ASSIGN_OR_RETURN(IndexDomain domain, Domain(global, i));
      return std::move(domain.shape);
    }
  }
  return InvalidArgument("unknown sharding kind");
}

absl::StatusOr<IndexDomain> Sharding::Domain(const Shape& global, int i) const {
  if (i < 0 || i >= num_shards())
    return InvalidArgument("shard {} of a sharding over {} devices", i, num_shards());
  IndexDomain domain{std::vector<int64_t>(global.dims.size(), 0), global};
  if (replicated_ || (kind_ == Kind::kOpaque && num_shards() == 1)) return domain;
  if (per_device())
    return InvalidArgument(
        "its shards are no pieces of the array, because it is unreduced or manual over axes; only "
        "a computation can change that (jax.reshard within one jax.jit), and only the same cut can "
        "be put onto other devices");
  if (kind_ != Kind::kTiled)
    return InvalidArgument("the sharding does not tell where its shards lie");
  if (tiles_.size() != global.dims.size())
    return InvalidArgument("a sharding of rank {} does not fit an array of rank {}", tiles_.size(),
                           global.dims.size());
  int64_t rest = tile_of_[i];
  for (int d = global.rank() - 1; d >= 0; --d) {
    const int64_t index = rest % tiles_[d];
    rest /= tiles_[d];
    const int64_t extent = global.dims[d];
    const int64_t piece = (extent + tiles_[d] - 1) / tiles_[d];
    domain.origin[d] = std::min(extent, index * piece);
    domain.shape.dims[d] = std::min(extent - domain.origin[d], piece);
  }
  return domain;
}

absl::StatusOr<Sharding> Sharding::OnDevicesOf(const Sharding& other,
                                               std::string memory_kind) const {
  if (other.devices_.size() != devices_.size())
    return InvalidArgument("the sharding has {} shards, but {} devices were given", devices_.size(),
                           other.devices_.size());
  Sharding out = *this;
  out.devices_ = other.devices_;
  out.memory_kind_ = std::move(memory_kind);
  return out;
}

absl::StatusOr<Sharding> Sharding::WithDevices(std::vector<int32_t> devices,
                                               std::string memory_kind) const {
  if (devices.size() != devices_.size())
    return InvalidArgument("the sharding has {} shards, but {} devices were given", devices_.size(),
                           devices.size());
  Sharding out = *this;
  out.devices_ = std::move(devices);
  out.memory_kind_ = std::move(memory_kind);
  return out;
}

}  // namespace fairway
