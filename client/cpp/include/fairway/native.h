// SPDX-License-Identifier: Apache-2.0
// Programs of named kernels, for slices whose runtime is host or sim. On sim they take the time of
// Sleep and BusyWait, and their results are zeros.
#ifndef FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_NATIVE_H_
#define FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_NATIVE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fairway/export.h"
#include "fairway/types.h"

namespace fairway::client {

// Builds one program, step by step. Each device works on its own shards; only AllReduce crosses
// devices. Compiling finds errors; the text names the step.
//
//   NativeProgram program("axpy");
//   const auto x = program.Parameter(DType::kF32, {1024}), y = program.Parameter(DType::kF32,
//   {1024}); program.Result(program.Add({program.Scale(x, 2.0), y}));
//
// Not thread-safe.
class NativeProgram {
 public:
  // A parameter, or the result of a step. Valid only in the program that made it.
  struct Value {
    uint32_t number = 0;
  };

  FAIRWAY_API explicit NativeProgram(std::string name);
  FAIRWAY_API ~NativeProgram();
  FAIRWAY_API NativeProgram(const NativeProgram& other);
  FAIRWAY_API NativeProgram& operator=(const NativeProgram& other);

  // Adds the next parameter. `tiles`: pieces per dimension, which must divide it; device i of the
  // program has tile i. Without tiles each device has the whole. All parameters must come before
  // the first step, else compiling fails. `donated`: the program may take its memory over.
  FAIRWAY_API Value Parameter(DType dtype, Shape shape, std::vector<int64_t> tiles = {},
                              bool donated = false);

  // The sum of all operands, which have the same type.
  FAIRWAY_API Value Add(const std::vector<Value>& operands);
  // For integer types `factor` is a whole number.
  FAIRWAY_API Value Scale(Value operand, double factor);
  // The product of [m,k] and [k,n], f32 or f64, on each device alone.
  FAIRWAY_API Value Matmul(Value left, Value right);
  // The sum over the devices of the program, on each of them.
  FAIRWAY_API Value AllReduce(Value operand);
  // The operand, after `time` of computing (or of waiting), at most an hour.
  FAIRWAY_API Value BusyWait(Value operand, std::chrono::nanoseconds time);
  FAIRWAY_API Value Sleep(Value operand, std::chrono::nanoseconds time);

  // Adds the next result. `tiles`: how the devices' shards make up the whole, as for parameters.
  FAIRWAY_API void Result(Value value, std::vector<int64_t> tiles = {});

  // Runs the steps `times` times. Before each further round parameter i takes the value of result
  // i.
  FAIRWAY_API void Repeat(uint32_t times);

 private:
  friend class Access;
  struct State;
  Value Step(const char* kernel, const std::vector<Value>& operands);
  std::unique_ptr<State> state_;
};

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_NATIVE_H_
