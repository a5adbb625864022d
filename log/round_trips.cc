// SPDX-License-Identifier: Apache-2.0
#include "log/round_trips.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/planted.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

// So many times the median of all links is late.
constexpr int kTimes = 8;
// Who has not answered often enough may be slow.
constexpr std::chrono::hours kNotKnown{1};

// At least half are so large; of two it is the smaller one.
RoundTrips::Time LowerMedian(RoundTrips::Time* begin, size_t count) {
  RoundTrips::Time* const middle = begin + (count - 1) / 2;
  std::nth_element(begin, middle, begin + count);
  return *middle;
}

}  // namespace

uint64_t RoundTrips::Ask(Time now) {
  if (open_ != 0) return 0;
  asked_ = now;
  return open_ = ++last_;
}

void RoundTrips::Answer(uint64_t number, Time now) {
  if (number == 0 || number != open_) return;
  open_ = 0;
  Add(now - asked_);
}

void RoundTrips::Add(Time took) { kept_[count_++ % kKept] = took; }

void RoundTrips::Clear() { count_ = open_ = 0; }

std::optional<RoundTrips::Time> RoundTrips::Median() const {
  if (count_ < kKept) return std::nullopt;
  std::array<Time, kKept> sorted = kept_;
  return LowerMedian(sorted.data(), kKept);
}

LateRelays::LateRelays(RoundTrips::Time soon, const RoundTrips& parent) : soon_(soon) {
  Add(parent);
}

void LateRelays::Add(const RoundTrips& relay) {
  medians_.push_back(relay.Median().value_or(kNotKnown));
}

bool LateRelays::IsLate(const RoundTrips& relay) {
  const std::optional<RoundTrips::Time> median = relay.Median();
  if (!median || *median <= soon_ || Planted(Bug::kNeverLate)) return false;
  if (!late_above_) late_above_ = kTimes * LowerMedian(medians_.data(), medians_.size());
  return *median > *late_above_;
}

std::string RoundTrips::LateText() const {
  return fmt::format("it is late: more than half of its last {} answers took {} ms", kKept,
                     std::chrono::duration_cast<milliseconds>(Median().value_or(Time(0))).count());
}

milliseconds AskPause(uint64_t n) {
  // Multiples of the golden ratio, as parts of 2^64, spread evenly.
  const uint64_t part = n * 0x9e3779b97f4a7c15;
  return milliseconds(50 + (part >> 32) * 100 / (uint64_t{1} << 32));
}

}  // namespace fairway
