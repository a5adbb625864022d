// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/sim/sim_runtime.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <utility>

#include "worker/executor/runtime/reduce.h"
#include "worker/executor/runtime/sim/device_times.h"
#include "worker/executor/runtime/sim/timer.h"

namespace fairway {

using Clock = std::chrono::steady_clock;

struct SimRuntime::Devices {
  explicit Devices(int num_devices) : times(num_devices) {}

  std::mutex mutex;
  DeviceTimes times;
  Timer timer;
  // The offset from this process's clock to a clock that the executors of an island share.
  const std::chrono::nanoseconds to_shared =
      std::chrono::system_clock::now().time_since_epoch() - Clock::now().time_since_epoch();
};

namespace {

constexpr uint32_t kStartRound = 1;

// Returns when the last of the executors that run the launch can begin. Waits for their answers.
absl::StatusOr<Clock::time_point> AgreedStart(NativeLaunch& launch, Clock::time_point mine,
                                              std::chrono::nanoseconds to_shared) {
  Exchange& exchange = *launch.exchange;
  int64_t start = (mine.time_since_epoch() + to_shared).count();
  Bytes told = Blob::Copy({reinterpret_cast<const char*>(&start), sizeof start});
  const auto latest = ReducePushed(exchange, launch.launch_id, kStartRound, std::move(told),
                                   [](char* into, const char* more) {
                                     int64_t mine = 0, other = 0;
                                     std::memcpy(&mine, into, sizeof mine);
                                     std::memcpy(&other, more, sizeof other);
                                     mine = std::max(mine, other);
                                     std::memcpy(into, &mine, sizeof mine);
                                   });
  exchange.End(launch.launch_id, latest.status());
  launch.exchange = nullptr;
  if (!latest.ok()) {
    return Annotate(latest.status(),
                    fmt::format("native program '{}', its start on all executors of the island",
                                launch.program->name));
  }
  std::memcpy(&start, (*latest)->data(), sizeof start);
  return Clock::time_point(std::chrono::nanoseconds(start) - to_shared);
}

// Returns the earliest start that inputs and devices allow, and that the other executors agree to.
absl::StatusOr<Clock::time_point> StartOf(SimRuntime::Devices& devices, NativeLaunch& launch,
                                          Clock::time_point asked) {
  FAIRWAY_RETURN_IF_ERROR(launch.FirstCause());
  Clock::time_point start = asked;
  for (const auto& cells : launch.inputs) {
    for (const NativeCellPtr& cell : cells) {
      if (cell->due != nullptr) start = std::max(start, cell->due->at);
    }
  }
  {
    std::lock_guard lock(devices.mutex);
    start = devices.times.Start(launch.devices, start);
  }
  if (launch.exchange == nullptr || !launch.program->all_reduces) return start;
  return AgreedStart(launch, start, devices.to_shared);
}

// All inputs are known: computes when the launch ends, and ends it then.
void Schedule(const std::shared_ptr<SimRuntime::Devices>& devices,
              const std::shared_ptr<NativeLaunch>& launch, Clock::time_point asked) {
  auto start = StartOf(*devices, *launch, asked);
  if (!start.ok()) {
    launch->due->known.Set(start.status());
    return launch->End(start.status());
  }
  {
    std::lock_guard lock(devices->mutex);
    launch->due->at = devices->times.Take(launch->devices, *start, launch->program->declared_time);
  }
  const bool over = launch->due->at <= Clock::now() && launch->InputsEnded();
  launch->due->known.Set(absl::OkStatus());
  if (over) return launch->End(absl::OkStatus());
  devices->timer.At(launch->due->at, [launch] { launch->End(absl::OkStatus()); });
}

}  // namespace

SimRuntime::SimRuntime(int num_devices)
    : NativeRuntime("sim", "declared times", num_devices, 0, kKeptBytes),
      devices_(std::make_shared<Devices>(num_devices)) {}

SimRuntime::~SimRuntime() { devices_->timer.Close(); }

void SimRuntime::NoteLaunch(uint64_t launch_id) {
  std::lock_guard lock(devices_->mutex);
  devices_->times.Told(launch_id, Clock::now());
}

absl::StatusOr<LaunchResult> SimRuntime::Launch(const LaunchRequest& request,
                                                absl::AnyInvocable<void(absl::Status)> done) {
  auto launch = std::make_shared<NativeLaunch>();
  launch->due = std::make_shared<Due>();
  FAIRWAY_ASSIGN_OR_RETURN(LaunchResult result, Begin(request, std::move(done), *launch));
  std::vector<Outcome*> awaited;
  bool late = false;  // it waits for an input that no launch makes
  for (const auto& cells : launch->inputs) {
    for (const NativeCellPtr& cell : cells) {
      Outcome& known = cell->due != nullptr ? cell->due->known : *cell->outcome;
      if (known.Peek().has_value()) continue;
      awaited.push_back(&known);
      late = late || cell->due == nullptr;
    }
  }
  Clock::time_point asked;
  {
    std::lock_guard lock(devices_->mutex);
    asked = devices_->times.ToldAt(launch->launch_id, Clock::now());
  }
  if (awaited.empty()) {
    Schedule(devices_, launch, asked);
    return result;
  }
  WhenAllSet(awaited, [devices = devices_, launch, asked, late] {
    const Clock::time_point now = Clock::now();
    // Goes through the timer's thread: otherwise a chain of launches would recurse.
    devices->timer.At(now, [devices, launch, from = late ? std::max(asked, now) : asked] {
      Schedule(devices, launch, from);
    });
  });
  return result;
}

}  // namespace fairway
