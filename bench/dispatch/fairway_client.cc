// SPDX-License-Identifier: Apache-2.0
// Gang computations (an all-reduce of one scalar per device, then a scaling, chained) through a
// cluster of the host runtime in three styles, for dispatch_bench.py (bench/dispatch/serve.py
// describes its protocol):
//   dispatch_client ADDRESS DEVICES SCALE [FIRST]
// FIRST: the first device of those that it uses; 0 without it.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "fairway/fairway.h"

namespace {

using fairway::DType;
using fairway::Executable;
using fairway::NativeProgram;
using fairway::ProgramBuilder;
using Clock = std::chrono::steady_clock;

constexpr int kChain = 128;

NativeProgram Step(int devices, uint32_t times) {
  NativeProgram program("step");
  const auto x = program.Parameter(DType::kF32, {devices}, {devices});
  program.Result(program.Scale(program.AllReduce(x), 1.0 / devices), {devices});
  program.Repeat(times);
  return program;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  fairway::Session session = fairway::Connect(argv[1]).value();
  const int n = std::stoi(argv[2]);
  const int scale = std::stoi(argv[3]);
  std::vector<int> devices(n);
  std::iota(devices.begin(), devices.end(), argc == 5 ? std::stoi(argv[4]) : 0);
  const Executable single = session.Compile(Step(n, 1), devices).Get().value();
  const Executable fused = session.Compile(Step(n, kChain), devices).Get().value();
  ProgramBuilder builder("chain");
  const auto slice = builder.AddSlice("all", n);
  const ProgramBuilder::Type type{DType::kF32, {n}, {n}};
  const auto step = builder.AddNative(Step(n, 1), n, {type});
  builder.Result(builder.Loop(
      kChain, {builder.Argument(slice, type)},
      [&](const ProgramBuilder::Values& value) { return builder.Call(step, slice, value); })[0]);
  const Executable chain = session.Bind(builder, {devices}).Get().value();
  const auto run = [&](const Executable& executable, int calls) {
    fairway::Array value =
        session.Put(std::vector<float>(n, 1.0f), {n}, executable.parameters()[0].sharding);
    value = executable.Call({value})[0];
    if (!value.Ready().Get().ok()) return -1.0;
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) value = executable.Call({value})[0];
    if (!value.Ready().Get().ok()) return -1.0;
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  std::cout << "ready OpByOp,Chained,Fused" << std::endl;
  for (std::string style; std::getline(std::cin, style);) {
    const bool single_steps = style == "OpByOp";
    const int calls = std::max(1, (single_steps ? 2048 : style == "Chained" ? 64 : 256) / scale);
    const double seconds = run(single_steps ? single : style == "Chained" ? chain : fused, calls);
    if (seconds < 0) {
      std::cout << "error a step failed" << std::endl;
    } else {
      std::cout << calls * (single_steps ? 1 : kChain) << " " << seconds << std::endl;
    }
  }
}
