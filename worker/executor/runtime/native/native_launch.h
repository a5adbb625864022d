// SPDX-License-Identifier: Apache-2.0
// The shards that native programs read and make, and one launch of such a program.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_NATIVE_NATIVE_LAUNCH_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_NATIVE_NATIVE_LAUNCH_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>

#include "worker/executor/runtime/exchange.h"
#include "worker/executor/runtime/launch_checks.h"
#include "worker/executor/runtime/native/native_program.h"
#include "worker/executor/runtime/outcome.h"

namespace fairway {

using Bytes = std::shared_ptr<Blob>;

// For NativeCell: it keeps all bytes.
inline constexpr size_t kKeepAll = SIZE_MAX;

// When a launch of the sim runtime ends.
struct Due {
  Outcome known;                             // set when `at` is; or with why it will not run
  std::chrono::steady_clock::time_point at;  // written before `known` is set
};

// One shard, shared by a buffer and the launches that read or make it. Thread-safe.
class NativeCell {
 public:
  // `kept`: of more bytes than that the cell keeps none, and reads as zeros (sim). `due`: of what a
  // launch of the sim runtime makes, else nullptr.
  NativeCell(BufferSpec spec, size_t kept, std::shared_ptr<Outcome> outcome,
             std::shared_ptr<Due> due = nullptr)
      : spec(std::move(spec)), outcome(std::move(outcome)), due(std::move(due)), kept_(kept) {}

  const BufferSpec spec;
  const std::shared_ptr<Outcome> outcome;  // set after the bytes
  const std::shared_ptr<Due> due;

  void Fill(Bytes bytes);
  // Bytes of their own, as those of `from`, which is ready. RESOURCE_EXHAUSTED: no memory;
  // FAILED_PRECONDITION: `from` was donated.
  absl::Status FillFrom(const NativeCell& from);
  // nullptr: none yet, none any more, or none are kept.
  Bytes bytes() const;
  // Its bytes, or zeros in their place. Once it is ready. Errors: as FillFrom.
  absl::StatusOr<HostView> View() const;

  // Gives the bytes up for good; they may come later (Take).
  void Consume();
  bool consumed() const;
  // For the launch that consumed it, once they are there.
  Bytes Take();

 private:
  const size_t kept_;
  mutable std::mutex mutex_;
  bool consumed_ = false;
  Bytes bytes_;
};
using NativeCellPtr = std::shared_ptr<NativeCell>;

// From its checks to its end.
struct NativeLaunch {
  std::shared_ptr<const NativeProgram> program;
  std::vector<int> devices;
  std::vector<std::vector<NativeCellPtr>> inputs;   // [device][argument]
  std::vector<std::vector<bool>> taken;             // whether this launch consumed it
  std::vector<std::vector<NativeCellPtr>> outputs;  // [device][output]
  std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();  // of all outputs
  std::shared_ptr<Due> due;                                        // sim only
  absl::AnyInvocable<void(absl::Status)> done;
  std::shared_ptr<Exchange> exchange;  // with the other executors that run it; nullptr: none
  uint64_t launch_id = 0;

  // The first input, in order, that is known to have failed.
  absl::Status FirstCause() const;
  // Whether all inputs have ended, well or not.
  bool InputsEnded() const;
  // Lets the inputs go and tells everybody. Once.
  void End(absl::Status status);
};

// Calls `then` once, when all of these are set: in this call if they are by now.
void WhenAllSet(const std::vector<Outcome*>& outcomes, absl::AnyInvocable<void()> then);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_NATIVE_NATIVE_LAUNCH_H_
