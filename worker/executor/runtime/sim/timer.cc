// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/sim/timer.h"

#include <pthread.h>

namespace fairway {

Timer::Timer() {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "fairway-sim");
    Work();
  });
}

Timer::~Timer() { Close(); }

void Timer::At(Time time, absl::AnyInvocable<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (!closed_) {
      const auto at = queue_.emplace(std::make_pair(time, next_++), std::move(work)).first;
      if (at == queue_.begin()) changed_.notify_one();
      return;
    }
  }
  std::move(work)();
}

void Timer::Close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Timer::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (queue_.empty()) {
      closed_ = closing_;
      if (closed_) return;
      changed_.wait(lock);
      continue;
    }
    const Time first = queue_.begin()->first.first;
    if (!closing_ && first > std::chrono::steady_clock::now()) {
      changed_.wait_until(lock, first);
      continue;
    }
    auto work = std::move(queue_.extract(queue_.begin()).mapped());
    lock.unlock();
    std::move(work)();
    work = nullptr;
    lock.lock();
  }
}

}  // namespace fairway
