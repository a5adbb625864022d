// SPDX-License-Identifier: Apache-2.0
// A user's program with its expectations: prints a line for each one that does not hold.
//   sdk_program ADDRESS host|sim|pjrt [FILE]   FILE: StableHLO of f(x) = 2 x + 1, x: f32[4]
//   sdk_program ADDRESS large              results of 80 GB on devices of 100 GiB (sim)
// sdk_program ADDRESS hold owns arrays and calls, prints so, and waits to be killed
#include <fairway/fairway.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

using fairway::Array;
using fairway::DType;
using fairway::Executable;
using fairway::NativeProgram;
using fairway::Session;
using fairway::Sharding;
using fairway::Status;
using fairway::StatusCode;

int failures = 0;

void Check(bool holds, const char* what, int line) {
  if (holds) return;
  ++failures;
  std::printf("line %d does not hold: %s\n", line, what);
}
#define CHECK(condition) Check(condition, #condition, __LINE__)

using Floats = std::vector<float>;

// What programs compute; on the sim runtime the results are zeros.
bool computes = true;
Floats Computed(Floats values) { return computes ? values : Floats(values.size(), 0.0f); }

Floats Values(const Array& array) {
  const auto host = array.ToHost().Get();
  if (!host.ok()) {
    std::printf("fetch of %s: %s\n", ToString(array.spec()).c_str(),
                host.status().ToString().c_str());
    return {};
  }
  const auto values = host->values<float>();
  return {values.begin(), values.end()};
}

// Whether a use of this array gives that error.
bool Fails(const Array& array, StatusCode code, const std::string& text) {
  for (const Status& status : {array.Ready().Get(), array.ToHost().Get().status()}) {
    if (status.code() == code && status.message().find(text) != std::string::npos) continue;
    std::printf("expected '%s', got %s\n", text.c_str(), status.ToString().c_str());
    return false;
  }
  return true;
}

Floats Count(int64_t count) {
  Floats out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), 0.0f);
  return out;
}

// Computes 2 x, of f32[n] on each device.
Executable Twice(Session& session, int64_t n, const std::vector<int>& devices) {
  NativeProgram program("twice");
  program.Result(program.Scale(program.Parameter(DType::kF32, {n}), 2.0));
  return session.Compile(program, devices).Get().value();
}

void ArraysGoThereAndBack(Session& session) {
  const std::vector<int>& here = session.slices()[0].devices;
  const std::vector<int>& there = session.slices()[1].devices;
  const Array x = session.Put(Count(12), {4, 3}, Sharding::Single(here[0]));
  CHECK(Values(x) == Count(12));
  const Array rows = session.Put(Count(12), {4, 3}, Sharding::Tiled(here, {2, 1}));
  const Array columns = session.Put(Count(20), {5, 4}, Sharding::Tiled(here, {1, 2}));
  CHECK(Values(rows) == Count(12));
  CHECK(Values(columns) == Count(20));
  CHECK(Values(session.Put(Count(3), {3}, Sharding::Replicated(here))) == Count(3));
  CHECK(Values(columns.CopyTo(there)) == Count(20));
  CHECK(Values(columns.Reshard(Sharding::Tiled({here[1], there[0]}, {2, 1}))) == Count(20));
  const auto shards = rows.Shards();
  CHECK(shards.size() == 2 && Values(shards[1]) == Floats({6, 7, 8, 9, 10, 11}));
  CHECK(Values(session.Assemble(rows.spec(), shards)) == Count(12));
  CHECK(session.Ready(std::vector<Array>{x, rows, columns}).Get().ok());

  if (!computes) return;  // the sim runtime keeps no large arrays
  // A large array: in chunks, copied, borrowed, cut along rows and along columns.
  constexpr int64_t kSide = 2048;
  const auto large = std::make_shared<const Floats>(Count(kSide * kSide));
  const std::vector<int> all = {here[0], here[1], there[0], there[1]};
  const Array copied = session.Put(*large, {kSide, kSide}, Sharding::Tiled(all, {4, 1}));
  const Array borrowed = session.Put({large->data(), DType::kF32, {kSide, kSide}, large},
                                     Sharding::Tiled(all, {1, 4}));
  const Array whole =
      session.Put({large->data(), DType::kF32, {kSide, kSide}, large}, Sharding::Replicated(all));
  const std::weak_ptr<const Floats> watch = large;
  CHECK(Values(copied) == *large);
  CHECK(Values(borrowed) == *large);
  CHECK(Values(whole) == *large);
  CHECK(watch.use_count() == 1);  // the bytes were released
}

void ProgramsOfKernelsRun(Session& session) {
  const std::vector<int>& devices = session.slices()[0].devices;
  NativeProgram program("steps");
  const auto a = program.Parameter(DType::kF32, {2, 3}, {1, 1});
  const auto b = program.Parameter(DType::kF32, {3, 4}, {1, 2});
  const auto product = program.Matmul(a, b);
  program.Result(program.Add({product, program.Scale(product, 2.0)}), {1, 2});
  program.Result(program.AllReduce(program.BusyWait(program.Sleep(a, std::chrono::microseconds(1)),
                                                    std::chrono::microseconds(1))));
  const auto compiled = session.Compile(program, devices).Get();
  CHECK(compiled.ok());
  const Executable& steps = *compiled;
  CHECK(steps.name() == "steps" && steps.parameters().size() == 2 && steps.results().size() == 2);
  const Array left = session.Put(Floats(6, 1.0f), {2, 3}, steps.parameters()[0].sharding);
  const Array right = session.Put(Floats(12, 2.0f), {3, 4}, steps.parameters()[1].sharding);
  const auto out = steps.Call({left, right});
  CHECK(out.size() == 2 && out[0].spec() == steps.results()[0]);
  CHECK(Values(out[0]) == Computed(Floats(8, 18.0f)));
  CHECK(Values(out[1]) == Computed(Floats(6, 2.0f)));

  // Nobody waits for the links of this chain.
  const Executable twice = Twice(session, 4, {devices[0]});
  Array x = session.Put(Floats{1, 2, 3, 4}, {4}, Sharding::Single(devices[0]));
  for (int i = 0; i < 10; ++i) x = twice.Call({x})[0];
  CHECK(Values(x) == Computed({1024, 2048, 3072, 4096}));

  NativeProgram takes("takes");
  takes.Result(takes.Scale(takes.Parameter(DType::kF32, {4}, {}, true), 3.0));
  const Executable donating = session.Compile(takes, {devices[0]}).Get().value();
  CHECK(donating.donated() == std::vector<bool>{true});
  CHECK(Values(donating.Call({x}, {.non_donatable = {0}})[0]) ==
        Computed({3072, 6144, 9216, 12288}));
  CHECK(Values(donating.Call({x})[0]) == Computed({3072, 6144, 9216, 12288}));
  CHECK(Fails(x, StatusCode::kFailedPrecondition, ""));
}

void ErrorsAreValues(const std::string& address, Session& session) {
  const int device = session.slices()[0].devices[0];
  const Executable twice = Twice(session, 4, {device});
  const Array x = session.Put(Count(4), {4}, Sharding::Single(device));
  CHECK(Fails(session.Put(Count(4), {4}, Sharding::Single(99)), StatusCode::kInvalidArgument,
              "there is no device 99"));
  CHECK(Fails(session.Put(Count(4), {5}, Sharding::Single(device)), StatusCode::kInvalidArgument,
              "4 values for an array of 5"));
  CHECK(Fails(session.Put(Count(4), {4}, Sharding::Tiled({0, 1}, {3})),
              StatusCode::kInvalidArgument, "another number of tiles"));
  const Array wrong = twice.Call({session.Put(Count(3), {3}, Sharding::Single(device))})[0];
  CHECK(Fails(wrong, StatusCode::kInvalidArgument, "is f32[3], expected f32[4]"));
  CHECK(Fails(twice.Call({wrong})[0], StatusCode::kInvalidArgument, "expected f32[4]"));
  CHECK(Fails(twice.Call({x, x})[0], StatusCode::kInvalidArgument, "takes 1 arguments, but 2"));
  CHECK(Fails(twice.Call({Array()})[0], StatusCode::kInvalidArgument, "an empty Array"));
  const Array mine = session.MakeError(x.spec(), Status(StatusCode::kAborted, "no"));
  CHECK(Fails(twice.Call({mine})[0].CopyTo({1}), StatusCode::kAborted, "no"));
  x.Delete();
  CHECK(Fails(twice.Call({x})[0], StatusCode::kFailedPrecondition, ""));

  NativeProgram bad("bad");
  bad.Result(bad.Add({bad.Parameter(DType::kF32, {4}), bad.Parameter(DType::kF32, {5})}));
  const auto compiled = session.Compile(bad, {device}).Get();
  CHECK(!compiled.ok() && compiled.status().code() == StatusCode::kInvalidArgument);
  const auto both = session.Compile(bad, {0, static_cast<int>(session.devices().size()) - 1}).Get();
  CHECK(!both.ok() &&
        both.status().message().find("span the devices of 2 islands") != std::string::npos);
  const auto hlo = session.CompileStableHlo("module {}", {device}).Get();
  CHECK(hlo.status().code() == StatusCode::kUnimplemented);

  Session other = fairway::Connect(address).value();
  const Array theirs = other.Put(Count(4), {4}, Sharding::Single(device));
  CHECK(Fails(twice.Call({theirs})[0], StatusCode::kInvalidArgument, "of another session"));
  other.Close();
  CHECK(Fails(theirs, StatusCode::kCancelled, "the session was closed"));
  CHECK(other.Ping().Get().code() == StatusCode::kCancelled);
  CHECK(session.Ping().Get().ok());

  const auto nobody = fairway::Connect("127.0.0.1:1");
  CHECK(nobody.status().code() == StatusCode::kUnavailable);
}

// Two threads over one session, each with a chain of its own.
void ThreadsShareASession(Session& session) {
  const auto chain = [&session](int device, Floats* out) {
    const Executable twice = Twice(session, 1, {device});
    const Array one = session.Put(Floats{1}, {1}, Sharding::Single(device));
    float sum = 0;
    for (int round = 0; round < 50; ++round) {
      Array x = one;
      for (int i = 0; i < 20; ++i) x = twice.Call({x})[0];
      sum += Values(x).at(0);
    }
    *out = {sum};
  };
  Floats first, second;
  std::thread other(chain, 1, &second);
  chain(0, &first);
  other.join();
  CHECK(first == Computed({50.0f * (1 << 20)}));
  CHECK(second == first);
}

void StableHloRuns(Session& session, const char* file) {
  std::ifstream in(file, std::ios::binary);
  const std::string program{std::istreambuf_iterator<char>(in), {}};
  const std::vector<int>& devices = session.slices()[1].devices;
  const auto compiled = session.CompileStableHlo(program, {devices[0]}).Get();
  if (!compiled.ok()) std::printf("%s\n", compiled.status().ToString().c_str());
  CHECK(compiled.ok());
  const Array x = session.Put(Count(4), {4}, Sharding::Single(devices[0]));
  const Array y = compiled->Call({compiled->Call({x})[0]})[0];
  CHECK(Values(y) == Floats({3, 7, 11, 15}));
  CHECK(compiled->cost().count("flops") == 1);
  NativeProgram native("n");
  native.Result(native.Parameter(DType::kF32, {4}));
  CHECK(session.Compile(native, {devices[0]}).Get().status().code() == StatusCode::kUnimplemented);
  const auto bad = session.CompileStableHlo("no module", {devices[0]}).Get();
  CHECK(bad.status().code() == StatusCode::kInvalidArgument);
}

// Devices of 100 GiB, whose memory is only counted.
int Large(Session& session) {
  NativeProgram program("large");
  const auto left = program.Parameter(DType::kF32, {100'000, 0});
  const auto right = program.Parameter(DType::kF32, {0, 200'000});
  program.Result(program.Matmul(left, right));
  const Executable large = session.Compile(program, {0}).Get().value();
  const Array a = session.Put(Floats(), {100'000, 0}, Sharding::Single(0));
  const Array b = session.Put(Floats(), {0, 200'000}, Sharding::Single(0));
  const Array first = large.Call({a, b})[0];
  CHECK(first.Ready().Get().ok());
  CHECK(large.memory().results == 80'000'000'000);
  CHECK(Fails(large.Call({a, b})[0], StatusCode::kResourceExhausted, ""));
  std::printf("holding\n");
  std::fflush(stdout);
  std::cin.get();
  first.Delete();
  CHECK(large.Call({a, b})[0].Ready().Get().ok());
  return failures == 0 ? 0 : 1;
}

int Hold(Session& session) {
  NativeProgram program("slow");
  const auto x = program.Parameter(DType::kF32, {1024});
  program.Result(program.Sleep(x, std::chrono::milliseconds(1)));
  const Executable slow = session.Compile(program, {0}).Get().value();
  std::vector<Array> arrays = {session.Put(Count(1024), {1024}, Sharding::Single(0))};
  for (int i = 0; i < 2000; ++i) arrays.push_back(slow.Call({arrays.back()})[0]);
  // And an upload that never ends, because it is more than its connection takes at once.
  const auto large = std::make_shared<const Floats>(Count(64 << 20));
  arrays.push_back(
      session.Put({large->data(), DType::kF32, {64 << 20}, large}, Sharding::Single(1)));
  std::printf("holding\n");
  std::fflush(stdout);
  std::cin.get();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string address = argv[1], kind = argv[2];
  auto connected = fairway::Connect(address, {.tenant = "sdk"});
  if (!connected.ok()) {
    std::printf("%s\n", connected.status().ToString().c_str());
    return 1;
  }
  Session& session = *connected;
  computes = session.slices()[0].runtime != "sim";
  if (kind == "hold") return Hold(session);
  if (kind == "large") return Large(session);
  CHECK(session.server().find("fairway-controller") == 0);
  CHECK(session.slices().size() == 2 && session.slices()[0].runtime == kind);
  CHECK(session.devices().size() == 4 && session.devices()[3].slice == 1);
  ArraysGoThereAndBack(session);
  if (kind != "pjrt") {
    ProgramsOfKernelsRun(session);
    ErrorsAreValues(address, session);
    ThreadsShareASession(session);
  } else {
    StableHloRuns(session, argv[3]);
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
