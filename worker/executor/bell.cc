// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace fairway {
namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4,
              "the kernel reads it");

// Not private: another process may have mapped the word.
void Futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* longest) {
  (void)syscall(SYS_futex, &word, operation, value, longest, nullptr, 0);
}

}  // namespace

void Bell::Ring() {
  const uint32_t now = rung_.fetch_add(1, std::memory_order_seq_cst) + 1;
  // A waiter that stores waiting_ after this load sees the new rung_, and does not sleep.
  if (waiting_.load(std::memory_order_seq_cst) == 0) return;
  if (static_cast<int32_t>(now - until_.load(std::memory_order_relaxed)) < 0) return;
  if (waiting_.exchange(0, std::memory_order_seq_cst) == 1) Futex(rung_, FUTEX_WAKE, 1, nullptr);
}

void Bell::Wake() {
  rung_.fetch_add(1, std::memory_order_seq_cst);
  waiting_.store(0, std::memory_order_seq_cst);
  Futex(rung_, FUTEX_WAKE, 1, nullptr);
}

void Bell::Wait(uint32_t seen, uint32_t count, std::chrono::nanoseconds longest) {
  until_.store(seen + count, std::memory_order_relaxed);
  waiting_.store(1, std::memory_order_seq_cst);
  Sleep(seen, longest);
  waiting_.store(0, std::memory_order_seq_cst);
}

void Bell::WakeAll() {
  rung_.fetch_add(1, std::memory_order_seq_cst);
  Futex(rung_, FUTEX_WAKE, INT_MAX, nullptr);
}

void Bell::Sleep(uint32_t seen, std::chrono::nanoseconds longest) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec time{static_cast<time_t>(seconds.count()),
                      static_cast<long>((longest - seconds).count())};
  Futex(rung_, FUTEX_WAIT, seen, &time);
}

}  // namespace fairway
