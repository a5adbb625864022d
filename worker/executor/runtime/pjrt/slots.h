// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_SLOTS_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_SLOTS_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace fairway::pjrt {

// Bounds the work under way in the client: gangs, and programs of each device. Thread-safe.
class Slots {
 public:
  static constexpr int kGangsOnCpu = 2;  // each holds threads of XLA's pool
  static constexpr int kGangs = 24;      // as kPerDevice
  static constexpr int kPerDevice = 24;  // below XLA's own limit of 32

  Slots(int num_devices, int max_gangs) : max_gangs_(max_gangs), singles_(num_devices, 0) {}

  // Waits for a free slot. `device` < 0: a gang.
  void Take(int device) {
    std::unique_lock lock(mutex_);
    int& used = Used(device);
    const int limit = device < 0 ? max_gangs_ : kPerDevice;
    freed_.wait(lock, [&] { return used < limit; });
    ++used;
  }
  void Give(int device) {
    {
      std::lock_guard lock(mutex_);
      --Used(device);
    }
    freed_.notify_all();
  }

 private:
  int& Used(int device) { return device < 0 ? gangs_ : singles_[device]; }

  const int max_gangs_;
  std::mutex mutex_;
  std::condition_variable freed_;
  int gangs_ = 0;
  std::vector<int> singles_;
};

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_SLOTS_H_
