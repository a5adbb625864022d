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

// Runs closures on `threads` threads. Closures of one owner begin in the order of Run; with one
// thread they run strictly one after another. Owners take turns. With several threads one owner
// never has all of them: the closure of another owner waits for one closure at most, however many
// an owner has queued. It holds no state of its users; closures post their results back.
class BlockingPool {
 public:
  // `name`: of the threads, at most 15 characters.
  BlockingPool(std::string name, int threads);
  // Runs the queued closures, then joins the threads.
  ~BlockingPool();
  BlockingPool(const BlockingPool&) = delete;
  BlockingPool& operator=(const BlockingPool&) = delete;

  // Thread-safe. `owner`: whose closure it is; kNobody: it may use all threads.
  void Run(absl::AnyInvocable<void()> work, uint64_t owner = kNobody);
  // Thread-safe. Counts closures that are queued or running.
  size_t pending() const;
  // Those of `owner`.
  size_t pending(uint64_t owner) const;

  static constexpr uint64_t kNobody = 0;

 private:
  struct Owner {
    std::deque<absl::AnyInvocable<void()>> queue;
    int running = 0;
    bool in_turn = false;  // `turns_` has it
  };

  void Work();
  bool MayRun(uint64_t id, const Owner& owner) const;  // with mutex_ held

  const int most_of_one_;  // threads that one owner may use
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_. An owner is in it while it has closures, and in `turns_` while one of them
  // may begin.
  std::map<uint64_t, Owner> owners_;
  std::deque<uint64_t> turns_;
  size_t pending_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fairway

#endif  // FAIRWAY_ASYNC_BLOCKING_POOL_H_
