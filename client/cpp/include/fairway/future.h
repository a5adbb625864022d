// SPDX-License-Identifier: Apache-2.0
// A value that comes later.
#ifndef FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_FUTURE_H_
#define FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_FUTURE_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace fairway::client {

template <typename T>
class Promise;

// Copies stand for the same value. Every future of this library gets a value; when the session
// ends, at the latest, an error. Thread-safe. T is Status or a Result.
template <typename T>
class Future {
 public:
  // Waits for the value. The reference is valid while a copy of this future exists. Do not call it
  // in a callback of Then: the thread that runs callbacks is the one that would bring the value.
  const T& Get() const& {
    std::unique_lock lock(state_->mutex);
    state_->come.wait(lock, [this] { return state_->value.has_value(); });
    return *state_->value;
  }
  T Get() && { return static_cast<const Future&>(*this).Get(); }

  bool ready() const {
    const std::lock_guard lock(state_->mutex);
    return state_->value.has_value();
  }
  // Waits at most `time`. Returns whether the value is there.
  bool WaitFor(std::chrono::nanoseconds time) const {
    std::unique_lock lock(state_->mutex);
    return state_->come.wait_for(lock, time, [this] { return state_->value.has_value(); });
  }
  // Calls `callback` with the value: now, or later on a thread of this library, which it must not
  // hold up.
  void Then(std::function<void(const T&)> callback) const {
    {
      const std::lock_guard lock(state_->mutex);
      if (!state_->value.has_value()) {
        state_->callbacks.push_back(std::move(callback));
        return;
      }
    }
    callback(*state_->value);
  }

 private:
  friend class Promise<T>;
  struct State {
    std::mutex mutex;
    std::condition_variable come;
    std::optional<T> value;  // set once
    std::vector<std::function<void(const T&)>> callbacks;
  };
  explicit Future(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// The side that sets the value: for this library, and for tests of its users. Copies stand for the
// same value.
template <typename T>
class Promise {
 public:
  Promise() : state_(std::make_shared<typename Future<T>::State>()) {}
  Future<T> future() const { return Future<T>(state_); }
  // Only the first call has an effect.
  void Set(T value) const {
    std::vector<std::function<void(const T&)>> callbacks;
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->value.has_value()) return;
      state_->value.emplace(std::move(value));
      callbacks.swap(state_->callbacks);
      state_->come.notify_all();
    }
    for (const auto& callback : callbacks) callback(*state_->value);
  }

 private:
  std::shared_ptr<typename Future<T>::State> state_;
};

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_FUTURE_H_
