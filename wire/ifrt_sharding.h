// SPDX-License-Identifier: Apache-2.0
// Converts IFRT's ShardingProto and XLA's OpSharding to core Shardings and back.
//
// Sources: xla/python/ifrt/sharding.h, xla/python/pjrt_ifrt/xla_sharding.h, OpSharding in
// xla/xla_data.proto. The number of devices in a message bounds every size in it before it is used.
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
    // MANUAL, or UNREDUCED over some axes: positions of one tile hold different contents
    kPerDevice,
  };
  Kind kind = Kind::kReplicated;
  // Pieces per dimension; empty if no dimension is cut.
  std::vector<int64_t> tiles;
  // The row-major tile at each position; empty if replicated. For kPerDevice: tile * number of
  // positions + the first position that holds the same, so that equal cuts have equal numbers.
  std::vector<int64_t> tile_of;
  friend bool operator==(const TileAssignment&, const TileAssignment&) = default;
};

// INVALID_ARGUMENT: the assignment is not a permutation of the positions, sizes contradict each
// other, or the type does not describe one array (TUPLE). UNIMPLEMENTED: unreduced by anything but
// a sum.
absl::StatusOr<TileAssignment> TilesFromOpSharding(const xla::OpSharding& sharding,
                                                   int num_devices);

// Returns the OpSharding. INVALID_ARGUMENT: the tiles do not lie on equally many devices, or
// contents are per device.
absl::StatusOr<xla::OpSharding> OpShardingFromTiles(const TileAssignment& tiles, int num_devices);

// The most devices of one sharding. The same number bounds the commands of executors
// (link_commands.cc).
inline constexpr int kMaxDevices = 1 << 16;

// `shape`: of the array. UNIMPLEMENTED: an unknown type name, or a ShardingParam with unreduced
// axes. INVALID_ARGUMENT: undecodable or contradictory, a device named twice, or more than
// kMaxDevices.
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
