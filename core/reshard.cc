// SPDX-License-Identifier: Apache-2.0
#include "core/reshard.h"

#include <algorithm>
#include <map>
#include <utility>

namespace fairway {

absl::StatusOr<Resharding> Resharding::Plan(DType dtype, const Shape& shape, const Sharding& from,
                                            const Sharding& to, const std::vector<Place>& sources,
                                            const std::vector<Place>& targets) {
  Resharding plan;
  plan.element_bytes_ = BytesPerElement(dtype);
  if (plan.element_bytes_ == 0)
    return InvalidArgument("arrays of element type {} cannot be cut", Name(dtype));
  std::map<std::vector<int64_t>, Tile> by_origin;
  for (int i = 0; i < from.num_shards(); ++i) {
    absl::StatusOr<IndexDomain> domain = from.Domain(shape, i);
    if (!domain.ok()) return Annotate(domain.status(), "the array's sharding");
    if (domain->shape.num_elements() == 0) continue;
    Tile& tile = by_origin[domain->origin];
    tile.holders.push_back({sources[i], i});
    tile.shards.push_back(i);
    tile.domain = *std::move(domain);
  }
  for (auto& [origin, tile] : by_origin) {
    std::sort(tile.holders.begin(), tile.holders.end());
    plan.tiles_.push_back(std::move(tile));
  }
  FAIRWAY_RETURN_IF_ERROR(plan.Index(shape));
  std::map<std::vector<int64_t>, int32_t> known;
  std::map<std::pair<ExecutorId, int32_t>, int32_t> first;
  for (int32_t i = 0; i < to.num_shards(); ++i) {
    absl::StatusOr<IndexDomain> domain = to.Domain(shape, i);
    if (!domain.ok()) return Annotate(domain.status(), "the sharding asked for");
    // The origin identifies a part; empty parts are identified by their own extents.
    auto at = static_cast<int32_t>(plan.domains_.size());
    if (domain->shape.num_elements() > 0) at = known.emplace(domain->origin, at).first->second;
    if (at == static_cast<int32_t>(plan.domains_.size()))
      plan.domains_.push_back(*std::move(domain));
    plan.targets_.push_back(
        {targets[i], at, first.emplace(std::pair{targets[i].executor, at}, i).first->second});
  }
  return plan;
}

absl::Status Resharding::Index(const Shape& shape) {
  const size_t rank = shape.dims.size();
  int64_t covered = 0;
  starts_.resize(rank);
  for (const Tile& tile : tiles_) {
    covered += tile.domain.shape.num_elements();
    for (size_t d = 0; d < rank; ++d) starts_[d].push_back(tile.domain.origin[d]);
  }
  // Tiles of one grid do not overlap, so they are the whole array if there are enough of them.
  if (covered != shape.num_elements())
    return InvalidArgument("the array's shards have {} of its {} elements", covered,
                           shape.num_elements());
  strides_.assign(rank, 1);
  for (size_t d = rank; d-- > 0;) {
    std::sort(starts_[d].begin(), starts_[d].end());
    starts_[d].erase(std::unique(starts_[d].begin(), starts_[d].end()), starts_[d].end());
    if (d > 0) strides_[d - 1] = strides_[d] * static_cast<int64_t>(starts_[d].size());
  }
  return absl::OkStatus();
}

std::pair<int32_t, bool> Resharding::Nearest(Tile& tile, const Place& place) {
  const std::vector<Holder>& holders = tile.holders;
  const auto here = std::lower_bound(holders.begin(), holders.end(), Holder{place, 0});
  if (here != holders.end() && here->place == place) return {here->shard, true};
  // Holders of one executor are adjacent.
  const auto beside =
      std::lower_bound(holders.begin(), holders.end(), Holder{{place.executor, DeviceId()}, 0});
  if (beside != holders.end() && beside->place.executor == place.executor)
    return {beside->shard, true};
  return {tile.shards[tile.turn++ % tile.shards.size()], false};
}

std::vector<ShardPiece> Resharding::Pieces(Target& target) {
  const IndexDomain& want = domains_[target.domain];
  const size_t rank = want.origin.size();
  std::vector<ShardPiece> pieces;
  if (want.shape.num_elements() == 0) return pieces;
  // The tiles that it overlaps form a run in each dimension.
  std::vector<int64_t> begin(rank), end(rank);
  for (size_t d = 0; d < rank; ++d) {
    const std::vector<int64_t>& starts = starts_[d];
    begin[d] = std::upper_bound(starts.begin(), starts.end(), want.origin[d]) - starts.begin() - 1;
    end[d] = std::lower_bound(starts.begin(), starts.end(), want.origin[d] + want.shape.dims[d]) -
             starts.begin();
  }
  std::vector<int64_t> index = begin;
  while (true) {
    int64_t at = 0;
    for (size_t d = 0; d < rank; ++d) at += index[d] * strides_[d];
    Tile& tile = tiles_[at];
    const IndexDomain& have = tile.domain;
    const auto [source, near] = Nearest(tile, target.place);
    target.from_else = target.from_else || !near;
    ShardPiece piece{source,
                     false,
                     {element_bytes_, have.shape.dims, {}, {}},
                     {element_bytes_, want.shape.dims, {}, {}}};
    for (size_t d = 0; d < rank; ++d) {
      const int64_t low = std::max(have.origin[d], want.origin[d]);
      const int64_t high =
          std::min(have.origin[d] + have.shape.dims[d], want.origin[d] + want.shape.dims[d]);
      piece.from.origin.push_back(low - have.origin[d]);
      piece.to.origin.push_back(low - want.origin[d]);
      piece.from.extents.push_back(high - low);
    }
    piece.to.extents = piece.from.extents;
    pieces.push_back(std::move(piece));
    size_t d = rank;
    while (d > 0 && ++index[d - 1] == end[d - 1]) {
      --d;
      index[d] = begin[d];
    }
    if (d == 0) return pieces;
  }
}

std::vector<ShardPiece> Resharding::PiecesOf(int32_t out) {
  Target& target = targets_[out];
  if (target.first == out || !targets_[target.first].from_else) return Pieces(target);
  const Box whole = Box::Whole(element_bytes_, domains_[target.domain].shape.dims);
  return {{target.first, true, whole, whole}};
}

}  // namespace fairway
