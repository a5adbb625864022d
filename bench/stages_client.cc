// SPDX-License-Identifier: Apache-2.0
// A program of stages, each on an island of its own, on a cluster of the host runtime, for
// stages_bench.py and program_bench.py (bench/dispatch/serve.py describes its protocol):
//   stages_client ADDRESS STAGES DEVICES SLEEP_US RUNS
// Arg -> stage 0 -> ... -> stage STAGES-1 -> Result over as many slices (in turns, if there are
// fewer), DEVICES devices of each. A stage waits for SLEEP_US, unless that is 0, and scales its
// input. Styles: "parallel" and "sequential": RUNS runs, one after the other, each waited for;
// "bind": the program is bound RUNS more times, and kept; "far" and "near": 100 times as many
// round trips of 16 bytes, over TCP, to a process that does nothing else, on another processor or
// on the same one.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "fairway/fairway.h"

namespace {

using fairway::Array;
using fairway::DType;
using fairway::Executable;
using fairway::NativeProgram;
using fairway::ProgramBuilder;
using fairway::Session;
using Clock = std::chrono::steady_clock;

struct Shape {
  int stages = 0;
  int devices = 0;
  std::chrono::microseconds sleep{0};
};

NativeProgram Stage(const Shape& shape) {
  NativeProgram program("stage");
  auto x = program.Parameter(DType::kF32, {shape.devices}, {shape.devices});
  if (shape.sleep.count() > 0) x = program.Sleep(x, shape.sleep);
  program.Result(program.Scale(x, 1.0), {shape.devices});
  return program;
}

Executable Bind(Session& session, const Shape& shape, bool sequential) {
  ProgramBuilder builder("stages");
  const ProgramBuilder::Type type{DType::kF32, {shape.devices}, {shape.devices}};
  const auto code = builder.AddNative(Stage(shape), shape.devices, {type});
  ProgramBuilder::Values value;
  std::vector<std::vector<int>> devices;
  for (int stage = 0; stage < shape.stages; ++stage) {
    const auto slice = builder.AddSlice("stage" + std::to_string(stage), shape.devices);
    const auto& all = session.slices()[stage % session.slices().size()].devices;
    devices.emplace_back(all.begin(), all.begin() + shape.devices);
    if (stage == 0) value = {builder.Argument(slice, type)};
    value = builder.Call(code, slice, value);
  }
  builder.Result(value[0]);
  return session.Bind(builder, devices, {.sequential = sequential}).Get().value();
}

// False: a run failed.
bool Run(const Executable& program, const Array& argument, int runs) {
  for (int i = 0; i < runs; ++i) {
    if (!program.Call({argument})[0].Ready().Get().ok()) return false;
  }
  return true;
}

constexpr int kRawOfARun = 100;
constexpr int kEchoProcessor = 0;
using Bytes = std::array<char, 16>;

bool WriteAll(int fd, const Bytes& bytes) {
  return write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}
bool ReadAll(int fd, Bytes& bytes) {
  return recv(fd, bytes.data(), bytes.size(), MSG_WAITALL) == static_cast<ssize_t>(bytes.size());
}

// Lets this thread run on this processor only.
bool RunOn(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

// Starts a process that sends back what comes on a connection to it, and ends with that. Returns
// the connection; -1: there is none. Call it before anything starts threads.
int StartEcho() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  const int on = 1;
  if (bind(listener, plain, size) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, plain, &size) != 0)
    return -1;
  const int to = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(to, plain, size) != 0) return -1;
  const int from = accept(listener, nullptr, nullptr);
  close(listener);
  for (const int fd : {to, from}) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const pid_t child = fork();
  close(child == 0 ? to : from);
  if (child != 0) return child > 0 ? to : -1;
  if (!RunOn(kEchoProcessor)) _exit(1);
  Bytes bytes;
  while (ReadAll(from, bytes) && WriteAll(from, bytes)) {
  }
  _exit(0);
}

// Asks from this processor; false: there is no such processor, or no answer.
bool RoundTrips(int echo, int count, int processor) {
  cpu_set_t all;
  bool well = sched_getaffinity(0, sizeof(all), &all) == 0 && RunOn(processor);
  Bytes bytes{};
  for (int i = 0; i < count && well; ++i) well = WriteAll(echo, bytes) && ReadAll(echo, bytes);
  return sched_setaffinity(0, sizeof(all), &all) == 0 && well;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const int echo = StartEcho();
  Session session = fairway::Connect(argv[1]).value();
  const Shape shape{std::stoi(argv[2]), std::stoi(argv[3]),
                    std::chrono::microseconds(std::stoi(argv[4]))};
  const int runs = std::stoi(argv[5]);
  const Executable parallel = Bind(session, shape, false);
  const Executable sequential = Bind(session, shape, true);
  const Array argument = session.Put(std::vector<float>(shape.devices, 1.0f), {shape.devices},
                                     parallel.parameters()[0].sharding);
  std::vector<Executable> kept;
  std::cout << "ready parallel,sequential,bind,far,near" << std::endl;
  for (std::string style; std::getline(std::cin, style);) {
    const auto began = Clock::now();
    bool well = true;
    int done = runs;
    if (style == "far" || style == "near") {
      done = kRawOfARun * runs;
      well = RoundTrips(echo, done, style == "near" ? kEchoProcessor : kEchoProcessor + 1);
    } else if (style == "bind") {
      for (int i = 0; i < runs; ++i) kept.push_back(Bind(session, shape, false));
    } else {
      well = Run(style == "parallel" ? parallel : sequential, argument, runs);
    }
    const std::chrono::duration<double> took = Clock::now() - began;
    if (well) {
      std::cout << done << " " << took.count() << std::endl;
    } else {
      std::cout << "error a run failed" << std::endl;
    }
  }
}
