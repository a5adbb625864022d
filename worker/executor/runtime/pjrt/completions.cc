// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/completions.h"

#include <utility>

#include "worker/executor/runtime/pjrt/call.h"

namespace fairway::pjrt {

Completions::Completions() : thread_([this] { Run(); }) {}

Completions::~Completions() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Completions::Post(absl::AnyInvocable<void()> work) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void Completions::Begin() {
  std::lock_guard lock(mutex_);
  ++under_way_;
}

void Completions::End() {
  std::lock_guard lock(mutex_);
  if (--under_way_ == 0) idle_.notify_all();
}

bool Completions::WaitIdle(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, limit,
                        [this] { return under_way_ == 0 && queue_.empty() && !running_; });
}

void Completions::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::vector<absl::AnyInvocable<void()>> batch;
    batch.swap(queue_);
    running_ = true;
    lock.unlock();
    for (auto& work : batch) std::move(work)();
    batch.clear();
    lock.lock();
    running_ = false;
    if (under_way_ == 0 && queue_.empty()) idle_.notify_all();
  }
}

void HandOver(const std::shared_ptr<Completions>& completions, const PJRT_Api* api,
              PJRT_Event* event, absl::AnyInvocable<void(absl::Status)> done) {
  if (IsReady(api, event)) {
    WhenReady(api, event, std::move(done));
    return;
  }
  completions->Begin();
  WhenReady(api, event, [completions, done = std::move(done)](absl::Status status) mutable {
    Completions* to = completions.get();
    to->Post([completions = std::move(completions), done = std::move(done),
              status = std::move(status)]() mutable {
      std::move(done)(std::move(status));
      completions->End();
    });
  });
}

}  // namespace fairway::pjrt
