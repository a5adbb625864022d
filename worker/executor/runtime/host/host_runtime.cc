// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/host/host_runtime.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "async/blocking_pool.h"
#include "base/host.h"
#include "worker/executor/runtime/host/execution.h"

namespace fairway {

// The threads that run launches whose inputs came late. Thread-safe.
class HostRuntime::Threads {
 public:
  explicit Threads(int count) : pool_(std::make_unique<BlockingPool>("host", count)) {}

  // Runs `work` on a thread of the pool, or on the caller's once the runtime is gone.
  void Run(absl::AnyInvocable<void()> work) {
    {
      std::lock_guard lock(mutex_);
      if (pool_ != nullptr) return pool_->Run(std::move(work));
    }
    std::move(work)();
  }
  // Runs the queued work.
  void Close() {
    std::unique_lock lock(mutex_);
    std::unique_ptr<BlockingPool> pool = std::move(pool_);
    lock.unlock();
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<BlockingPool> pool_;
};

namespace {

std::vector<std::vector<Bytes>> Arguments(const NativeLaunch& launch) {
  std::vector<std::vector<Bytes>> arguments(launch.inputs.size());
  for (size_t d = 0; d < launch.inputs.size(); ++d) {
    // A donated block that is also another argument is in both lists, so nobody writes into it.
    for (const NativeCellPtr& cell : launch.inputs[d]) arguments[d].push_back(cell->bytes());
    for (size_t a = 0; a < launch.inputs[d].size(); ++a) {
      if (launch.taken[d][a]) launch.inputs[d][a]->Take();
    }
  }
  return arguments;
}

// One launch of a block.
class BlockRun {
 public:
  explicit BlockRun(NativeLaunch& launch)
      : launch_(launch),
        block_(*launch.block),
        values_(launch.devices.size(), std::vector<Bytes>(block_.values)),
        inner_(launch.devices.size()),
        failed_(block_.values) {
    for (size_t d = 0; d < launch.inputs.size(); ++d) {
      for (int32_t a = 0; a < block_.arguments; ++a) {
        const NativeCell& cell = *launch.inputs[d][a];
        values_[d][a] = cell.bytes();
        if (failed_[a].ok()) failed_[a] = *cell.outcome->Peek();
      }
    }
  }

  // Returns the error of the first call that failed.
  absl::Status Run() {
    absl::Status first;
    for (size_t c = 0; c < block_.calls.size(); ++c) {
      absl::Status status = Call(c);
      launch_.EndCall(c, status);
      if (first.ok()) first = std::move(status);
    }
    return first;
  }

 private:
  absl::Status Call(size_t c) {
    const NativeBlock::Call& call = block_.calls[c];
    absl::Status status;
    for (const int32_t value : call.inputs) {
      if (status.ok()) status = failed_[value];
    }
    for (size_t d = 0; d < values_.size(); ++d) {
      inner_[d].clear();
      for (const int32_t value : call.inputs) inner_[d].push_back(values_[d][value]);
      // So it may write into those that only it has.
      for (const int32_t value : call.ends) values_[d][value] = nullptr;
    }
    const size_t outputs = call.program->results.size();
    if (status.ok()) {
      status = RunNative(*call.program, inner_, call.exchange.get(), launch_.launch_id + c);
      for (size_t d = 0; status.ok() && d < values_.size(); ++d)
        std::ranges::move(inner_[d], values_[d].begin() + call.first_output);
    }
    if (!status.ok()) std::fill_n(failed_.begin() + call.first_output, outputs, status);
    for (const size_t result : call.results) {
      for (size_t d = 0; status.ok() && d < values_.size(); ++d)
        launch_.outputs[d][result]->Fill(values_[d][block_.results[result].value]);
    }
    for (auto& values : values_) {
      for (const int32_t value : call.ends) values[value] = nullptr;  // those that it has made
    }
    return status;
  }

  NativeLaunch& launch_;
  const NativeBlock& block_;
  std::vector<std::vector<Bytes>> values_;  // [device][value]
  std::vector<std::vector<Bytes>> inner_;   // those of one call, as RunNative takes them
  std::vector<absl::Status> failed_;        // by value
};

// Runs the launch; all inputs are there.
void Execute(NativeLaunch& launch) {
  if (launch.block != nullptr) return launch.End(BlockRun(launch).Run());
  absl::Status status = launch.FirstCause();
  if (status.ok()) {
    std::vector<std::vector<Bytes>> values = Arguments(launch);
    status = RunNative(*launch.program, values, launch.exchange.get(), launch.launch_id);
    for (size_t d = 0; status.ok() && d < launch.outputs.size(); ++d) {
      for (size_t o = 0; o < launch.outputs[d].size(); ++o) {
        launch.outputs[d][o]->Fill(std::move(values[d][o]));
      }
    }
  }
  launch.End(std::move(status));
}

}  // namespace

HostRuntime::HostRuntime(int num_devices)
    : NativeRuntime("host", "native kernels", num_devices, HostMemory(), kKeepAll),
      threads_(std::make_shared<Threads>(num_devices)) {}

HostRuntime::~HostRuntime() { threads_->Close(); }

absl::StatusOr<LaunchResult> HostRuntime::Launch(const LaunchRequest& request,
                                                 absl::AnyInvocable<void(absl::Status)> done) {
  auto launch = std::make_shared<NativeLaunch>();
  FAIRWAY_ASSIGN_OR_RETURN(LaunchResult result, Begin(request, std::move(done), *launch));
  if (launch->InputsEnded()) {
    Execute(*launch);
    return result;
  }
  std::vector<Outcome*> awaited;
  for (const auto& cells : launch->inputs) {
    for (const NativeCellPtr& cell : cells) awaited.push_back(cell->outcome.get());
  }
  WhenAllSet(awaited,
             [threads = threads_, launch] { threads->Run([launch] { Execute(*launch); }); });
  return result;
}

}  // namespace fairway
