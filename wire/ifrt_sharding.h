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
    kPerDevice,  // MANUAL, UNREDUCED over some axes: of one tile positions hold different contents
  };
  Kind kind = Kind::kReplicated;
  // Pieces per dimension; empty when no dimension is cut.
  std::vector<int64_t> tiles;
  // Row-major tile at each position; empty when replicated. kPerDevice: tile * number of positions
  // + the first position that holds the same, so that equal cuts are equal here.
  std::vector<int64_t> tile_of;
  friend bool operator==(const TileAssignment&, const TileAssignment&) = default;
};

// INVALID_ARGUMENT: the assignment is not a permutation of the positions, sizes contradict each
// other, or the type is no sharding of one array (TUPLE). UNIMPLEMENTED: unreduced by anything but
// a sum.
absl::StatusOr<TileAssignment> TilesFromOpSharding(const xla::OpSharding& sharding,
                                                   int num_devices);

// The OpSharding of tiles that each lie on equally many devices. INVALID_ARGUMENT otherwise, and
// when contents are per device.
absl::StatusOr<xla::OpSharding> OpShardingFromTiles(const TileAssignment& tiles, int num_devices);

// Of one sharding. What executors take is bounded by the same number (link_commands.cc).
inline constexpr int kMaxDevices = 1 << 16;

// `shape`: of the array. UNIMPLEMENTED: a type name we do not know, or a ShardingParam with
// unreduced axes. INVALID_ARGUMENT: undecodable
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
