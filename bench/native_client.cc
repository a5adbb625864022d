// SPDX-License-Identifier: Apache-2.0
// Measures one C++ client of a cluster of the host runtime, with a program that does nothing (its
// result is its parameter). Prints one line of JSON for each round, for native_bench.py:
//   native_client ADDRESS ROUNDS STEPS
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "fairway/fairway.h"

namespace {

using Clock = std::chrono::steady_clock;

double Microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// p50 and p99 of `steps` runs, in microseconds.
struct Percentiles {
  double p50 = 0, p99 = 0;
};
Percentiles Measure(int steps, const std::function<void()>& run) {
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    const auto start = Clock::now();
    run();
    times.push_back(Microseconds(Clock::now() - start));
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() * 99 / 100]};
}

void Expect(const fairway::Status& status) {
  if (!status.ok()) fairway::client::DieOf(status);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int rounds = std::atoi(argv[2]), steps = std::atoi(argv[3]);
  fairway::Session session = fairway::Connect(argv[1]).value();
  fairway::NativeProgram nothing("nothing");
  nothing.Result(nothing.Parameter(fairway::DType::kF32, {}));
  const fairway::Executable program = session.Compile(nothing, {0}).Get().value();
  const fairway::Array one = session.Put(std::vector<float>{1}, {}, fairway::Sharding::Single(0));
  Expect(program.Call({one})[0].Ready().Get());
  for (int round = 0; round < rounds; ++round) {
    const Percentiles ping = Measure(steps, [&] { Expect(session.Ping().Get()); });
    const Percentiles call = Measure(steps, [&] { Expect(program.Call({one})[0].Ready().Get()); });
    const Percentiles fetch =
        Measure(steps, [&] { Expect(program.Call({one})[0].ToHost().Get().status()); });
    // A chain that is waited for only at its end, and independent calls.
    fairway::Array array = one;
    const auto start = Clock::now();
    for (int i = 0; i < 10 * steps; ++i) array = program.Call({array})[0];
    const double called = Microseconds(Clock::now() - start);
    Expect(array.Ready().Get());
    const double chain = Microseconds(Clock::now() - start);
    const auto again = Clock::now();
    for (int i = 0; i < 10 * steps; ++i) array = program.Call({one})[0];
    Expect(array.Ready().Get());
    Expect(session.Ping().Get());
    const double apart = Microseconds(Clock::now() - again);
    std::printf(
        "{\"ping\": %.2f, \"ping_p99\": %.2f, \"call\": %.2f, \"call_p99\": %.2f, \"fetch\": %.2f, "
        "\"dispatch\": %.3f, \"chain\": %.1f, \"apart\": %.1f}\n",
        ping.p50, ping.p99, call.p50, call.p99, fetch.p50, called / (10 * steps),
        1e6 * 10 * steps / chain, 1e6 * 10 * steps / apart);
    std::fflush(stdout);
  }
}
