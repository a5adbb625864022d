// SPDX-License-Identifier: Apache-2.0
// A client of islands of several executors (test_islands.py).
//   islands_program ADDRESS sums       all_reduce over every island, and arrays from one to another
//   islands_program ADDRESS run SLICE  gangs until one fails, then until new work runs again
//   islands_program ADDRESS loops SLICE  runs of a program of brief steps, each of which needs sums
//                                      of the one before, until one fails; then until they run
//                                      again
//   islands_program ADDRESS time BYTES COUNT   microseconds of one all_reduce of so many bytes
//   islands_program ADDRESS flood      runs of a program as fast as they are taken, from a line of
//                                      the standard input to the next
//   islands_program ADDRESS steps SLICE  gangs one after the other, until a line of the standard
//                                      input; then what was there from the beginning is checked
//   islands_program ADDRESS ahead      calls that need a large array, right behind its put
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "fairway/fairway.h"

namespace {

using fairway::Array;
using fairway::DType;
using fairway::Executable;
using fairway::NativeProgram;
using fairway::ProgramBuilder;
using fairway::Session;
using fairway::Sharding;
using Floats = std::vector<float>;

// What programs compute; on the sim runtime the results are zeros.
bool computes = true;
Floats Computed(Floats values) { return computes ? values : Floats(values.size(), 0.0f); }

int failures = 0;

void Check(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::printf("does not hold: %s\n", what.c_str());
}

Floats Values(const Array& array) {
  const auto host = array.ToHost().Get();
  if (!host.ok()) {
    std::printf("%s: %s\n", ToString(array.spec()).c_str(), host.status().ToString().c_str());
    return {};
  }
  const auto values = host->values<float>();
  return {values.begin(), values.end()};
}

// Rounds of: x = all_reduce(x) / devices, of f32[n] on each device.
NativeProgram Means(int64_t n, int64_t devices, uint32_t rounds,
                    std::chrono::microseconds pause = {}) {
  NativeProgram program("means");
  auto x = program.Parameter(DType::kF32, {n * devices}, {devices});
  if (pause.count() > 0) x = program.Sleep(x, pause);
  program.Result(program.Scale(program.AllReduce(x), 1.0 / static_cast<double>(devices)),
                 {devices});
  program.Repeat(rounds);
  return program;
}

void SumsAreRight(Session& session, int slice, int64_t n) {
  const std::vector<int>& devices = session.slices()[slice].devices;
  const auto count = static_cast<int64_t>(devices.size());
  const std::string where = "slice " + std::to_string(slice) + ", " + std::to_string(n);
  NativeProgram program("sums");
  const auto x = program.Parameter(DType::kF32, {n * count}, {count});
  const auto sum = program.AllReduce(x);
  program.Result(program.AllReduce(program.Add({sum, x})), {count});
  const auto compiled = session.Compile(program, devices).Get();
  Check(compiled.ok(), where + ": " + compiled.status().ToString());
  if (!compiled.ok()) return;
  Floats values(static_cast<size_t>(n * count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 101);
  const Array in = session.Put(values, {n * count}, Sharding::Tiled(devices, {count}));
  Floats want(values.size(), 0.0f);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t d = 0; d < count; ++d) want[i] += values[d * n + i];
  }
  // The sum over the devices of (sum + x).
  for (int64_t i = 0; i < n; ++i) want[i] *= static_cast<float>(count + 1);
  for (int64_t d = 1; d < count; ++d) std::copy_n(want.begin(), n, want.begin() + d * n);
  want = Computed(std::move(want));
  for (int i = 0; i < 3; ++i) Check(Values(compiled->Call({in})[0]) == want, where);
}

int Sums(Session& session) {
  const int slices = static_cast<int>(session.slices().size());
  for (int slice = 0; slice < slices; ++slice) {
    for (const int64_t n : {1, 1000, 300'001}) SumsAreRight(session, slice, n);
  }
  // Islands at the same time, and arrays that go from one to the other and are cut in other ways.
  std::vector<std::thread> threads;
  for (int slice = 0; slice < slices; ++slice)
    threads.emplace_back([&session, slice] { SumsAreRight(session, slice, 5000); });
  for (std::thread& thread : threads) thread.join();
  Floats values(5040);
  std::iota(values.begin(), values.end(), 0.0f);
  for (int from = 0; from < slices; ++from) {
    for (int to = 0; to < slices; ++to) {
      const std::vector<int>& here = session.slices()[from].devices;
      const std::vector<int>& there = session.slices()[to].devices;
      const auto rows = static_cast<int64_t>(here.size()), columns = int64_t(there.size());
      const Array array = session.Put(values, {60, 84}, Sharding::Tiled(here, {rows, 1}));
      const Array moved = array.Reshard(Sharding::Tiled(there, {1, columns}));
      Check(Values(moved) == values, "reshard " + std::to_string(from) + std::to_string(to));
    }
  }
  return failures == 0 ? 0 : 1;
}

// Runs gangs one after the other until one fails. Returns its error, or nothing.
std::string Chain(Session& session, const Executable& means, const std::vector<int>& devices,
                  int steps) {
  const auto count = static_cast<int64_t>(devices.size());
  Array x = session.Put(Floats(static_cast<size_t>(64 * count), 1.0f), {64 * count},
                        Sharding::Tiled(devices, {count}));
  for (int i = 0; i < steps; ++i) x = means.Call({x})[0];
  const auto host = x.ToHost().Get();
  if (!host.ok()) return host.status().ToString();
  const auto values = host->values<float>();
  Check(Floats(values.begin(), values.end()) ==
            Computed(Floats(static_cast<size_t>(64 * count), 1.0f)),
        "the mean of ones");
  return {};
}

int RunUntilLossAndBack(Session& session, int slice) {
  const std::vector<int>& devices = session.slices()[slice].devices;
  const auto compiled = session
                            .Compile(Means(64, static_cast<int64_t>(devices.size()), 20,
                                           std::chrono::microseconds(100)),
                                     devices)
                            .Get();
  // So large that it does not stay with the controller: it is lost even between two chains.
  constexpr int64_t kAnchor = int64_t{128} << 10;
  const int64_t length = kAnchor * static_cast<int64_t>(devices.size());
  const Array anchor =
      session.Put(Floats(static_cast<size_t>(length)), {length},
                  Sharding::Tiled(devices, {static_cast<int64_t>(devices.size())}));
  std::string lost;
  for (bool first = true; lost.empty(); first = false) {
    lost = Chain(session, compiled.value(), devices, 20);
    if (const auto status = anchor.Ready().Get(); lost.empty() && !status.ok())
      lost = status.ToString();
    if (!first || !lost.empty()) continue;
    std::printf("running\n");
    std::fflush(stdout);
  }
  std::printf("LOST %s\n", lost.c_str());
  // Accepted while the executor is away, it runs when the executor is back.
  const std::string again = Chain(session, compiled.value(), devices, 3);
  std::printf("AGAIN %s\n", again.empty() ? "OK" : again.c_str());
  return again.empty() && failures == 0 ? 0 : 1;
}

// A loop of 301 rounds: y = y + mean(x), then x = -mean(x).
Executable Loops(Session& session, const std::vector<int>& devices) {
  const auto count = static_cast<int64_t>(devices.size());
  const ProgramBuilder::Type type{DType::kF32, {4 * count}, {count}};
  NativeProgram turn("turn"), add("add");
  turn.Result(turn.Scale(turn.AllReduce(turn.Parameter(DType::kF32, {4 * count}, {count})),
                         -1.0 / static_cast<double>(count)),
              {count});
  const auto x = add.Parameter(DType::kF32, {4 * count}, {count});
  const auto y = add.Parameter(DType::kF32, {4 * count}, {count});
  add.Result(add.Add({y, add.Scale(add.AllReduce(x), 1.0 / static_cast<double>(count))}), {count});
  ProgramBuilder program("loops");
  const int n = static_cast<int>(count);
  const auto slice = program.AddSlice("all", n);
  const auto turned = program.AddNative(turn, n, {type});
  const auto added = program.AddNative(add, n, {type});
  const auto ends = program.Loop(
      301, {program.Argument(slice, type), program.Argument(slice, type)},
      [&](const ProgramBuilder::Values& values) {
        const auto sum = program.Call(added, slice, {values[0], values[1]})[0];
        return ProgramBuilder::Values{program.Call(turned, slice, {values[0]})[0], sum};
      });
  program.Result(ends[0]);
  program.Result(ends[1]);
  return session.Bind(program, {devices}).Get().value();
}

// Runs the loops a few times. Returns the error of one that failed, or nothing.
std::string RunLoops(Session& session, const Executable& loops, const std::vector<int>& devices) {
  const auto count = static_cast<int64_t>(devices.size());
  Floats x(static_cast<size_t>(4 * count)), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i / 4 % 2 == 0 ? 3 : -1);  // by device; of an even number of devices
    y[i] = static_cast<float>(i);
  }
  const Sharding sharding = Sharding::Tiled(devices, {count});
  const Array a = session.Put(x, {4 * count}, sharding), b = session.Put(y, {4 * count}, sharding);
  for (float& value : x) value = -1;
  for (float& value : y) value += 1;
  for (int i = 0; i < 5; ++i) {
    const auto ends = loops.Call({a, b});
    for (const Array& end : {ends[0], ends[1]}) {
      if (const auto status = end.Ready().Get(); !status.ok()) return status.ToString();
    }
    const auto first = ends[0].ToHost().Get(), second = ends[1].ToHost().Get();
    if (!first.ok()) return first.status().ToString();
    if (!second.ok()) return second.status().ToString();
    const auto of = [](const auto& host) {
      const auto values = host.template values<float>();
      return Floats(values.begin(), values.end());
    };
    Check(of(*first) == Computed(x), "the mean, turned 301 times");
    Check(of(*second) == Computed(y), "the sum of 301 means");
  }
  return {};
}

int LoopsUntilLossAndBack(Session& session, int slice) {
  const std::vector<int>& devices = session.slices()[slice].devices;
  const Executable loops = Loops(session, devices);
  std::string lost;
  for (bool first = true; lost.empty() && failures == 0; first = false) {
    lost = RunLoops(session, loops, devices);
    if (!first || !lost.empty()) continue;
    std::printf("running\n");
    std::fflush(stdout);
  }
  std::printf("LOST %s\n", lost.c_str());
  const std::string again = RunLoops(session, loops, devices);
  std::printf("AGAIN %s\n", again.empty() ? "OK" : again.c_str());
  return again.empty() && failures == 0 ? 0 : 1;
}

int StepsUntilTold(Session& session, int slice) {
  const std::vector<int>& devices = session.slices()[slice].devices;
  const auto count = static_cast<int64_t>(devices.size());
  const auto compiled = session.Compile(Means(64, count, 5), devices).Get();
  Check(compiled.ok(), compiled.status().ToString());
  if (!compiled.ok()) return 1;
  Floats values(static_cast<size_t>((int64_t{128} << 10) * count));  // not kept by the controller
  std::iota(values.begin(), values.end(), 0.0f);
  const Array anchor =
      session.Put(values, {static_cast<int64_t>(values.size())}, Sharding::Tiled(devices, {count}));
  std::atomic<bool> enough = false;
  std::thread waiting([&enough] {
    std::getchar();
    enough = true;
  });
  std::string failed;
  for (int steps = 0; !enough && failed.empty(); steps += 20) {
    failed = Chain(session, *compiled, devices, 20);
    std::printf("steps %d\n", steps);
    std::fflush(stdout);
  }
  if (!failed.empty()) std::printf("FAILED %s\n", failed.c_str());
  Check(Values(anchor) == Computed(values), "what was there from the beginning");
  std::fflush(stdout);
  if (!enough) std::_Exit(1);
  waiting.join();
  return failed.empty() && failures == 0 ? 0 : 1;
}

int Time(Session& session, int64_t bytes, uint32_t rounds) {
  const std::vector<int>& devices = session.slices()[0].devices;
  const auto count = static_cast<int64_t>(devices.size());
  const int64_t n = bytes / 4;
  const Executable means = session.Compile(Means(n, count, rounds), devices).Get().value();
  const Array x = session.Put(Floats(static_cast<size_t>(n * count), 1.0f), {n * count},
                              Sharding::Tiled(devices, {count}));
  Check(x.Ready().Get().ok(), "put");
  double best = 1e30;
  for (int i = 0; i < 4; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto status = means.Call({x})[0].Ready().Get();
    Check(status.ok(), status.ToString());
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / rounds);
  }
  std::printf("%zu devices, %lld bytes: %.1f us\n", devices.size(), static_cast<long long>(bytes),
              best);
  return failures == 0 ? 0 : 1;
}

// Runs a chain of two, each on the result of the one before; prints how many were accepted.
int Flood(Session& session) {
  NativeProgram one("negative");
  one.Result(one.Scale(one.Parameter(DType::kF32, {4}), -1.0));
  ProgramBuilder program("chain");
  const auto slice = program.AddSlice("a", 1);
  const auto negative = program.AddNative(one, 1, {{DType::kF32, {4}}});
  const auto first = program.Call(negative, slice, {program.Argument(slice, {DType::kF32, {4}})});
  program.Result(program.Call(negative, slice, first)[0]);
  const std::vector<int> devices = {session.slices()[0].devices[0]};
  const auto bound = session.Bind(program, {devices}).Get();
  Check(bound.ok(), bound.status().ToString());
  if (!bound.ok()) return 1;
  Array x = session.Put(Floats{1, 2, 3, 4}, {4}, Sharding::Replicated(devices));
  x = bound->Call({x})[0];
  Check(x.Ready().Get().ok(), "the first run");
  std::printf("ready\n");
  std::fflush(stdout);
  if (std::getchar() == EOF) return 1;
  std::atomic<bool> enough = false;
  std::thread waiting([&enough] {
    std::getchar();
    enough = true;
  });
  for (int64_t taken = 1; !enough; ++taken) {
    x = bound->Call({x})[0];
    if (taken % 1000 != 0) continue;
    std::printf("%lld\n", static_cast<long long>(taken));
    std::fflush(stdout);
  }
  waiting.join();
  Check(Values(x) == Floats{1, 2, 3, 4}, "what all runs together make");
  return failures == 0 ? 0 : 1;
}

// Makes more calls than a controller accepts ahead, on an array whose bytes are under way.
int Ahead(Session& session) {
  constexpr int64_t kLarge = int64_t{32} << 20;
  const std::vector<int> devices = {session.slices()[0].devices[0]};
  NativeProgram one("negative");
  one.Parameter(DType::kF32, {kLarge});
  one.Result(one.Scale(one.Parameter(DType::kF32, {4}), -1.0));
  const auto negative = session.Compile(one, devices).Get();
  Check(negative.ok(), negative.status().ToString());
  if (!negative.ok()) return 1;
  const Floats large(kLarge, 1.0f);
  const Array w = session.Put(large, {kLarge}, Sharding::Replicated(devices));
  Array x = session.Put(Floats{1, 2, 3, 4}, {4}, Sharding::Replicated(devices));
  for (int i = 0; i < 150000; ++i) x = negative->Call({w, x})[0];
  Check(Values(x) == Floats{1, 2, 3, 4}, "what all calls together make");
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  auto session = fairway::Connect(argv[1], {.tenant = "islands"});
  if (!session.ok()) {
    std::printf("%s\n", session.status().ToString().c_str());
    return 1;
  }
  computes = session->slices()[0].runtime != "sim";
  const std::string what = argv[2];
  if (what == "sums") return Sums(*session);
  if (what == "run" && argc == 4) return RunUntilLossAndBack(*session, std::stoi(argv[3]));
  if (what == "loops" && argc == 4) return LoopsUntilLossAndBack(*session, std::stoi(argv[3]));
  if (what == "steps" && argc == 4) return StepsUntilTold(*session, std::stoi(argv[3]));
  if (what == "flood") return Flood(*session);
  if (what == "ahead") return Ahead(*session);
  if (what == "time" && argc == 5)
    return Time(*session, std::stoll(argv[3]), static_cast<uint32_t>(std::stoul(argv[4])));
  return 2;
}
