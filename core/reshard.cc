// SPDX-License-Identifier: Apache-2.0
#include "core/reshard.h"

#include <algorithm>
#include <map>
#include <utility>

namespace fairway {

absl::StatusOr<Resharding> Resharding::Plan(DType dtype, const Shape& shape, const Sharding& from,
                                            const Sharding& to) {
  Resharding plan;
  plan.element_bytes_ = BytesPerElement(dtype);
  if (plan.element_bytes_ == 0)
    return InvalidArgument("arrays of element type {} cannot be cut", Name(dtype));
  std::map<std::vector<int64_t>, size_t> by_origin;
  for (int i = 0; i < from.num_shards(); ++i) {
    absl::StatusOr<IndexDomain> domain = from.Domain(shape, i);
    if (!domain.ok()) return Annotate(domain.status(), "the array's sharding");
    if (domain->shape.num_elements() == 0) continue;
    const auto [at, fresh] = by_origin.emplace(domain->origin, plan.tiles_.size());
    if (fresh) plan.tiles_.push_back({*std::move(domain), {}});
    plan.tiles_[at->second].holders.push_back(i);
  }
  for (int i = 0; i < to.num_shards(); ++i) {
    absl::StatusOr<IndexDomain> domain = to.Domain(shape, i);
    if (!domain.ok()) return Annotate(domain.status(), "the sharding asked for");
    plan.domains_.push_back(*std::move(domain));
  }
  return plan;
}

std::vector<ShardPiece> Resharding::PiecesOf(
    int32_t out, const std::function<int64_t(int32_t source)>& cost) const {
  const IndexDomain& want = domains_[out];
  const size_t rank = want.origin.size();
  std::vector<ShardPiece> pieces;
  for (const Tile& tile : tiles_) {
    const IndexDomain& have = tile.domain;
    ShardPiece piece;
    piece.from = Box{element_bytes_, have.shape.dims, have.origin, want.origin};
    piece.to = Box{element_bytes_, want.shape.dims, want.origin, want.origin};
    bool empty = want.shape.num_elements() == 0;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t begin = std::max(have.origin[d], want.origin[d]);
      const int64_t end =
          std::min(have.origin[d] + have.shape.dims[d], want.origin[d] + want.shape.dims[d]);
      empty = empty || end <= begin;
      piece.from.origin[d] = begin - have.origin[d];
      piece.to.origin[d] = begin - want.origin[d];
      piece.from.extents[d] = piece.to.extents[d] = end - begin;
    }
    if (empty) continue;
    std::vector<int32_t> best;
    int64_t lowest = INT64_MAX;
    for (const int32_t holder : tile.holders) {
      const int64_t costs = cost(holder);
      if (costs < lowest) best.clear();
      lowest = std::min(lowest, costs);
      if (costs == lowest) best.push_back(holder);
    }
    piece.source = best[out % best.size()];
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace fairway
