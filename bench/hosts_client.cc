// SPDX-License-Identifier: Apache-2.0
// Makes the controller hold arrays and gangs that wait, over all devices of a cluster of the sim
// runtime, for hosts_bench.py:
//   hosts_client ADDRESS ARRAYS GANGS
// Prints "arrays" when ARRAYS arrays over all devices are ready, "gangs" when GANGS calls wait for
// a value that comes in an hour. Before each of them, and in the end, it waits for a line of
// standard input.
#include <chrono>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "fairway/fairway.h"

namespace {

using fairway::Array;
using fairway::DType;
using fairway::NativeProgram;

// f32[devices], a value on each device, after `time`.
NativeProgram Step(int devices, std::chrono::nanoseconds time) {
  NativeProgram program("step");
  const auto x = program.Parameter(DType::kF32, {devices}, {devices});
  program.Result(time.count() > 0 ? program.Sleep(x, time) : program.Scale(x, 2), {devices});
  return program;
}

void Expect(const fairway::Status& status) {
  if (!status.ok()) fairway::client::DieOf(status);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  fairway::Session session = fairway::Connect(argv[1]).value();
  const int arrays = std::stoi(argv[2]), gangs = std::stoi(argv[3]);
  std::vector<int> devices(session.devices().size());
  std::iota(devices.begin(), devices.end(), 0);
  const int n = static_cast<int>(devices.size());
  const auto step = session.Compile(Step(n, {}), devices).Get().value();
  const auto slow = session.Compile(Step(n, std::chrono::hours(1)), devices).Get().value();
  const Array first = session.Put(std::vector<float>(n, 1), {n}, step.parameters()[0].sharding);
  Expect(first.Ready().Get());
  std::vector<Array> held;
  std::string line;
  std::getline(std::cin, line);
  while (static_cast<int>(held.size()) < arrays) {
    held.push_back(step.Call({first})[0]);
    if (held.size() % 256 == 0) Expect(held.back().Ready().Get());
  }
  for (const Array& array : held) Expect(array.Ready().Get());
  std::cout << "arrays" << std::endl;
  std::getline(std::cin, line);
  const Array late = slow.Call({first})[0];
  for (int i = 0; i < gangs; ++i) held.push_back(step.Call({late})[0]);
  Expect(session.Put(std::vector<float>(n, 1), {n}, step.parameters()[0].sharding).Ready().Get());
  std::cout << "gangs" << std::endl;
  std::getline(std::cin, line);
}
