// SPDX-License-Identifier: Apache-2.0
// What the thread of gangs sleeps on while it waits for other executors
// (docs/design/0063-push-exchange.md).
#ifndef FAIRWAY_WORKER_EXECUTOR_BELL_H_
#define FAIRWAY_WORKER_EXECUTOR_BELL_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace fairway {

// One thread waits, or several with Sleep; all others ring. It may lie in memory that several
// processes share: then any of them can wake the waiter, and one that breaks the rules can let it
// sleep until its time is over. All zeros is a bell that nobody has rung.
class Bell {
 public:
  // How often it was rung, modulo 2^32. Read it before you look for what you wait for.
  uint32_t rung() const { return rung_.load(std::memory_order_seq_cst); }
  // Says that one of the things that are waited for has come.
  void Ring();
  // Wakes the waiter in any case.
  void Wake();
  // The same for a bell that several threads wait for, with Sleep.
  void WakeAll();
  void Sleep(uint32_t seen, std::chrono::nanoseconds longest);
  // Sleeps until it was rung `count` times after `seen`, or woken, or `longest` has passed; perhaps
  // shorter.
  void Wait(uint32_t seen, uint32_t count, std::chrono::nanoseconds longest);

 private:
  std::atomic<uint32_t> rung_;
  std::atomic<uint32_t> until_;    // the ring that wakes
  std::atomic<uint32_t> waiting_;  // 1: somebody may sleep
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_BELL_H_
