// SPDX-License-Identifier: Apache-2.0
// A few threads for work that blocks: disk, loading code, waiting for a child.
#ifndef FAIRWAY_ASYNC_BLOCKING_POOL_H_
#define FAIRWAY_ASYNC_BLOCKING_POOL_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <absl/functional/any_invocable.h>

namespace fairway {

// Runs closures on `threads` threads. Those of one owner begin in the order in which they came (one
// thread: strictly one after another). Owners take turns, and with several threads one owner never
// has them all: another one's closure waits for one closure at most, however many an owner has
// queued. Holds no state of its users; closures post their results back.
class BlockingPool {
 public:
  // `name`: of the threads, up to 15 characters.
  BlockingPool(std::string name, int threads);
  // Runs what is queued, then joins.
  ~BlockingPool();
  BlockingPool(const BlockingPool&) = delete;
  BlockingPool& operator=(const BlockingPool&) = delete;

  // Thread-safe. `owner`: whose it is; kNobody: it may use all threads.
  void Run(absl::AnyInvocable<void()> work, uint64_t owner = kNobody);
  // Thread-safe: closures queued and running.
  size_t pending() const;

  static constexpr uint64_t kNobody = 0;

 private:
  struct Owner {
    std::deque<absl::AnyInvocable<void()>> queue;
    int running = 0;
    bool in_turn = false;  // `turns_` has it
  };

  void Work();
  bool MayRun(uint64_t id, const Owner& owner) const;  // with mutex_ held

  const int most_of_one_;  // threads that one owner may have
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_. An owner is here while it has closures, and in `turns_` while one may begin.
  std::map<uint64_t, Owner> owners_;
  std::deque<uint64_t> turns_;
  size_t pending_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fairway

#endif  // FAIRWAY_ASYNC_BLOCKING_POOL_H_
