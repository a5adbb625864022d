// SPDX-License-Identifier: Apache-2.0
#include "worker/process/link_life.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{20};
constexpr milliseconds kLastPause{1000};
// Whoever is refused so often is most likely refused again.
constexpr int kManyEnds = 10;
constexpr milliseconds kRefusedPause{10'000};

}  // namespace

milliseconds LinkLife::NextPause() {
  const milliseconds pause = std::exchange(pause_, std::clamp(2 * pause_, kFirstPause, kLastPause));
  return ended_ > kManyEnds ? kRefusedPause : pause;
}

void LinkLife::Registered(int64_t interval_ms, int64_t deadline_ms) {
  pause_ = kFirstPause;
  ended_ = 0;
  interval_ = milliseconds(std::clamp<int64_t>(interval_ms, 1, 3600000));
  deadline_ = milliseconds(std::clamp<int64_t>(deadline_ms, 10, 24 * 3600000));
  beats_ = 0;
}

LinkLife::Beat LinkLife::NextBeat(Time now) {
  // If this process itself was stopped, messages of the controller are still to be read: perhaps a
  // fence.
  if (beats_ > 0 && now - beat_ > interval_ + deadline_ / 2 && !Planted(Bug::kOwnStopIsSilence))
    heard_ = now;
  beat_ = now;
  Beat beat;
  beat.silence = now - heard_;
  beat.give_up = beat.silence > deadline_ && !Planted(Bug::kNeverGivesUp);
  if (beat.give_up) return beat;
  beat.stalled = !std::exchange(stalled_, beat.silence > stalled_after_) && stalled_;
  beat.sequence = ++beats_;
  return beat;
}

void LinkLife::Acknowledged(uint64_t sequence, Time now) {
  if (sequence == beats_ && beats_ > 0) round_trip_ = now - beat_;
}

}  // namespace fairway
