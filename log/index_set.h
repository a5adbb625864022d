// SPDX-License-Identifier: Apache-2.0
// A set of small numbers (executors of a roster, children of a parent), one bit each. A value. Its
// size grows with its largest member, so never add a number that a peer claims.
#ifndef FAIRWAY_LOG_INDEX_SET_H_
#define FAIRWAY_LOG_INDEX_SET_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace fairway {

class IndexSet {
 public:
  IndexSet() = default;
  IndexSet(std::initializer_list<uint32_t> members) {
    for (const uint32_t member : members) Add(member);
  }

  void Add(uint32_t member) {
    const size_t word = member / 64;
    if (word > high_.size()) high_.resize(word, 0);
    (word == 0 ? low_ : high_[word - 1]) |= uint64_t{1} << (member % 64);
  }
  // Does nothing if it is no member.
  void Remove(uint32_t member) {
    const size_t word = member / 64;
    if (word > high_.size()) return;
    (word == 0 ? low_ : high_[word - 1]) &= ~(uint64_t{1} << (member % 64));
    while (!high_.empty() && high_.back() == 0) high_.pop_back();
  }
  bool Contains(uint32_t member) const {
    return member / 64 <= high_.size() && (Word(member / 64) >> (member % 64) & 1) != 0;
  }
  bool empty() const { return low_ == 0 && high_.empty(); }
  // Calls `f` with each member, ascending.
  template <typename F>
  void ForEach(F f) const {
    for (size_t i = 0; i <= high_.size(); ++i) {
      for (uint64_t rest = Word(i); rest != 0; rest &= rest - 1)
        f(static_cast<uint32_t>(64 * i + std::countr_zero(rest)));
    }
  }
  friend bool operator==(const IndexSet&, const IndexSet&) = default;

 private:
  uint64_t Word(size_t i) const { return i == 0 ? low_ : high_[i - 1]; }

  uint64_t low_ = 0;            // members below 64
  std::vector<uint64_t> high_;  // the others; the last word is never 0
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_INDEX_SET_H_
