// SPDX-License-Identifier: Apache-2.0
#include "async/blocking_pool.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace fairway {

BlockingPool::BlockingPool(std::string name, int threads) {
  name.resize(std::min<size_t>(name.size(), 15));
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, name] {
      pthread_setname_np(pthread_self(), name.c_str());
      Work();
    });
  }
}

BlockingPool::~BlockingPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BlockingPool::Run(absl::AnyInvocable<void()> work) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  wake_.notify_one();
}

size_t BlockingPool::pending() const {
  std::lock_guard lock(mutex_);
  return queue_.size() + running_;
}

void BlockingPool::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    ++running_;
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    --running_;
  }
}

}  // namespace fairway
