// SPDX-License-Identifier: Apache-2.0
// From which boxes of an array's shards the shards of another cut of it are made. Pure.
#ifndef FAIRWAY_CORE_RESHARD_H_
#define FAIRWAY_CORE_RESHARD_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "core/box.h"
#include "core/sharding.h"

namespace fairway {

// `from` of shard `source` of the one is `to` of a shard of the other; same extents, not empty.
struct ShardPiece {
  int32_t source = 0;
  Box from;
  Box to;
};

class Resharding {
 public:
  // INVALID_ARGUMENT: the element type has no bytes, or a sharding does not tell where its shards
  // lie (contents per device, opaque, concrete), or its rank is not that of the array.
  static absl::StatusOr<Resharding> Plan(DType dtype, const Shape& shape, const Sharding& from,
                                         const Sharding& to);

  // The pieces of shard `out`, which together fill it; none when it is empty. Of several shards
  // with the same part of the array the one with the lowest `cost` is taken, and of several such
  // ones another for each `out`, so that not all are read from one device.
  std::vector<ShardPiece> PiecesOf(int32_t out,
                                   const std::function<int64_t(int32_t source)>& cost) const;

 private:
  struct Tile {
    IndexDomain domain;
    std::vector<int32_t> holders;
  };
  int64_t element_bytes_ = 0;
  std::vector<Tile> tiles_;           // of the source, none empty
  std::vector<IndexDomain> domains_;  // of the shards to make
};

}  // namespace fairway

#endif  // FAIRWAY_CORE_RESHARD_H_
