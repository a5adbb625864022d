// SPDX-License-Identifier: Apache-2.0
// How soon a relay answers its parent, from which that knows that it is late
// (docs/design/0066-relays.md). It has no clock; times are from any origin.
#ifndef FAIRWAY_LOG_ROUND_TRIPS_H_
#define FAIRWAY_LOG_ROUND_TRIPS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fairway {

// Of one relay. A question is a frame of the log with a number as its id; the relay's next report,
// which leaves at once, has the same. A relay that knows no questions never answers, and is never
// late. One question is open at a time, so one stop of a relay makes one long round trip, however
// long it is.
class RoundTrips {
 public:
  using Time = std::chrono::nanoseconds;
  static constexpr size_t kKept = 20;  // some two seconds

  // The number of a question that leaves now; 0: none should, because one is open.
  uint64_t Ask(Time now);
  // Only the first answer to the open question counts.
  void Answer(uint64_t number, Time now);
  // A round trip that was measured in another way.
  void Add(Time took);
  // Forgets all round trips, and the open question.
  void Clear();
  // Of the last kKept round trips: more than half took so long or longer. nullopt: there were
  // fewer.
  std::optional<Time> Median() const;
  // Why a relay with a median is given up.
  std::string LateText() const;

 private:
  std::array<Time, kKept> kept_{};
  size_t count_ = 0;  // all since Clear
  uint64_t last_ = 0;
  uint64_t open_ = 0;  // 0: none
  Time asked_{0};
};

// Which relays of one parent are late.
class LateRelays {
 public:
  // `soon`: who answers so soon is not late. `parent`: how late the parent's own timers were.
  LateRelays(RoundTrips::Time soon, const RoundTrips& parent);
  // All relays of the parent are added before it is asked.
  void Add(const RoundTrips& relay);
  // Of those that were added: whether it is far slower than the median of them and the parent. So
  // none is late if more than half of all are slow: then the network, the host or the parent is.
  bool IsLate(const RoundTrips& relay);

 private:
  const RoundTrips::Time soon_;
  std::vector<RoundTrips::Time> medians_;
  std::optional<RoundTrips::Time> late_above_;  // once it was asked
};

// The pause before a parent asks for the n-th time: 50 to 150 ms, so that it does not keep step
// with what stops a relay at regular times.
std::chrono::milliseconds AskPause(uint64_t n);

// With more bytes on their way to a relay its parent does not ask it: the answer would tell how
// fast the network is.
inline constexpr size_t kMostWhenAsked = 256 << 10;

}  // namespace fairway

#endif  // FAIRWAY_LOG_ROUND_TRIPS_H_
