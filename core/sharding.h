// SPDX-License-Identifier: Apache-2.0
// How an array is cut into shards, and on which virtual devices they lie. A pure value. Follows
// IFRT's Sharding types and XLA's HloSharding tile assignment (xla_data.proto, OpSharding).
#ifndef FAIRWAY_CORE_SHARDING_H_
#define FAIRWAY_CORE_SHARDING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/shared_vector.h"
#include "base/status.h"
#include "core/shape.h"

namespace fairway {

// A box inside an array: its origin and its extents.
struct IndexDomain {
  std::vector<int64_t> origin;
  Shape shape;
  friend bool operator==(const IndexDomain&, const IndexDomain&) = default;
};

// A sharding: the cut of an array into shards, and one virtual device per shard. Immutable; copies
// share their lists.
class Sharding {
 public:
  enum class Kind : uint8_t {
    kSingleDevice,
    kTiled,  // every shard is one tile of a grid over the array; several devices may hold the same
             // tile
    kConcreteEven,  // IFRT ConcreteEvenSharding: shards of one shape, positions unknown
    kConcrete,      // IFRT ConcreteSharding: a shape for every shard, positions unknown
    kOpaque,        // devices only
  };

  Sharding() = default;  // no device; not usable

  static Sharding SingleDevice(int32_t device, std::string memory_kind = {});
  // The whole array on each device.
  static Sharding Replicated(std::vector<int32_t> devices, std::string memory_kind = {});
  // `tiles`: pieces per dimension (its size is the array's rank; empty means replicated at any
  // rank). `tile_of[i]`: row-major index of the tile on devices[i]. INVALID_ARGUMENT: sizes differ,
  // an extent < 1, or a tile index out of range.
  static absl::StatusOr<Sharding> Tiled(std::vector<int32_t> devices, std::vector<int64_t> tiles,
                                        std::vector<int64_t> tile_of, std::string memory_kind = {});
  static Sharding ConcreteEven(std::vector<int32_t> devices, Shape shard_shape, bool replicated,
                               std::string memory_kind = {});
  // ConcreteEven with shards whose contents are not pieces of the array, but for example parts of a
  // sum (unreduced or manual axes). contents[i]: positions with equal numbers hold the same. Two
  // such shardings are the same cut only if their contents are equal too.
  static Sharding PerDevice(std::vector<int32_t> devices, Shape shard_shape,
                            std::vector<int64_t> contents, std::string memory_kind = {});
  static absl::StatusOr<Sharding> Concrete(std::vector<int32_t> devices,
                                           std::vector<Shape> shard_shapes,
                                           std::string memory_kind = {});
  static Sharding Opaque(std::vector<int32_t> devices, std::string memory_kind = {});

  Kind kind() const { return kind_; }
  // The session's virtual device ids, one per shard, in the order of the shards.
  const std::vector<int32_t>& devices() const { return devices_; }
  // Empty: the device's default memory.
  const std::string& memory_kind() const { return memory_kind_; }
  int num_shards() const { return static_cast<int>(devices_.size()); }
  // Returns whether every shard is the whole array.
  bool fully_replicated() const;
  const std::vector<int64_t>& tiles() const { return tiles_; }
  const std::vector<int64_t>& tile_of() const { return tile_of_; }
  // Returns whether PerDevice made it.
  bool per_device() const { return kind_ == Kind::kConcreteEven && !tile_of_.empty(); }

  // Returns the shape of shard `i` of an array of shape `global`; the last tiles of an uneven cut
  // are smaller, or empty. INVALID_ARGUMENT: ranks differ, or the kind gives no shapes (opaque).
  absl::StatusOr<Shape> ShardShape(const Shape& global, int i) const;
  // Returns the part of the array that shard `i` is. INVALID_ARGUMENT as above, and for concrete
  // kinds.
  absl::StatusOr<IndexDomain> Domain(const Shape& global, int i) const;

  // Returns the same cut over other devices. INVALID_ARGUMENT: their number differs.
  absl::StatusOr<Sharding> WithDevices(std::vector<int32_t> devices, std::string memory_kind) const;
  // Returns the same cut over the devices of `other`; the two share the list from then on.
  absl::StatusOr<Sharding> OnDevicesOf(const Sharding& other, std::string memory_kind) const;
  // Returns the sharding of shard `i` alone.
  Sharding OfShard(int i) const { return SingleDevice(devices_[i], memory_kind_); }

  friend bool operator==(const Sharding&, const Sharding&) = default;

 private:
  Kind kind_ = Kind::kOpaque;
  bool replicated_ = false;
  // Shared by copies: a program may have one for each of 100,000 values.
  SharedVector<int32_t> devices_;
  std::string memory_kind_;
  SharedVector<int64_t> tiles_;
  SharedVector<int64_t> tile_of_;     // PerDevice: contents
  SharedVector<Shape> shard_shapes_;  // one (even) or one per shard (concrete)
};

// dtype, global shape and sharding of an array; the layout is always dense, major to minor.
struct ArraySpec {
  DType dtype = DType::kInvalid;
  Shape shape;
  Sharding sharding;
  friend bool operator==(const ArraySpec&, const ArraySpec&) = default;
};

}  // namespace fairway

#endif  // FAIRWAY_CORE_SHARDING_H_
