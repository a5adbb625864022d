// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/host/execution.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <absl/container/inlined_vector.h>

#include "worker/executor/runtime/host/all_reduce.h"
#include "worker/executor/runtime/host/kernels.h"

namespace fairway {
namespace {

class Execution {
 public:
  Execution(const NativeProgram& program, std::vector<std::vector<Bytes>>& values,
            Exchange* exchange, uint64_t launch)
      : program_(program), values_(values), exchange_(exchange), launch_(launch) {}

  absl::Status Run() {
    for (Values& values : values_) values.resize(program_.values.size());
    for (uint32_t round = 0; round < program_.repeat; ++round) {
      if (round > 0) NextRound();
      for (int s = 0; s < static_cast<int>(program_.steps.size()); ++s) {
        FAIRWAY_RETURN_IF_ERROR(RunStep(s));
      }
    }
    for (Values& values : values_) {
      PutResultsFirst(values);
      values.resize(program_.results.size());
    }
    return absl::OkStatus();
  }

 private:
  using Values = std::vector<Bytes>;

  const NativeProgram::Value& TypeOfResult(int s) const {
    return program_.values[program_.num_parameters + s];
  }
  Bytes& ResultOf(Values& values, int s) const { return values[program_.num_parameters + s]; }

  void PutResultsFirst(Values& values) const {
    absl::InlinedVector<Bytes, 4> results;
    for (const auto& result : program_.results) results.push_back(values[result.value]);
    values.resize(std::max(values.size(), results.size()));
    std::ranges::move(results, values.begin());
  }

  // Arguments beyond the results stay.
  void NextRound() {
    for (Values& values : values_) {
      PutResultsFirst(values);
      std::fill(values.begin() + program_.num_parameters, values.end(), nullptr);
    }
  }

  absl::Status NoMemory(int s) const {
    const NativeProgram::Value& type = TypeOfResult(s);
    return Error(absl::StatusCode::kResourceExhausted,
                 "native program '{}', step {} ({}): no memory for {}", program_.name, s,
                 Name(program_.steps[s].kernel), ToString(type.dtype, type.shape));
  }

  // Returns the block for the result of step `s`: that of operand 0 if nobody else can see it any
  // more, else a new one, uninitialised. nullptr: no memory.
  Bytes BlockFor(Values& values, int s) const {
    const NativeProgram::Step& step = program_.steps[s];
    const int first = step.operands[0];
    if (step.kernel != NativeKernel::kMatmul && program_.values[first].last_reader == s &&
        std::count(step.operands.begin(), step.operands.end(), first) == 1 &&
        values[first].use_count() == 1) {
      std::atomic_thread_fence(std::memory_order_acquire);  // after the last other reader
      return values[first];
    }
    const NativeProgram::Value& type = TypeOfResult(s);
    return Blob::Make(static_cast<size_t>(ByteSize(type.dtype, type.shape).value_or(0)));
  }

  // Makes `block` a copy of `from`, unless they are the same.
  static void CopyInto(Blob& block, const Blob& from) {
    if (&block != &from) std::copy_n(from.data(), from.size(), block.data());
  }

  absl::Status RunStep(int s) {
    const NativeProgram::Step& step = program_.steps[s];
    switch (step.kernel) {
      case NativeKernel::kAllReduce:
        FAIRWAY_RETURN_IF_ERROR(AllReduce(s));
        break;
      case NativeKernel::kBusyWait:
      case NativeKernel::kSleep:  // the devices of a gang sleep at the same time
        if (step.kernel == NativeKernel::kSleep) std::this_thread::sleep_for(step.time);
        if (step.kernel == NativeKernel::kBusyWait) kernels::BusyWait(step.time);
        for (Values& values : values_) ResultOf(values, s) = values[step.operands[0]];
        break;
      default:
        for (Values& values : values_) FAIRWAY_RETURN_IF_ERROR(RunOnDevice(values, s));
    }
    for (Values& values : values_) {
      for (int operand : step.operands) {
        if (program_.values[operand].last_reader == s) values[operand] = nullptr;
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunOnDevice(Values& values, int s) const {
    const NativeProgram::Step& step = program_.steps[s];
    const DType dtype = TypeOfResult(s).dtype;
    Bytes out = BlockFor(values, s);
    if (out == nullptr) return NoMemory(s);
    const Blob& first = *values[step.operands[0]];
    const auto bytes = static_cast<int64_t>(out->size());
    if (step.kernel == NativeKernel::kMatmul) {
      const std::vector<int64_t>& a = program_.values[step.operands[0]].shape.dims;
      const std::vector<int64_t>& b = program_.values[step.operands[1]].shape.dims;
      kernels::Matmul(dtype, out->data(), first.data(), values[step.operands[1]]->data(), a[0],
                      a[1], b[1]);
    } else if (step.kernel == NativeKernel::kScale) {
      kernels::Scale(dtype, out->data(), first.data(), step.factor, bytes);
    } else {
      CopyInto(*out, first);
      for (size_t i = 1; i < step.operands.size(); ++i) {
        kernels::AddInto(dtype, out->data(), values[step.operands[i]]->data(), bytes);
      }
    }
    ResultOf(values, s) = std::move(out);
    return absl::OkStatus();
  }

  absl::Status AllReduce(int s) {
    const int operand = program_.steps[s].operands[0];
    Bytes sum = BlockFor(values_[0], s);
    if (sum == nullptr) return NoMemory(s);
    CopyInto(*sum, *values_[0][operand]);
    if (sum == values_[0][operand]) values_[0][operand] = nullptr;  // read for the last time
    for (size_t d = 1; d < values_.size(); ++d) {
      kernels::AddInto(TypeOfResult(s).dtype, sum->data(), values_[d][operand]->data(),
                       static_cast<int64_t>(sum->size()));
    }
    if (exchange_ != nullptr) {
      if (++exchanged_ == 0) ++exchanged_;
      auto all =
          AllReduceOver(*exchange_, launch_, exchanged_, TypeOfResult(s).dtype, std::move(sum));
      if (!all.ok()) {
        return Annotate(all.status(),
                        fmt::format("native program '{}', step {} (all_reduce)", program_.name, s));
      }
      sum = *std::move(all);
    }
    for (Values& values : values_) ResultOf(values, s) = sum;
    return absl::OkStatus();
  }

  const NativeProgram& program_;
  // [device][value]; nullptr: not made yet, or read for the last time
  std::vector<Values>& values_;
  Exchange* const exchange_;
  const uint64_t launch_;
  uint32_t exchanged_ = 0;  // all_reduces so far
};

}  // namespace

absl::Status RunNative(const NativeProgram& program, std::vector<std::vector<Bytes>>& values,
                       Exchange* exchange, uint64_t launch) {
  return Execution(program, values, exchange, launch).Run();
}

}  // namespace fairway
