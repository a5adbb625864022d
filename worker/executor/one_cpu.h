// SPDX-License-Identifier: Apache-2.0
// Threads of gangs that only wait for each other run on one CPU, if that is faster
// (docs/design/0063-push-exchange.md, "One CPU").
#ifndef FAIRWAY_WORKER_EXECUTOR_ONE_CPU_H_
#define FAIRWAY_WORKER_EXECUTOR_ONE_CPU_H_

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <optional>

namespace fairway {

// Decides for the members of swaps on one host whether they should be on one CPU: measures how long
// swaps take apart, then together, and keeps what is faster. The first member has it. Swaps make
// members wait for each other, so its times are those of all. Pure.
class OneCpuTrial {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  // The first member begins a swap. `idle`: how long its thread has waited for work so far. Returns
  // whether the members should be on one CPU from now on.
  bool OnSwap(Time now, Duration idle);

  static constexpr int64_t kWindow = 128;  // swaps of which the time is taken together
  // Swaps apart before a trial, at first. Twice as many after each trial in vain.
  static constexpr int64_t kBefore = 2 * kWindow;
  // So many at most; and swaps together, before all is measured anew.
  static constexpr int64_t kRest = int64_t{1} << 16;
  // A trial needs swaps that take no longer than this, with all that is between them.
  static constexpr Duration kBrief = std::chrono::microseconds(250);

 private:
  enum class Phase : uint8_t { kApart, kSettling, kTrying, kTogether };

  void Enter(Phase phase);
  void EndInVain();
  void OnWindow(Duration took);

  Phase phase_ = Phase::kApart;
  int64_t swaps_ = 0;         // of this phase
  int64_t before_ = kBefore;  // swaps apart before the next trial
  Duration mean_{};           // of the windows of this phase; the last ones weigh most
  Duration apart_{};          // that mean before the trial
  Time window_;               // begin of the window; 0: there was no swap yet
  Duration idle_{};           // at that time
};

// Where the calling thread may run. One for each thread.
class OneCpu {
 public:
  static OneCpu& OfThisThread();

  // Before the thread runs a gang, and after it. Once a gang has made no swap, the thread may run
  // anywhere again from the next gang on.
  void OnLaunch(OneCpuTrial::Time begin);
  void OnEnd(OneCpuTrial::Time end) { ended_ = end; }

  // Before a swap whose first member this thread is, and that has others on this host. Returns the
  // CPU that they should share, plus 1; 0: none.
  uint32_t Decide(OneCpuTrial::Time now);
  // Before a swap. `first`: the first member; `cpu`: as it has decided. The thread follows after
  // kSame swaps with the same one, to a CPU where it may run.
  void OnSwap(uint64_t first, uint32_t cpu);

  static constexpr int kSame = 64;

 private:
  void MoveTo(uint32_t cpu);

  OneCpuTrial trial_;
  uint32_t decided_ = 0;          // see Decide
  OneCpuTrial::Time ended_;       // of the last gang; 0: it has run none
  OneCpuTrial::Duration idle_{};  // between gangs
  uint64_t first_ = 0;
  int same_ = 0;                     // swaps with it, kSame at most
  bool swapped_ = false;             // since the last gang began
  uint32_t cpu_ = 0;                 // that it was told last; 0: none
  std::optional<cpu_set_t> before_;  // where it might run before; nullopt: it was not moved
  bool batch_ = false;               // its policy is SCHED_BATCH, and was SCHED_OTHER
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_ONE_CPU_H_
