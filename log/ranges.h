// SPDX-License-Identifier: Apache-2.0
// Sets of log numbers, as ranges. Values.
#ifndef FAIRWAY_LOG_RANGES_H_
#define FAIRWAY_LOG_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include <absl/container/btree_map.h>

#include "base/status.h"

namespace fairway {

// The number of an entry in its island's log: 1, 2, 3, ... without gaps. 0: none.
using LogNumber = uint64_t;
inline constexpr LogNumber kMaxLogNumber = LogNumber{1} << 62;

// `first` to `last`, both included.
struct LogRange {
  LogNumber first = 0;
  LogNumber last = 0;
  friend bool operator==(const LogRange&, const LogRange&) = default;
};

// The form in frames and reports: ascending, and no two ranges touch.
using LogRanges = std::vector<LogRange>;

// INVALID_ARGUMENT: a range has number 0, runs backwards, overlaps or touches the one before it, or
// goes beyond kMaxLogNumber.
absl::Status CheckRanges(const LogRanges& ranges);

// A set of numbers, kept as ranges that do not touch. Its size is the number of ranges.
class LogRangeSet {
 public:
  // Does nothing if it is a member already.
  void Add(LogNumber number);
  // Adds the numbers of `range`.
  void Add(LogRange range);
  bool Contains(LogNumber number) const { return Covers({number, number}); }
  // Whether all numbers of `range` are members.
  bool Covers(LogRange range) const;
  // Whether any number of `range` is a member.
  bool Meets(LogRange range) const;
  // Removes and returns the first ranges, at most `most`.
  LogRanges TakeFront(size_t most);
  // Removes the numbers of `range`.
  void Remove(LogRange range);
  bool empty() const { return ranges_.empty(); }
  size_t ranges() const { return ranges_.size(); }
  LogRanges ToRanges() const;
  void Clear() { ranges_.clear(); }

 private:
  absl::btree_map<LogNumber, LogNumber> ranges_;  // first to last
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_RANGES_H_
