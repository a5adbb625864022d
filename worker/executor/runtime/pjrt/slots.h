// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_SLOTS_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_SLOTS_H_

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace fairway::pjrt {

// Bounds the work under way in the client: gangs and programs of each device. Thread-safe.
class Slots {
 public:
  static constexpr int kGangsOnCpu = 2;  // each holds a thread of XLA's pool for each device
  static constexpr int kGangs = 24;      // as kPerDevice
  static constexpr int kPerDevice = 24;  // below XLA's own limit of 32

  Slots(int num_devices, int max_gangs)
      : max_gangs_(max_gangs),
        singles_(num_devices, 0),
        gangs_(num_devices, 0),
        alone_(num_devices, false) {}

  // Waits for a free slot on each of the devices. Gangs that share a device ask one after another.
  // `passes`: it does not wait for whoever has a device for itself, because it ends at once.
  void Take(const std::vector<int>& devices, bool passes = false) {
    std::unique_lock lock(mutex_);
    const bool gang = devices.size() > 1;
    std::vector<int>& used = gang ? gangs_ : singles_;
    const int limit = gang ? max_gangs_ : kPerDevice;
    freed_.wait(lock, [&] {
      return std::all_of(devices.begin(), devices.end(),
                         [&](int d) { return used[d] < limit && (passes || !alone_[d]); });
    });
    for (const int device : devices) ++used[device];
  }
  // Takes a slot on each of the devices, and keeps others from these until LetOthersIn. False, and
  // nothing is taken: something is under way on one of them.
  bool TakeAlone(const std::vector<int>& devices) {
    std::lock_guard lock(mutex_);
    for (const int d : devices) {
      if (singles_[d] > 0 || gangs_[d] > 0) return false;
    }
    for (const int d : devices) {
      ++(devices.size() > 1 ? gangs_ : singles_)[d];
      alone_[d] = true;
    }
    return true;
  }
  void LetOthersIn(const std::vector<int>& devices) {
    {
      std::lock_guard lock(mutex_);
      for (const int d : devices) alone_[d] = false;
    }
    freed_.notify_all();
  }
  void Give(const std::vector<int>& devices) {
    {
      std::lock_guard lock(mutex_);
      std::vector<int>& used = devices.size() > 1 ? gangs_ : singles_;
      for (const int device : devices) --used[device];
    }
    freed_.notify_all();
  }

 private:
  const int max_gangs_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<int> singles_, gangs_;  // by device
  std::vector<bool> alone_;           // by device: others wait for LetOthersIn
};

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_SLOTS_H_
