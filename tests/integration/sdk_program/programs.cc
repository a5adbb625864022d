// SPDX-License-Identifier: Apache-2.0
// Dataflow programs as a user writes them, with their expectations: prints a line for each one that
// does not hold.
//   programs ADDRESS [FILE]   two slices of two devices; FILE: StableHLO of f(x) = 2 x + 1,
//                             x: f32[4]; without, slices of the host or the sim runtime
//   programs ADDRESS flying   starts 100 runs, says so, and ends when they and one more have; an
//                             executor of the second slice is to be killed meanwhile
#include <fairway/fairway.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

using fairway::Array;
using fairway::DType;
using fairway::Executable;
using fairway::NativeProgram;
using fairway::ProgramBuilder;
using fairway::Session;
using fairway::Sharding;
using fairway::Status;
using fairway::StatusCode;
using Values = ProgramBuilder::Values;

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

Floats Read(const Array& array) {
  const auto host = array.ToHost().Get();
  if (!host.ok()) {
    std::printf("fetch: %s\n", host.status().ToString().c_str());
    return {};
  }
  const auto values = host->values<float>();
  return {values.begin(), values.end()};
}

const ProgramBuilder::Type kVector = {DType::kF32, {4}};

// Computes x * factor + y, of f32[4] on each of two devices.
NativeProgram Multiply(double factor) {
  NativeProgram program("multiply");
  program.Result(program.Scale(program.Parameter(DType::kF32, {4}), factor));
  return program;
}
NativeProgram Sum() {
  NativeProgram program("sum");
  program.Result(
      program.Add({program.Parameter(DType::kF32, {4}), program.Parameter(DType::kF32, {4})}));
  return program;
}

Executable Bound(Session& session, const ProgramBuilder& program, bool sequential = false) {
  const auto bound =
      session
          .Bind(program, {session.slices()[0].devices, session.slices()[1].devices}, {sequential})
          .Get();
  if (!bound.ok()) std::printf("bind: %s\n", bound.status().ToString().c_str());
  return bound.ok() ? *bound : Executable();
}

void APipelineRunsByOneCall(Session& session) {
  ProgramBuilder p("pipeline");
  const auto a = p.AddSlice("a", 2), b = p.AddSlice("b", 2);
  const auto twice = p.AddNative(Multiply(2), 2, {kVector});
  const auto sum = p.AddNative(Sum(), 2, {kVector});
  const auto x = p.Argument(a, kVector);
  const auto k = p.Constant(
      b, kVector, std::string_view("\0\0\x80\x3f\0\0\x80\x3f\0\0\x80\x3f\0\0\x80\x3f", 16));
  const auto y = p.Call(twice, a, p.Call(twice, a, {x}));
  const auto z = p.Call(sum, b, {y[0], k});
  p.Result(z[0]);
  p.Result(p.Transfer(z[0], a, {2}));
  p.Result(x);
  const Executable run = Bound(session, p);
  if (failures > 0) return;
  CHECK(run.name() == "pipeline" && run.parameters().size() == 1 && run.results().size() == 3);
  CHECK(run.results()[1].sharding.tiles == std::vector<int64_t>{2});
  // Any placement will do: arguments that lie elsewhere are moved.
  for (const Sharding& where :
       {run.parameters()[0].sharding, Sharding::Single(session.slices()[1].devices[1])}) {
    const Array in = session.Put(Floats{1, 2, 3, 4}, {4}, where);
    const auto out = run.Call({in});
    CHECK(Read(out[0]) == Computed({5, 9, 13, 17}));
    CHECK(Read(out[1]) == Computed({5, 9, 13, 17}));
    CHECK(Read(out[2]) == Floats({1, 2, 3, 4}));
  }
  // Many runs at once; each takes the result of the one before.
  Array value = session.Put(Floats(4, 0.0f), {4}, run.parameters()[0].sharding);
  for (int i = 0; i < 10; ++i) value = run.Call({value})[1];
  CHECK(Read(value) == Computed(Floats(4, 349525.0f)));
  std::vector<Array> all;
  for (int i = 0; i < 200; ++i) all.push_back(run.Call({value})[0]);
  CHECK(session.Ready(all).Get().ok());
  // Step by step, the results are the same.
  const Executable slow = Bound(session, p, /*sequential=*/true);
  if (failures > 0) return;
  value = session.Put(Floats(4, 0.0f), {4}, slow.parameters()[0].sharding);
  for (int i = 0; i < 10; ++i) value = slow.Call({value})[1];
  CHECK(Read(value) == Computed(Floats(4, 349525.0f)));
}

void LoopsAndBranchesRunWithoutTheClient(Session& session) {
  ProgramBuilder p("control");
  const auto a = p.AddSlice("a", 2);
  p.AddSlice("b", 2);
  const auto twice = p.AddNative(Multiply(2), 2, {kVector});
  const auto half = p.AddNative(Multiply(0.5), 2, {kVector});
  NativeProgram plus("plus");
  plus.Result(plus.Add({plus.Parameter(DType::kS32, {}), plus.Parameter(DType::kS32, {})}));
  const auto add = p.AddNative(plus, 2, {{DType::kS32, {}}});
  const auto x = p.Argument(a, kVector), y = p.Argument(a, kVector);
  const auto i = p.Argument(a, {DType::kS32, {}});
  // Each round doubles one value and swaps the two.
  const Values swapped = p.Loop(5, {x, y}, [&](const Values& in) {
    return Values{p.Call(twice, a, {in[1]})[0], in[0]};
  });
  const auto computed = p.Call(add, a, {i, i})[0];
  const Values chosen = p.Branch(
      computed, {swapped[0]},
      {[&](const Values& in) { return p.Call(half, a, in); }, [&](const Values& in) { return in; },
       [&](const Values& in) {
         return p.Loop(3, in, [&](const Values& v) { return p.Call(twice, a, v); });
       }});
  p.Result(swapped[0]);
  p.Result(swapped[1]);
  p.Result(chosen[0]);
  const Executable run = Bound(session, p);
  if (failures > 0) return;
  const auto& where = run.parameters()[0].sharding;
  const Array one = session.Put(Floats(4, 1.0f), {4}, where);
  const Array ten = session.Put(Floats(4, 10.0f), {4}, where);
  const float expected[] = {40, 80, 640, 640};
  for (int32_t index = 0; index < 4; ++index) {
    // The branch is chosen by twice the index.
    const Array choice = session.Put(std::vector<int32_t>{index}, {}, where);
    const auto out = run.Call({one, ten, choice});
    CHECK(Read(out[0]) == Computed(Floats(4, 80.0f)));
    CHECK(Read(out[1]) == Computed(Floats(4, 4.0f)));
    CHECK(Read(out[2]) == Computed(Floats(4, index == 0 ? expected[0] : expected[2])));
  }
}

void WhatIsWrongIsNamed(Session& session) {
  ProgramBuilder p("wrong");
  const auto a = p.AddSlice("a", 2);
  p.AddSlice("b", 2);
  const auto twice = p.AddNative(Multiply(2), 2, {kVector});
  const auto x = p.Argument(a, {DType::kF32, {5}});
  p.Result(p.At("y", "train.cc:7").Call(twice, a, {x})[0]);
  const auto refused =
      session.Bind(p, {session.slices()[0].devices, session.slices()[1].devices}).Get();
  CHECK(refused.status().code() == StatusCode::kInvalidArgument);
  CHECK(refused.status().message().find("node 1 \"y\" (train.cc:7): input 0 is f32[5]") !=
        std::string::npos);

  ProgramBuilder untrue("untrue");
  const auto s = untrue.AddSlice("a", 2);
  untrue.AddSlice("b", 2);
  const auto what = untrue.AddNative(Multiply(2), 2, {{DType::kF32, {6}}});
  untrue.Result(untrue.Call(what, s, {untrue.Argument(s, kVector)})[0]);
  const auto contradicted =
      session.Bind(untrue, {session.slices()[0].devices, session.slices()[1].devices}).Get();
  CHECK(contradicted.status().message().find(
            "result 0 is f32[6] in the program, but f32[4] in its code") != std::string::npos);

  NativeProgram late("late");
  const auto doubled = late.Scale(late.Parameter(DType::kF32, {4}), 2);
  late.Result(late.Add({doubled, late.Parameter(DType::kF32, {4})}));
  const auto shifted = session.Compile(late, session.slices()[0].devices).Get();
  CHECK(shifted.status().message().find("parameter 1 was declared after step 0 (scale)") !=
        std::string::npos);

  ProgramBuilder others("others");
  const auto s2 = others.AddSlice("a", 2);
  others.AddSlice("b", 2);
  others.Result(others.Call(twice, s2, {others.Argument(s2, kVector)})[0]);
  const auto foreign =
      session.Bind(others, {session.slices()[0].devices, session.slices()[1].devices}).Get();
  CHECK(foreign.status().message().find("a computation that this program does not have") !=
        std::string::npos);
}

void AnErrorGoesWhereItIsNeeded(Session& session) {
  ProgramBuilder p("poison");
  const auto a = p.AddSlice("a", 2), b = p.AddSlice("b", 2);
  const auto twice = p.AddNative(Multiply(2), 2, {kVector});
  const auto x = p.Argument(a, kVector), y = p.Argument(b, kVector);
  p.Result(p.Call(twice, a, {x})[0]);
  p.Result(p.Call(twice, b, {y})[0]);
  p.Result(p.Call(twice, b, p.Call(twice, a, {x}))[0]);
  const Executable run = Bound(session, p);
  if (failures > 0) return;
  const Array bad =
      session.MakeError(run.parameters()[0], Status(StatusCode::kDataLoss, "the first cause"));
  const Array good = session.Put(Floats(4, 3.0f), {4}, run.parameters()[1].sharding);
  const auto out = run.Call({bad, good});
  CHECK(Read(out[1]) == Computed(Floats(4, 6.0f)));
  for (const int i : {0, 2}) {
    const Status status = out[i].Ready().Get();
    CHECK(status.code() == StatusCode::kDataLoss && status.message() == "the first cause");
  }
}

void StableHloRuns(Session& session, const std::string& module) {
  ProgramBuilder p("stablehlo");
  const auto a = p.AddSlice("a", 1), b = p.AddSlice("b", 1);
  const auto f = p.AddStableHlo("f", module, 1, {kVector}, {kVector});
  const auto x = p.Argument(a, kVector);
  const Values chain = p.Loop(128, {x}, [&](const Values& in) { return p.Call(f, a, in); });
  p.Result(p.Call(f, b, p.Call(f, a, {x}))[0]);
  p.Result(chain[0]);
  const auto bound =
      session.Bind(p, {{session.slices()[0].devices[0]}, {session.slices()[1].devices[1]}}).Get();
  CHECK(bound.ok());
  if (!bound.ok()) return std::printf("%s\n", bound.status().ToString().c_str()), void();
  const Array in = session.Put(Floats{0, 1, -1, 2}, {4}, bound->parameters()[0].sharding);
  const auto out = bound->Call({in});
  CHECK(Read(out[0]) == Floats({7 - 4.0f, 7, -1, 11}));
  // 2 x + 1 has the fixed point -1.
  CHECK(Read(out[1])[2] == -1);
}

// Stages on both slices; each run takes a while on the second.
void RunsEndOnceWhenAnExecutorIsKilled(Session& session) {
  ProgramBuilder p("flying");
  const auto a = p.AddSlice("a", 2), b = p.AddSlice("b", 2);
  const auto twice = p.AddNative(Multiply(2), 2, {kVector});
  NativeProgram slow("slow");
  slow.Result(slow.Sleep(slow.Parameter(DType::kF32, {4}), std::chrono::milliseconds(20)));
  const auto wait = p.AddNative(slow, 2, {kVector});
  const auto x = p.Argument(a, kVector);
  const auto y = p.Call(twice, a, {x});
  p.Result(y[0]);
  p.Result(p.Call(wait, b, y)[0]);
  const Executable run = Bound(session, p);
  if (failures > 0) return;
  const Array in = session.Put(Floats(4, 1.0f), {4}, run.parameters()[0].sharding);
  CHECK(Read(run.Call({in})[1]) == Computed(Floats(4, 2.0f)));
  std::vector<std::vector<Array>> runs;
  for (int i = 0; i < 1000; ++i) runs.push_back(run.Call({in}));  // 20 s
  CHECK(Read(runs[1][1]) == Computed(Floats(4, 2.0f)));
  std::printf("flying\n");
  std::fflush(stdout);
  int lost = 0;
  for (const auto& out : runs) {
    CHECK(Read(out[0]) == Computed(Floats(4, 2.0f)));  // no node of it was on that executor
    const Status status = out[1].Ready().Get();
    if (status.ok()) continue;
    ++lost;
    CHECK(status.code() == StatusCode::kDataLoss);
    CHECK(status.message().find("SIGKILL") != std::string::npos);
  }
  std::printf("%d lost\n", lost);
  CHECK(lost > 0);
  CHECK(Read(run.Call({in})[1]) == Computed(Floats(4, 2.0f)));
}

}  // namespace

int main(int argc, char** argv) {
  auto session = fairway::Connect(argv[1]);
  if (!session.ok()) return std::printf("%s\n", session.status().ToString().c_str()), 2;
  computes = session->slices()[0].runtime != "sim";
  if (argc > 2 && std::string(argv[2]) == "flying") {
    RunsEndOnceWhenAnExecutorIsKilled(*session);
  } else if (argc > 2) {
    std::ifstream file(argv[2], std::ios::binary);
    StableHloRuns(*session, {std::istreambuf_iterator<char>(file), {}});
  } else {
    APipelineRunsByOneCall(*session);
    LoopsAndBranchesRunWithoutTheClient(*session);
    WhatIsWrongIsNamed(*session);
    AnErrorGoesWhereItIsNeeded(*session);
  }
  return failures == 0 ? 0 : 1;
}
