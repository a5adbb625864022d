// SPDX-License-Identifier: Apache-2.0
// Computes from which boxes of an array's shards the shards of another cut are made. Pure.
#ifndef FAIRWAY_CORE_RESHARD_H_
#define FAIRWAY_CORE_RESHARD_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "core/box.h"
#include "core/sharding.h"

namespace fairway {

// Box `from` of shard `source` becomes box `to` of a shard of the other cut. Both have the same
// extents and are not empty.
struct ShardPiece {
  int32_t source = 0;
  // true: `source` is a new shard, made on the same executor, with the same part of the array.
  bool made = false;
  Box from;
  Box to;
};

// The plan of one resharding. Each byte goes to an executor once, however many of its devices want
// it: of the new shards there with the same part of the array, the first is made of bytes from
// elsewhere, and the others are copies of it.
class Resharding {
 public:
  struct Place {
    ExecutorId executor;
    DeviceId device;
    friend auto operator<=>(const Place&, const Place&) = default;
  };

  // `sources`, `targets`: the places of the old and of the new shards. Takes time in proportion to
  // the number of shards. INVALID_ARGUMENT: the element type has no bytes; a sharding does not give
  // the positions of its shards (contents per device, opaque, concrete); its rank is not that of
  // the array; or the shards do not cover the array.
  static absl::StatusOr<Resharding> Plan(DType dtype, const Shape& shape, const Sharding& from,
                                         const Sharding& to, const std::vector<Place>& sources,
                                         const std::vector<Place>& targets);

  // Returns the pieces of new shard `out`, which together fill it; none if it is empty. If several
  // shards have the same part of the array, it takes the nearest: one on its device, else one on
  // its executor, else one of the others in turn, so that not all are read from one. Call it once
  // for each shard, in ascending order. Takes time in proportion to the number of pieces.
  std::vector<ShardPiece> PiecesOf(int32_t out);

 private:
  struct Holder {
    Place place;
    int32_t shard = 0;
    friend auto operator<=>(const Holder&, const Holder&) = default;
  };
  struct Tile {
    IndexDomain domain;
    std::vector<Holder> holders;  // ascending
    std::vector<int32_t> shards;  // shards of the holders, ascending
    size_t turn = 0;
  };
  struct Target {
    Place place;
    int32_t domain = 0;      // in domains_
    int32_t first = 0;       // the first new shard on its executor with that part
    bool from_else = false;  // some of that first shard comes from another executor
  };
  // Returns the tile's shard that `place` should read, and whether it lies on that executor.
  static std::pair<int32_t, bool> Nearest(Tile& tile, const Place& place);
  absl::Status Index(const Shape& shape);
  std::vector<ShardPiece> Pieces(Target& target);

  int64_t element_bytes_ = 0;
  std::vector<Tile> tiles_;  // of the source, none empty, row-major
  // For each dimension: where the tiles begin, ascending, and the number of tiles in all later
  // dimensions.
  std::vector<std::vector<int64_t>> starts_;
  std::vector<int64_t> strides_;
  std::vector<IndexDomain> domains_;  // the different parts of the array among the new shards
  std::vector<Target> targets_;
};

}  // namespace fairway

#endif  // FAIRWAY_CORE_RESHARD_H_
