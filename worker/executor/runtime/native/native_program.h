// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_NATIVE_NATIVE_PROGRAM_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_NATIVE_NATIVE_PROGRAM_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "fairway/v1/native.pb.h"
#include "worker/executor/runtime/launch_checks.h"

namespace fairway {

enum class NativeKernel : uint8_t { kAdd, kScale, kMatmul, kAllReduce, kBusyWait, kSleep };

// A checked v1::NativeProgram: every operand exists and has the type that its kernel takes. Types
// are those of one device's shard.
struct NativeProgram {
  struct Value {
    DType dtype = DType::kInvalid;
    Shape shape;
    // After this step nothing reads the value, in this round or a later one, so a kernel may write
    // into its bytes; -1: something reads it until the end.
    int last_reader = -1;
  };
  struct Step {
    NativeKernel kernel = NativeKernel::kAdd;
    std::vector<int> operands;
    double factor = 0;
    std::chrono::nanoseconds time{0};
  };
  struct Result {
    int value = 0;
    std::vector<int64_t> tiles;  // as given
  };

  std::string name;
  int num_devices = 1;
  int num_parameters = 0;
  std::vector<bool> donated;                // per parameter
  std::vector<std::vector<int64_t>> tiles;  // per parameter, as given
  std::vector<Value> values;                // parameters, then the result of each step
  std::vector<Step> steps;
  std::vector<Result> results;
  uint32_t repeat = 1;
  bool all_reduces = false;  // some step crosses devices
  // The time of all sleep and busy_wait steps, over all rounds; at most kLongestRun.
  std::chrono::nanoseconds declared_time{0};
  static constexpr std::chrono::nanoseconds kLongestRun = std::chrono::hours(100L * 365 * 24);

  // INVALID_ARGUMENT: the text names the program, the step, parameter or result that is wrong, what
  // it needs and what it got.
  static absl::StatusOr<NativeProgram> Make(const v1::NativeProgram& proto, int num_devices);
};

std::string_view Name(NativeKernel kernel);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_NATIVE_NATIVE_PROGRAM_H_
