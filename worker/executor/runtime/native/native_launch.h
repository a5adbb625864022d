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

// The `kept` of a NativeCell that keeps all bytes.
inline constexpr size_t kKeepAll = SIZE_MAX;

// When a launch of the sim runtime ends.
struct Due {
  // set with `at`, or with the reason why the launch will not run
  Outcome known;
  std::chrono::steady_clock::time_point at;  // written before `known` is set
};

// One shard. Shared by a buffer and the launches that read or make it. Thread-safe.
class NativeCell {
 public:
  // `kept`: a cell of more bytes keeps none, and reads as zeros (sim). `due`: the end of the launch
  // of the sim runtime that makes the shard; else nullptr.
  NativeCell(BufferSpec spec, size_t kept, std::shared_ptr<Outcome> outcome,
             std::shared_ptr<Due> due = nullptr)
      : spec(std::move(spec)), outcome(std::move(outcome)), due(std::move(due)), kept_(kept) {}

  const BufferSpec spec;
  const std::shared_ptr<Outcome> outcome;  // set after the bytes
  const std::shared_ptr<Due> due;

  void Fill(Bytes bytes);
  // Copies the bytes of `from`, which is ready. RESOURCE_EXHAUSTED: no memory; FAILED_PRECONDITION:
  // `from` was donated.
  absl::Status FillFrom(const NativeCell& from);
  // nullptr: the bytes are not there yet, were given up, or are not kept.
  Bytes bytes() const;
  // Returns the bytes, or zeros in their place. The cell must be ready. Errors: as FillFrom.
  absl::StatusOr<HostView> View() const;

  // Gives the bytes up for good. They may still come; then Take gets them.
  void Consume();
  bool consumed() const;
  // Returns the bytes to the launch that consumed them, once they are there.
  Bytes Take();

 private:
  const size_t kept_;
  mutable std::mutex mutex_;
  bool consumed_ = false;
  Bytes bytes_;
};
using NativeCellPtr = std::shared_ptr<NativeCell>;

// Programs that run one behind the other in one launch. As LinkRequest, which has been checked.
struct NativeBlock {
  struct Call {
    std::shared_ptr<const NativeProgram> program;
    std::shared_ptr<Exchange> exchange;
    std::vector<int32_t> inputs;
    int32_t first_output = 0;  // a value; the others follow
    std::vector<int32_t> ends;
    std::vector<size_t> results;  // of the block, that it makes
  };
  struct Result {
    int32_t value = 0;
    size_t call = 0, output = 0;  // that make it
  };
  int32_t arguments = 0, values = 0;
  std::vector<Call> calls;
  std::vector<Result> results;
};

// One launch, from its checks to its end.
struct NativeLaunch {
  std::shared_ptr<const NativeProgram> program;  // of a block: the first one
  std::shared_ptr<const NativeBlock> block;      // nullptr: it is no block
  std::vector<int> devices;
  std::vector<std::vector<NativeCellPtr>> inputs;   // [device][argument]
  std::vector<std::vector<bool>> taken;             // whether this launch consumed it
  std::vector<std::vector<NativeCellPtr>> outputs;  // [device][output]
  std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();  // of all outputs
  std::vector<std::shared_ptr<Outcome>> outcomes;                  // of a block, by call, instead
  std::shared_ptr<Due> due;                                        // sim only
  absl::AnyInvocable<void(absl::Status)> done;
  std::shared_ptr<Exchange> exchange;  // to the other executors that run it; nullptr: none
  uint64_t launch_id = 0;

  // Returns the first known failure of an input, in order.
  absl::Status FirstCause() const;
  // Returns whether all inputs have ended, with or without an error.
  bool InputsEnded() const;
  // Releases the inputs and sets the outcome, which blocks do not have. Called once.
  void End(absl::Status status);
  // Of a block: sets the outcome of a call and tells the other executors. Called once for each, in
  // order, before End.
  void EndCall(size_t call, const absl::Status& status);
};

// Calls `then` once, when all of these are set; within this call if they are set by now.
void WhenAllSet(const std::vector<Outcome*>& outcomes, absl::AnyInvocable<void()> then);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_NATIVE_NATIVE_LAUNCH_H_
