// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#include <spdlog/spdlog.h>

#include "graph/callback.h"
#include "worker/ffi/host_calls.h"
#include "worker/ffi/kernels.h"

namespace fairway::ffi {
namespace {

struct Launches {
  std::mutex mutex;
  std::map<int64_t, std::weak_ptr<CallingLaunch>> by_run;
};

// One for the process, like the plugin's client. Never destroyed: threads of the plugin may outlive
// main.
Launches& AllLaunches() {
  static auto* const launches = new Launches();
  return *launches;
}

std::atomic<bool> any_failed = false;

absl::Status CheckValue(std::string_view kind, size_t index, const Value& value) {
  if (value.dtype == DType::kToken) return absl::OkStatus();
  // Hosts have no one-bit type.
  if (BytesPerElement(value.dtype) > 0 && PackedBits(value.dtype) != 1) return absl::OkStatus();
  return InvalidArgument("{} {} of a callback is of {}, which cannot be passed to a function", kind,
                         index, Name(value.dtype));
}

void FillWithZeros(const Call& call) {
  for (const Value& value : call.rets) {
    const int64_t bytes = MemoryBytes(value);
    if (bytes > 0) std::memset(value.data, 0, static_cast<size_t>(bytes));
  }
}

}  // namespace

CallingLaunch::CallingLaunch(int64_t run, uint64_t launch_id, std::shared_ptr<HostCalls> calls,
                             bool alone)
    : run_(run), launch_id_(launch_id), calls_(std::move(calls)), alone_(alone) {}

CallingLaunch::~CallingLaunch() {
  Launches& all = AllLaunches();
  const std::lock_guard lock(all.mutex);
  const auto it = all.by_run.find(run_);
  if (it != all.by_run.end() && it->second.expired()) all.by_run.erase(it);
}

std::shared_ptr<CallingLaunch> BeginCalling(int64_t run, uint64_t launch_id,
                                            std::shared_ptr<HostCalls> calls, bool alone) {
  auto launch = std::make_shared<CallingLaunch>(run, launch_id, std::move(calls), alone);
  Launches& all = AllLaunches();
  const std::lock_guard lock(all.mutex);
  all.by_run[run] = launch;
  return launch;
}

std::shared_ptr<CallingLaunch> FindCallingLaunch(int64_t run) {
  Launches& all = AllLaunches();
  const std::lock_guard lock(all.mutex);
  const auto it = all.by_run.find(run);
  return it == all.by_run.end() ? nullptr : it->second.lock();
}

void CallingLaunch::Run(const Call& call) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) {
      called_again_ = true;
      return FillWithZeros(call);
    }
  }
  absl::Status status = absl::UnimplementedError("this runtime cannot call functions of clients");
  try {
    if (calls_ != nullptr) status = calls_->Run(launch_id_, call);
  } catch (const std::exception& error) {  // no memory for the call
    status = Error(absl::StatusCode::kResourceExhausted, "a callback: {}", error.what());
  }
  if (status.ok()) return;
  FillWithZeros(call);
  any_failed.store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = std::move(status);
}

bool CallingLaunch::GoesOn(int64_t loop, int64_t device) {
  const std::lock_guard lock(mutex_);
  Loop& asked = loops_[loop];
  if (!failure_.ok() && !asked.end.has_value()) asked.end = asked.most;
  const int64_t round = asked.rounds[device]++;
  asked.most = std::max(asked.most, round + 1);
  return !asked.end.has_value() || round < *asked.end;
}

bool AnyCallHasFailed() { return any_failed.load(std::memory_order_acquire); }

absl::Status CallingLaunch::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool CallingLaunch::stop() const {
  const std::lock_guard lock(mutex_);
  return alone_ && called_again_;
}

absl::Status Callback::Check(const Call& call) {
  if (AttributeOr(call, "function", -1) < 0) {
    return InvalidArgument("attribute \"function\" is missing or no number of a function");
  }
  if (std::max(call.args.size(), call.rets.size()) > kMaxCallbackArrays) {
    return InvalidArgument("a callback with {} operands and {} results: each may be at most {}",
                           call.args.size(), call.rets.size(), kMaxCallbackArrays);
  }
  for (size_t i = 0; i < call.args.size(); ++i) {
    FAIRWAY_RETURN_IF_ERROR(CheckValue("operand", i, call.args[i]));
  }
  for (size_t i = 0; i < call.rets.size(); ++i) {
    FAIRWAY_RETURN_IF_ERROR(CheckValue("result", i, call.rets[i]));
  }
  return absl::OkStatus();
}

absl::Status GoOn::Check(const Call& call) {
  const auto is_condition = [](std::span<const Value> values) {
    return values.size() == 1 && values[0].dtype == DType::kPred && values[0].dims.empty();
  };
  if (AttributeOr(call, "loop", -1) < 0)
    return InvalidArgument("attribute \"loop\" is missing or no number of a loop");
  if (!is_condition(call.args) || !is_condition(call.rets))
    return InvalidArgument("{} operands and {} results, expected one pred[] each", call.args.size(),
                           call.rets.size());
  return absl::OkStatus();
}

void GoOn::Run(const Call& call) {
  const std::shared_ptr<CallingLaunch> launch = FindCallingLaunch(call.run);
  const bool goes_on =
      launch == nullptr || launch->GoesOn(AttributeOr(call, "loop", 0), call.device);
  *call.rets[0].as<bool>() = goes_on && *call.args[0].as<bool>();
}

void Callback::Run(const Call& call) {
  const std::shared_ptr<CallingLaunch> launch = FindCallingLaunch(call.run);
  if (launch != nullptr) return launch->Run(call);
  FillWithZeros(call);
  spdlog::error("launch {} made a callback, but it is not known to make any", call.run);
}

}  // namespace fairway::ffi
