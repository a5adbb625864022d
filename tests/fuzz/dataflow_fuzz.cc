// SPDX-License-Identifier: Apache-2.0
// Dataflow programs of clients, from the message to the sequences for executors: an accepted
// program must be lowered to sequences that fit, and these must never read an empty register.
#include <algorithm>
#include <string_view>

#include "fairway/v1/program.pb.h"
#include "graph/lowering.h"
#include "tests/fuzz/fuzz.h"
#include "wire/program_codec.h"
#include "worker/executor/sequence_run.h"

namespace fairway::fuzz {
namespace {

constexpr int64_t kMaxSteps = 2000;
constexpr size_t kMaxDevices = 64;

void RunIt(const ProgramPlan::RunSequence& run) {
  FUZZ_CHECK(CheckSequence(*run.sequence).ok());
  if (run.max_steps > kMaxSteps) return;
  const auto garbage = std::make_shared<std::vector<GroupId>>();
  SequenceRun state(std::make_shared<SequenceCode>(run.sequence), {}, garbage);
  for (size_t a = 0; a < std::min(run.inputs.size(), state.num_registers()); ++a)
    state.SetArgument(static_cast<int32_t>(a), {ShardRef{GroupId(1), 0}});
  uint64_t next_group = 2;
  const auto make = [&](const Instruction& in) {
    for (size_t o = 0; o < in.outputs.size(); ++o) {
      const Sequence::Type& type = state.TypeOf(in, o);
      state.Set(in.outputs[o],
                state.Make({GroupId(next_group++), type.dtype, "", {{0, 0, type.shard}}}));
    }
  };
  for (int64_t steps = 0; const Instruction* next = state.Next(); ++steps) {
    const Instruction in = *next;
    if (in.op == Instruction::Op::kRepeat) continue;  // it was entered
    for (const int32_t reg : in.inputs) FUZZ_CHECK(state.At(reg) != nullptr);
    if (in.op == Instruction::Op::kBranch) {
      state.Choose(steps % 3);
      continue;
    }
    const auto value = in.inputs.empty() ? nullptr : state.At(in.inputs[0]);
    state.Pass();
    if (in.op == Instruction::Op::kRun) make(in);
    if (in.op == Instruction::Op::kSet) state.Set(in.outputs[0], value);
    while (state.HasLeftovers()) state.LetGo();
    garbage->clear();
  }
}

// Compiled as declared. Slices with the same number of devices share a place, or not.
ProgramBinding BindingFor(const Program& program, bool together) {
  ProgramBinding out;
  for (size_t s = 0; s < program.slices.size(); ++s) {
    size_t same = s;
    for (size_t t = 0; together && t < s && same == s; ++t) {
      if (program.slices[t].devices == program.slices[s].devices) same = t;
    }
    out.places.push_back(static_cast<int32_t>(same));
  }
  for (size_t c = 0; c < program.computations.size(); ++c) {
    for (size_t s = 0; s < program.slices.size(); ++s) {
      BoundCode code{ExecutableId(1 + c), {}, {}, 64};
      for (const ArraySpec& result : program.computations[c].results)
        code.outputs.push_back(
            {result.dtype, result.sharding.ShardShape(result.shape, 0).value_or(Shape()), ""});
      if (!program.computations[c].parameters.empty()) code.donates = {0};
      out.code[{static_cast<int32_t>(c), out.places[s]}] = std::move(code);
    }
  }
  return out;
}

void OnProgram(std::string_view bytes) {
  v1::Program message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  for (const v1::ProgramSlice& slice : message.slices()) {
    // A controller first refuses a program whose slices are larger than the devices given for them.
    if (slice.devices() > static_cast<int>(kMaxDevices)) return;
  }
  const auto program = ProgramFromProto(message);
  if (!program.ok()) return;
  const auto types = CheckProgram(*program);
  if (!types.ok()) return;
  for (const bool together : {false, true}) {
    const auto plan = Lower(*program, *types, BindingFor(*program, together));
    if (!plan.ok()) continue;
    for (const ProgramPlan::Step& step : plan->steps) {
      if (const auto* run = std::get_if<ProgramPlan::RunSequence>(&step)) RunIt(*run);
    }
  }
}

}  // namespace

const google::protobuf::Message* Prototype(uint8_t) { return &v1::Program::default_instance(); }

}  // namespace fairway::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fairway::fuzz;
  for (const Record& record : Cut({reinterpret_cast<const char*>(data), size}))
    OnProgram(record.payload);
  return 0;
}
