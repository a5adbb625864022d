// SPDX-License-Identifier: Apache-2.0
#include "log/ranges.h"

#include <algorithm>
#include <iterator>

namespace fairway {

absl::Status CheckRanges(const LogRanges& ranges) {
  LogNumber previous = 0;
  for (const LogRange& range : ranges) {
    if (range.first == 0)
      return InvalidArgument("a range begins with number 0, expected 1 or more");
    if (range.last < range.first || range.last > kMaxLogNumber)
      return InvalidArgument("a range of numbers {} to {}, expected an end between {} and {}",
                             range.first, range.last, range.first, kMaxLogNumber);
    if (previous != 0 && range.first <= previous + 1)
      return InvalidArgument(
          "a range begins with {}, expected more than {}, since one ends with {}", range.first,
          previous + 1, previous);
    previous = range.last;
  }
  return absl::OkStatus();
}

void LogRangeSet::Add(LogNumber number) {
  auto after = ranges_.upper_bound(number);
  if (after != ranges_.begin()) {
    const auto before = std::prev(after);
    if (before->second >= number) return;
    if (before->second + 1 == number) {
      before->second = number;
      if (after != ranges_.end() && after->first == number + 1) {
        before->second = after->second;
        ranges_.erase(after);
      }
      return;
    }
  }
  if (after != ranges_.end() && after->first == number + 1) {
    const LogNumber last = after->second;
    after = ranges_.erase(after);
    ranges_.emplace_hint(after, number, last);
    return;
  }
  ranges_.emplace_hint(after, number, number);
}

void LogRangeSet::Add(LogRange range) {
  auto it = ranges_.upper_bound(range.first);
  const bool alone = it == ranges_.end() || it->first > range.last + 1;
  if (it != ranges_.begin() && std::prev(it)->second + 1 >= range.first) {
    --it;
    if (alone) {  // it only makes the range before it longer
      it->second = std::max(it->second, range.last);
      return;
    }
  }
  while (it != ranges_.end() && it->first <= range.last + 1) {
    range.first = std::min(range.first, it->first);
    range.last = std::max(range.last, it->second);
    it = ranges_.erase(it);
  }
  ranges_.emplace_hint(it, range.first, range.last);
}

bool LogRangeSet::Covers(LogRange range) const {
  const auto after = ranges_.upper_bound(range.first);
  return after != ranges_.begin() && std::prev(after)->second >= range.last;
}

bool LogRangeSet::Meets(LogRange range) const {
  const auto after = ranges_.upper_bound(range.last);
  return after != ranges_.begin() && std::prev(after)->second >= range.first;
}

LogRanges LogRangeSet::TakeFront(size_t most) {
  LogRanges out;
  auto it = ranges_.begin();
  for (; it != ranges_.end() && out.size() < most; ++it) out.push_back({it->first, it->second});
  ranges_.erase(ranges_.begin(), it);
  return out;
}

void LogRangeSet::Remove(LogRange range) {
  auto it = ranges_.upper_bound(range.first);
  if (it != ranges_.begin() && std::prev(it)->second >= range.first) --it;
  LogRanges left;
  while (it != ranges_.end() && it->first <= range.last) {
    if (it->first < range.first) left.push_back({it->first, range.first - 1});
    if (it->second > range.last) left.push_back({range.last + 1, it->second});
    it = ranges_.erase(it);
  }
  for (const LogRange& part : left) ranges_.emplace(part.first, part.last);
}

LogRanges LogRangeSet::ToRanges() const {
  LogRanges out;
  out.reserve(ranges_.size());
  for (const auto& [first, last] : ranges_) out.push_back({first, last});
  return out;
}

}  // namespace fairway
