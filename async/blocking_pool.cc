// SPDX-License-Identifier: Apache-2.0
#include "async/blocking_pool.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace fairway {

BlockingPool::BlockingPool(std::string name, int threads) : most_of_one_(std::max(1, threads - 1)) {
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

bool BlockingPool::MayRun(uint64_t id, const Owner& owner) const {
  return !owner.queue.empty() && (id == kNobody || owner.running < most_of_one_);
}

void BlockingPool::Run(absl::AnyInvocable<void()> work, uint64_t id) {
  {
    std::lock_guard lock(mutex_);
    Owner& owner = owners_[id];
    owner.queue.push_back(std::move(work));
    ++pending_;
    if (owner.in_turn || !MayRun(id, owner)) return;
    owner.in_turn = true;
    turns_.push_back(id);
  }
  wake_.notify_one();
}

size_t BlockingPool::pending() const {
  std::lock_guard lock(mutex_);
  return pending_;
}

size_t BlockingPool::pending(uint64_t owner) const {
  std::lock_guard lock(mutex_);
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return 0;
  return found->second.queue.size() + static_cast<size_t>(found->second.running);
}

void BlockingPool::Work() {
  std::unique_lock lock(mutex_);
  // Queues an owner that may run its next turns. Each turn is one closure.
  const auto queue = [this](uint64_t id, Owner& owner) {
    owner.in_turn = MayRun(id, owner);
    if (!owner.in_turn) return;
    turns_.push_back(id);
    wake_.notify_one();
  };
  while (true) {
    wake_.wait(lock, [this] { return !turns_.empty() || (stopping_ && pending_ == 0); });
    if (turns_.empty()) return;
    const uint64_t id = turns_.front();
    turns_.pop_front();
    Owner& owner = owners_.at(id);
    auto work = std::move(owner.queue.front());
    owner.queue.pop_front();
    ++owner.running;
    queue(id, owner);
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    --owner.running;
    --pending_;
    if (!owner.in_turn) queue(id, owner);
    // The record of those without an owner stays: most work has none.
    if (id != kNobody && owner.running == 0 && owner.queue.empty()) owners_.erase(id);
    if (stopping_ && pending_ == 0) wake_.notify_all();
  }
}

}  // namespace fairway
