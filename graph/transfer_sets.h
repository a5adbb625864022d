// SPDX-License-Identifier: Apache-2.0
// Sets of numbered transfers, many of them and each nearly the same as another: what the steps of a
// program wait for. A plain value.
#ifndef FAIRWAY_GRAPH_TRANSFER_SETS_H_
#define FAIRWAY_GRAPH_TRANSFER_SETS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace fairway {

// Equal sets have the same number. They are trees over the bits of their members (C. Okasaki and
// A. Gill, Fast Mergeable Integer Maps, 1998), each tree there once: so a set that is another with
// one member more takes a few nodes, where the members of all sets of a long loop would be the
// square of its rounds.
class TransferSets {
 public:
  static constexpr int32_t kNone = 0;  // the empty set

  // `transfer` >= 0.
  int32_t One(int32_t transfer);
  int32_t Union(int32_t a, int32_t b);
  // What it holds: nodes, and unions that it remembers; each takes some 100 bytes.
  size_t size() const { return sets_.size() + unions_.size(); }

 private:
  // The members are alike in all bits but those of `below`, a mask of the lowest; the highest of
  // these is 0 for those in `zero`. 0: one member, `first`.
  struct Set {
    uint32_t first = 0;
    uint32_t below = 0;
    int32_t zero = kNone, one = kNone;
  };

  int32_t Fork(uint32_t below, int32_t zero, int32_t one);

  std::vector<Set> sets_ = {{}};
  std::map<uint32_t, int32_t> ones_;                       // by member
  std::map<std::pair<int32_t, int32_t>, int32_t> forks_;   // by `zero` and `one`
  std::map<std::pair<int32_t, int32_t>, int32_t> unions_;  // by both sets, the lower number first
};

}  // namespace fairway

#endif  // FAIRWAY_GRAPH_TRANSFER_SETS_H_
