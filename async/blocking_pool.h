// SPDX-License-Identifier: Apache-2.0
// A few threads for work that blocks: disk, loading code, waiting for a child.
#ifndef FAIRWAY_ASYNC_BLOCKING_POOL_H_
#define FAIRWAY_ASYNC_BLOCKING_POOL_H_

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <absl/functional/any_invocable.h>

namespace fairway {

// Runs closures in the order in which they came, on `threads` threads (one thread: strictly one
// after another). Holds no state of its users; closures post their results back.
class BlockingPool {
 public:
  // `name`: of the threads, up to 15 characters.
  BlockingPool(std::string name, int threads);
  // Runs what is queued, then joins.
  ~BlockingPool();
  BlockingPool(const BlockingPool&) = delete;
  BlockingPool& operator=(const BlockingPool&) = delete;

  // Thread-safe.
  void Run(absl::AnyInvocable<void()> work);
  // Thread-safe: closures queued and running.
  size_t pending() const;

 private:
  void Work();

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<absl::AnyInvocable<void()>> queue_;
  size_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fairway

#endif  // FAIRWAY_ASYNC_BLOCKING_POOL_H_
