// SPDX-License-Identifier: Apache-2.0
// Sets of numbered transfers. There are many, and most are nearly equal: each is the set of
// transfers that a step of a program waits for. A plain value.
#ifndef FAIRWAY_GRAPH_TRANSFER_SETS_H_
#define FAIRWAY_GRAPH_TRANSFER_SETS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace fairway {

// Equal sets have the same number. A set is a tree over the bits of its members (C. Okasaki and A.
// Gill, Fast Mergeable Integer Maps, 1998), and each tree exists once. So a set with one member
// more than another takes only a few new nodes; listing the members of all sets of a long loop
// would take the square of its rounds.
class TransferSets {
 public:
  static constexpr int32_t kNone = 0;  // the empty set

  // `transfer` >= 0.
  int32_t One(int32_t transfer);
  int32_t Union(int32_t a, int32_t b);
  // Returns the size: nodes, and remembered unions; each takes some 100 bytes.
  size_t size() const { return sets_.size() + unions_.size(); }

 private:
  // The members agree in all bits except those of `below`, a mask of the lowest bits. The highest
  // of these is 0 for the members in `zero`. `below` 0: one member, `first`.
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
