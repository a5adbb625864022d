// SPDX-License-Identifier: Apache-2.0
// A client with devices of its own, which runs a small step every millisecond and fetches its
// result, until its standard input ends (hostile.py):
//   neighbour ADDRESS DEVICE [DEVICE]
// On two devices the step is a gang.
// Prints "ready" after the first step. A byte on its standard input says that the case begins. At
// the end it prints one line of JSON: the number of steps, how many of them began and ended while
// the case ran, and their times in milliseconds; or the error that ended it.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "fairway/fairway.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPeriod = std::chrono::milliseconds(1);

enum class Input { kNone, kBegun, kEnded };

// Waits until `until`, or until standard input has a byte or has ended.
Input WaitForInput(Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, std::max<int>(0, static_cast<int>(left.count()))) <= 0) return Input::kNone;
  char byte;
  return read(STDIN_FILENO, &byte, 1) <= 0 ? Input::kEnded : Input::kBegun;
}

[[noreturn]] void Fail(const std::string& error, size_t steps) {
  std::string text;
  for (const char c : error) text += c == '"' || c == '\\' || c < ' ' ? ' ' : c;
  std::printf("{\"error\": \"after %zu steps: %s\"}\n", steps, text.c_str());
  std::exit(1);
}

double At(const std::vector<double>& sorted, double part) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(part * sorted.size()))];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  std::vector<int> devices;
  for (int i = 2; i < argc; ++i) devices.push_back(std::atoi(argv[i]));
  auto session = fairway::Connect(argv[1]);
  if (!session.ok()) Fail(session.status().message(), 0);
  fairway::NativeProgram twice("twice");
  const auto parameter = twice.Parameter(fairway::DType::kF32, {});
  twice.Result(devices.size() == 2 ? twice.AllReduce(parameter) : twice.Scale(parameter, 2));
  const auto program = session->Compile(twice, devices).Get();
  if (!program.ok()) Fail(program.status().message(), 0);
  const fairway::Sharding sharding = devices.size() == 2 ? fairway::Sharding::Replicated(devices)
                                                         : fairway::Sharding::Single(devices[0]);
  std::vector<double> took;
  size_t before = 0;  // steps before the case began
  auto next = Clock::now();
  for (Input input = Input::kNone; input != Input::kEnded;) {
    const auto start = Clock::now();
    const float x = static_cast<float>(took.size() % 1000);
    const fairway::Array array = session->Put(std::vector<float>{x}, {}, sharding);
    const auto result = program->Call({array})[0].ToHost().Get();
    if (!result.ok()) Fail(result.status().message(), took.size());
    if (result->values<float>()[0] != 2 * x) Fail("a wrong result", took.size());
    took.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    if (took.size() == 1) {
      std::puts("ready");
      std::fflush(stdout);
    }
    next = std::max(next + kPeriod, Clock::now());
    input = WaitForInput(next);
    if (input == Input::kBegun) before = took.size();
  }
  // The last step may have ended after the case.
  const size_t beside = took.size() - std::min(took.size(), before + 1);
  std::sort(took.begin(), took.end());
  std::printf("{\"steps\": %zu, \"beside\": %zu, \"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f}\n",
              took.size(), beside, At(took, 0.5), At(took, 0.99), took.back());
}
