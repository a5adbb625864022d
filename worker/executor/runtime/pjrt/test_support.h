// SPDX-License-Identifier: Apache-2.0
// Waits for results of a Runtime, for tests. Every wait has a cap, and fails the test beyond it.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TEST_SUPPORT_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TEST_SUPPORT_H_

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/executor/runtime/pjrt/config.h"
#include "worker/executor/runtime/runtime.h"

namespace fairway::test {

constexpr std::chrono::seconds kCap{120};

// The plugin under test; tests fail, not skip, without one.
inline PjrtConfig ConfigOfTests(int num_devices) {
  PjrtConfig config;
  const char* path = std::getenv("FAIRWAY_PJRT_PLUGIN");
  config.plugin_path = path != nullptr ? path : "FAIRWAY_PJRT_PLUGIN-is-not-set";
  config.num_devices = num_devices;
  return config;
}

// A callback, and the value that it will bring.
template <typename T>
class Awaited {
 public:
  Awaited() : promise_(std::make_shared<std::promise<T>>()), future_(promise_->get_future()) {}
  absl::AnyInvocable<void(T)> Callback() {
    return [promise = promise_](T value) { promise->set_value(std::move(value)); };
  }
  bool HasCome() { return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  T Get() {
    if (future_.wait_for(kCap) != std::future_status::ready) {
      return T(Error(absl::StatusCode::kDeadlineExceeded, "waited {} s in a test", kCap.count()));
    }
    return future_.get();
  }

 private:
  std::shared_ptr<std::promise<T>> promise_;
  std::future<T> future_;
};

inline absl::Status WaitReady(DeviceBuffer& buffer) {
  Awaited<absl::Status> ready;
  buffer.OnReady(ready.Callback());
  return ready.Get();
}

// Returns whether `condition` becomes true within the cap.
template <typename Condition>
bool Eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kCap;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

template <typename T>
std::shared_ptr<Blob> BlobOf(const std::vector<T>& values) {
  return Blob::Copy({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

inline absl::StatusOr<HostView> ReadView(Runtime& runtime, DeviceBuffer& buffer) {
  Awaited<absl::StatusOr<HostView>> view;
  runtime.Read(buffer, view.Callback());
  return view.Get();
}

template <typename T>
absl::StatusOr<std::vector<T>> ReadAll(Runtime& runtime, DeviceBuffer& buffer) {
  FAIRWAY_ASSIGN_OR_RETURN(HostView view, ReadView(runtime, buffer));
  std::vector<T> values(view.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

// A launch that is under way.
struct Running {
  LaunchResult result;
  Awaited<absl::Status> done;
};

inline absl::StatusOr<Running> Start(Runtime& runtime, const LaunchRequest& request) {
  Running running;
  FAIRWAY_ASSIGN_OR_RETURN(running.result, runtime.Launch(request, running.done.Callback()));
  return running;
}

// Launches and waits.
inline absl::StatusOr<LaunchResult> Run(Runtime& runtime, const LaunchRequest& request) {
  FAIRWAY_ASSIGN_OR_RETURN(Running running, Start(runtime, request));
  FAIRWAY_RETURN_IF_ERROR(running.done.Get());
  return std::move(running.result);
}

}  // namespace fairway::test

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TEST_SUPPORT_H_
