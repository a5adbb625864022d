// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/one_cpu.h"

#include <algorithm>
#include <utility>

namespace fairway {

void OneCpuTrial::Enter(Phase phase) {
  phase_ = phase;
  swaps_ = 0;
  mean_ = Duration();
}

void OneCpuTrial::EndInVain() {
  before_ = std::min(2 * before_, kRest);
  Enter(Phase::kApart);
}

bool OneCpuTrial::OnSwap(Time now, Duration idle) {
  if (window_ == Time()) {
    window_ = now;
    idle_ = idle;
  }
  const Duration took = now - window_ - (idle - idle_);
  // Who computes long should not wait for the end of the window.
  const bool slow = phase_ != Phase::kApart && took > 2 * apart_;
  if (++swaps_ % kWindow == 0 || slow) {
    slow ? EndInVain() : OnWindow(took);
    window_ = now;
    idle_ = idle;
  }
  return phase_ != Phase::kApart;
}

void OneCpuTrial::OnWindow(Duration took) {
  mean_ = swaps_ == kWindow ? took : (mean_ + took) / 2;
  switch (phase_) {
    case Phase::kApart:
      if (swaps_ < before_ || mean_ > kWindow * kBrief) return;
      apart_ = mean_;
      return Enter(Phase::kSettling);
    case Phase::kSettling:
      return Enter(Phase::kTrying);
    case Phase::kTrying:
      if (swaps_ < 2 * kWindow) return;
      if (mean_ > apart_ * 19 / 20) return EndInVain();
      before_ = kBefore;
      return Enter(Phase::kTogether);
    case Phase::kTogether:
      if (mean_ > apart_ || swaps_ >= kRest) Enter(Phase::kApart);
  }
}

OneCpu& OneCpu::OfThisThread() {
  thread_local OneCpu one;
  return one;
}

void OneCpu::OnLaunch(OneCpuTrial::Time begin) {
  if (ended_ != OneCpuTrial::Time()) idle_ += begin - ended_;
  if (!swapped_) {
    same_ = 0;
    if (cpu_ != 0) MoveTo(0);
  }
  swapped_ = false;
}

uint32_t OneCpu::Decide(OneCpuTrial::Time now) {
  if (trial_.OnSwap(now, idle_) != (decided_ != 0))
    decided_ = decided_ != 0 ? 0 : static_cast<uint32_t>(sched_getcpu() + 1);
  return decided_;
}

void OneCpu::OnSwap(uint64_t first, uint32_t cpu) {
  swapped_ = true;
  if (first != first_) {
    first_ = first;
    same_ = 0;
  }
  if (same_ < kSame) {
    ++same_;
    cpu = 0;
  }
  if (cpu != cpu_) MoveTo(cpu);
}

void OneCpu::MoveTo(uint32_t cpu) {
  cpu_ = cpu;
  const sched_param no_priority{};
  if (before_.has_value()) (void)sched_setaffinity(0, sizeof *before_, &*before_);
  before_.reset();
  if (std::exchange(batch_, false)) (void)sched_setscheduler(0, SCHED_OTHER, &no_priority);
  cpu_set_t allowed;
  if (cpu == 0 || cpu > CPU_SETSIZE || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  // The kernel would also move it to one that was taken from this thread.
  if (!CPU_ISSET(cpu - 1, &allowed)) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu - 1, &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) return;
  before_ = allowed;
  // Whoever wakes all others would be interrupted by one of them before it can go to sleep.
  batch_ =
      sched_getscheduler(0) == SCHED_OTHER && sched_setscheduler(0, SCHED_BATCH, &no_priority) == 0;
}

}  // namespace fairway
