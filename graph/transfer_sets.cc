// SPDX-License-Identifier: Apache-2.0
#include "graph/transfer_sets.h"

#include <algorithm>
#include <bit>

namespace fairway {

int32_t TransferSets::One(int32_t transfer) {
  const auto member = static_cast<uint32_t>(transfer);
  const auto [known, fresh] = ones_.try_emplace(member, static_cast<int32_t>(sets_.size()));
  if (fresh) sets_.push_back({member});
  return known->second;
}

int32_t TransferSets::Union(int32_t a, int32_t b) {
  if (a == b || b == kNone) return a;
  if (a == kNone) return b;
  const auto [known, fresh] = unions_.try_emplace({std::min(a, b), std::max(a, b)}, kNone);
  if (!fresh) return known->second;
  if (sets_[a].below < sets_[b].below) std::swap(a, b);
  const Set x = sets_[a], y = sets_[b];
  const uint32_t apart = (x.first ^ y.first) & ~x.below;
  const uint32_t bit = apart != 0 ? std::bit_floor(apart) : x.below / 2 + 1;
  if (apart != 0) {
    known->second = (x.first & bit) == 0 ? Fork(2 * bit - 1, a, b) : Fork(2 * bit - 1, b, a);
  } else if (x.below == y.below) {
    known->second = Fork(x.below, Union(x.zero, y.zero), Union(x.one, y.one));
  } else if ((y.first & bit) == 0) {
    known->second = Fork(x.below, Union(x.zero, b), x.one);
  } else {
    known->second = Fork(x.below, x.zero, Union(x.one, b));
  }
  return known->second;
}

int32_t TransferSets::Fork(uint32_t below, int32_t zero, int32_t one) {
  const auto [known, fresh] = forks_.try_emplace({zero, one}, static_cast<int32_t>(sets_.size()));
  if (fresh) sets_.push_back({sets_[zero].first, below, zero, one});
  return known->second;
}

}  // namespace fairway
