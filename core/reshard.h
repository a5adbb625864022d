// SPDX-License-Identifier: Apache-2.0
// From which boxes of an array's shards the shards of another cut of it are made. Pure.
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

// `from` of shard `source` of the one is `to` of a shard of the other; same extents, not empty.
struct ShardPiece {
  int32_t source = 0;
  // `source` is a shard to make: another one on the same executor with the same part of the array.
  bool made = false;
  Box from;
  Box to;
};

// Each byte goes to an executor once, however many of its devices want it: of the shards there with
// the same part of the array the first is made of what comes from elsewhere, the others of that.
class Resharding {
 public:
  struct Place {
    ExecutorId executor;
    DeviceId device;
    friend auto operator<=>(const Place&, const Place&) = default;
  };

  // `sources`, `targets`: where the shards lie and are to lie. Takes as long as there are shards.
  // INVALID_ARGUMENT: the element type has no bytes, or a sharding does not tell where its shards
  // lie (contents per device, opaque, concrete), or its rank is not that of the array, or the
  // shards of the array are not all of it.
  static absl::StatusOr<Resharding> Plan(DType dtype, const Shape& shape, const Sharding& from,
                                         const Sharding& to, const std::vector<Place>& sources,
                                         const std::vector<Place>& targets);

  // The pieces of shard `out`, which together fill it; none when it is empty. Of several shards
  // with the same part of the array the nearest is taken: on its device, else on its executor, else
  // of those elsewhere another one each time, so that not all are read from one. To be asked once
  // for each shard, in ascending order. Takes as long as there are pieces.
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
    std::vector<int32_t> shards;  // of them, ascending
    size_t turn = 0;
  };
  struct Target {
    Place place;
    int32_t domain = 0;      // in domains_
    int32_t first = 0;       // the first shard on its executor with that part
    bool from_else = false;  // of that one: some of it comes from another executor
  };
  // The tile's shard to read for `place`, and whether it lies on that executor.
  static std::pair<int32_t, bool> Nearest(Tile& tile, const Place& place);
  absl::Status Index(const Shape& shape);
  std::vector<ShardPiece> Pieces(Target& target);

  int64_t element_bytes_ = 0;
  std::vector<Tile> tiles_;  // of the source, none empty, row-major
  // Per dimension where the tiles begin, ascending, and how many there are in all behind it.
  std::vector<std::vector<int64_t>> starts_;
  std::vector<int64_t> strides_;
  std::vector<IndexDomain> domains_;  // parts of the array that are asked for
  std::vector<Target> targets_;
};

}  // namespace fairway

#endif  // FAIRWAY_CORE_RESHARD_H_
