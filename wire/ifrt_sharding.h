// SPDX-License-Identifier: Apache-2.0
// IFRT's ShardingProto and XLA's OpSharding <-> core Sharding.
//
// Sources: xla/python/ifrt/sharding.h, xla/python/pjrt_ifrt/xla_sharding.h, OpSharding in
// xla/xla_data.proto. Every size from outside is bounded by the number of devices in the same
// message before it is used.
#ifndef FAIRWAY_WIRE_IFRT_SHARDING_H_
#define FAIRWAY_WIRE_IFRT_SHARDING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/sharding.h"
#include "ifrt/ifrt.pb.h"
#include "ifrt/xla.pb.h"

namespace fairway {

// How an OpSharding cuts an array over `num_devices` positions of a device list.
struct TileAssignment {
  enum class Kind : uint8_t {
    kReplicated,  // also MAXIMAL: every position holds the whole array
    kTiled,
    kPerDevice,  // MANUAL, UNREDUCED: shards of the array's own shape with contents of their own
  };
  Kind kind = Kind::kReplicated;
  std::vector<int64_t> tiles;    // pieces per dimension; empty unless tiled
  std::vector<int64_t> tile_of;  // row-major tile at each position; empty unless tiled
  friend bool operator==(const TileAssignment&, const TileAssignment&) = default;
};

// INVALID_ARGUMENT: the assignment is not a permutation of the positions, sizes contradict each
// other, or the type is no sharding of one array (TUPLE).
absl::StatusOr<TileAssignment> TilesFromOpSharding(const xla::OpSharding& sharding,
                                                   int num_devices);

// The OpSharding of tiles that each lie on equally many devices. INVALID_ARGUMENT otherwise.
absl::StatusOr<xla::OpSharding> OpShardingFromTiles(const TileAssignment& tiles, int num_devices);

// Of one sharding. What executors take is bounded by the same number (link_commands.cc).
inline constexpr int kMaxDevices = 1 << 16;

// `shape`: of the array. UNIMPLEMENTED: a type name we do not know. INVALID_ARGUMENT: undecodable
// or contradictory, a device that is named twice, or more than kMaxDevices.
absl::StatusOr<Sharding> ShardingFromProto(const xla::ifrt::ShardingProto& proto,
                                           const Shape& shape);
absl::Status ShardingToProto(const Sharding& sharding, const Shape& shape,
                             xla::ifrt::ShardingProto* proto);

// Also checks the byte size (core ByteSize) and, for tiled shardings, that the ranks fit.
absl::StatusOr<ArraySpec> ArraySpecFromProto(const xla::ifrt::ArraySpecProto& proto);
absl::StatusOr<ArraySpec> ArraySpecFromProtos(const xla::ifrt::DTypeProto& dtype,
                                              const xla::ifrt::ShapeProto& shape,
                                              const xla::ifrt::ShardingProto& sharding);

}  // namespace fairway

#endif  // FAIRWAY_WIRE_IFRT_SHARDING_H_
