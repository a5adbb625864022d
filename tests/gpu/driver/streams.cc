// SPDX-License-Identifier: Apache-2.0
// Streams and events.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driver.h"

namespace fairway_driver {
namespace {

class Queue : public Stream, public std::enable_shared_from_this<Queue> {
 public:
  explicit Queue(int device) : device_(device) {}

  void Start() {
    std::thread([self = shared_from_this()] { self->Run(); }).detach();
  }
  int device() const override { return device_; }
  std::string name() const override {
    return "gpu " + std::to_string(device_) + " stream " + std::to_string(number_);
  }
  void DoAlways(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    ++given_;
    changed_.notify_all();
  }
  void Wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, until = given_] { return done_ >= until; });
  }
  bool Idle() {
    const std::lock_guard lock(mutex_);
    return done_ == given_;
  }
  // The thread does its earlier work, and ends.
  void End() { DoAlways(nullptr); }

 private:
  void Run() {
    for (bool ended = false; !ended;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !work_.empty(); });
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      ended = work == nullptr;
      if (!ended) work();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  inline static std::atomic<int> next_{0};
  const int device_;
  const int number_ = next_++;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;  // guarded by mutex_, as are the next members
  uint64_t given_ = 0;
  uint64_t done_ = 0;
};

std::mutex mutex;
// By handle; the handle of a GPU's default stream is null. Guarded by mutex; never destroyed.
auto& streams = *new std::map<std::pair<void*, int>, std::shared_ptr<Queue>>();

std::shared_ptr<Queue> MakeQueue(int device) {
  auto queue = std::make_shared<Queue>(device);
  queue->Start();
  return queue;
}

// Counts its recordings, so that a waiter waits for one particular recording.
struct Event {
  std::mutex mutex;
  std::condition_variable happened;
  uint64_t recorded = 0;
  uint64_t reached = 0;
  std::chrono::steady_clock::time_point when;

  uint64_t Record() {
    const std::lock_guard lock(mutex);
    return ++recorded;
  }
  uint64_t Recorded() {
    const std::lock_guard lock(mutex);
    return recorded;
  }
  void Reach(uint64_t number) {
    const std::lock_guard lock(mutex);
    reached = std::max(reached, number);
    when = std::chrono::steady_clock::now();
    happened.notify_all();
  }
  void Wait(uint64_t until) {
    std::unique_lock lock(mutex);
    happened.wait(lock, [&] { return reached >= until; });
  }
};

// A handle points to one of these: queued work keeps the event alive when the handle is destroyed.
using SharedEvent = std::shared_ptr<Event>;
SharedEvent& EventOf(void* handle) { return *static_cast<SharedEvent*>(handle); }

}  // namespace

void Stream::Do(std::function<void()> work) {
  DoAlways([work = std::move(work)] {
    if (State() == kOk) work();
  });
}

Stream& StreamOf(void* handle) {
  const bool standard = reinterpret_cast<uintptr_t>(handle) <= 2;
  if (!standard) return *static_cast<Stream*>(handle);
  const std::lock_guard lock(mutex);
  auto& queue = streams[{nullptr, Current().device}];
  if (queue == nullptr) queue = MakeQueue(Current().device);
  return *queue;
}

void WaitForDevice(int device) {
  std::vector<std::shared_ptr<Queue>> queues;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [key, queue] : streams) {
      if (queue->device() == device) queues.push_back(queue);
    }
  }
  for (const auto& queue : queues) queue->Wait();
}

}  // namespace fairway_driver

using namespace fairway_driver;

FAIRWAY_EXPORT int cuStreamCreate(void** stream, unsigned) {
  auto queue = MakeQueue(Current().device);
  *stream = static_cast<Stream*>(queue.get());
  const std::lock_guard lock(mutex);
  streams[{*stream, queue->device()}] = queue;
  return State();
}
FAIRWAY_EXPORT int cuStreamCreateWithPriority(void** stream, unsigned flags, int) {
  return cuStreamCreate(stream, flags);
}
FAIRWAY_EXPORT int cuStreamDestroy_v2(void* stream) {
  const std::lock_guard lock(mutex);
  const auto queue = streams.find({stream, static_cast<Stream*>(stream)->device()});
  if (queue == streams.end()) return kInvalidValue;
  queue->second->End();
  streams.erase(queue);
  return State();
}
FAIRWAY_EXPORT int cuStreamSynchronize(void* stream) {
  StreamOf(stream).Wait();
  return State();
}
FAIRWAY_EXPORT int cuStreamQuery(void* stream) {
  if (State() != kOk) return State();
  return static_cast<Queue&>(StreamOf(stream)).Idle() ? kOk : kNotReady;
}
FAIRWAY_EXPORT int cuStreamIsCapturing(void*, int* status) { return Give(status, 0); }
FAIRWAY_EXPORT int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  StreamOf(stream).DoAlways(
      [event = EventOf(event), until = EventOf(event)->Recorded()] { event->Wait(until); });
  return State();
}
FAIRWAY_EXPORT int cuLaunchHostFunc(void* stream, void (*call)(void*), void* data) {
  if (State() == kOk) StreamOf(stream).Do([=] { call(data); });
  return State();
}

FAIRWAY_EXPORT int cuEventCreate(void** event, unsigned) {
  *event = new SharedEvent(std::make_shared<Event>());
  return State();
}
FAIRWAY_EXPORT int cuEventDestroy_v2(void* event) {
  delete &EventOf(event);
  return State();
}
FAIRWAY_EXPORT int cuEventRecord(void* event, void* stream) {
  StreamOf(stream).DoAlways(
      [event = EventOf(event), number = EventOf(event)->Record()] { event->Reach(number); });
  return State();
}
FAIRWAY_EXPORT int cuEventQuery(void* event) {
  if (State() != kOk) return State();
  Event& asked = *EventOf(event);
  const std::lock_guard lock(asked.mutex);
  return asked.reached >= asked.recorded ? kOk : kNotReady;
}
FAIRWAY_EXPORT int cuEventSynchronize(void* event) {
  const SharedEvent asked = EventOf(event);
  asked->Wait(asked->Recorded());
  return State();
}
FAIRWAY_EXPORT int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  const auto between = EventOf(to)->when - EventOf(from)->when;
  *milliseconds = std::chrono::duration<float, std::milli>(between).count();
  return State();
}
