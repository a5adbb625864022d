// SPDX-License-Identifier: Apache-2.0
// Requests about programs.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/utf8.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/sessions.h"
#include "controller/native/session.h"
#include "controller/sessions/handle_lists.h"
#include "wire/client_values.h"

namespace fairway {
namespace {

constexpr size_t kTakenAtOnce = size_t{64} << 10;  // another thread takes larger ones

// The answer as a serialized ServerMessage.
std::string Serialized(v1::Answer answer) {
  v1::ServerMessage message;
  *message.add_answers() = std::move(answer);
  return message.SerializeAsString();
}

// Takes the bytes of the program out of the request.
KnownProgram TakeProgram(v1::Compile& compile) {
  return KnownProgram(std::make_shared<const std::string>(
      compile.has_native() ? compile.native().SerializeAsString()
                           : std::move(*compile.mutable_stablehlo())));
}

struct CheckedCompile {
  v1::CompileOptions options;
  std::vector<int32_t> devices;
};

absl::Status CheckCompilerOptions(v1::CompileOptions& options) {
  auto& list = *options.mutable_compiler_options();
  for (const v1::CompilerOption& option : list) {
    if (NamesFiles(option.name()))
      return Error(absl::StatusCode::kUnimplemented,
                   "compiler option \"{}\" is not served: it names files, and the program is "
                   "compiled on a worker",
                   option.name());
    if (option.value_case() == v1::CompilerOption::VALUE_NOT_SET)
      return InvalidArgument("compiler option \"{}\" has no value", option.name());
  }
  std::sort(list.begin(), list.end(), [](const v1::CompilerOption& a, const v1::CompilerOption& b) {
    return a.name() < b.name();
  });
  return absl::OkStatus();
}

absl::StatusOr<CheckedCompile> CheckCompile(const v1::Compile& compile,
                                            const std::vector<VirtualDevice>& devices) {
  CheckedCompile out;
  out.devices.assign(compile.devices().begin(), compile.devices().end());
  const std::set<int32_t> distinct(out.devices.begin(), out.devices.end());
  if (distinct.size() != out.devices.size())
    return InvalidArgument("a program is to run on {} devices, but a device is named twice",
                           out.devices.size());
  out.options = compile.options();
  FAIRWAY_RETURN_IF_ERROR(CheckCompilerOptions(out.options));
  out.options.set_portable(false);
  const auto count = static_cast<int64_t>(out.devices.size());
  if (out.options.num_replicas() == 0 && out.options.num_partitions() == 0)
    out.options.set_num_partitions(count);
  if (out.options.num_replicas() == 0) out.options.set_num_replicas(1);
  if (out.options.num_partitions() == 0) out.options.set_num_partitions(1);
  const int64_t replicas = out.options.num_replicas(), partitions = out.options.num_partitions();
  if (replicas < 1 || partitions < 1 || replicas > count || partitions > count ||
      replicas * partitions != count)
    return InvalidArgument("a program of {} replicas x {} partitions for {} devices", replicas,
                           partitions, count);
  const bool native = compile.has_native();
  if (compile.program_case() == v1::Compile::PROGRAM_NOT_SET)
    return InvalidArgument("there is no program to compile");
  FAIRWAY_RETURN_IF_ERROR(CheckRuns(devices[out.devices[0]], native));
  return out;
}

}  // namespace

void NativeSession::Compile(uint64_t id, v1::Compile& compile) {
  if (compile.executable() == 0) return Answer(id, InvalidArgument("0 is no handle"));
  const absl::StatusOr<IslandId> island =
      cluster_->sessions().IslandOf(session_, {compile.devices().begin(), compile.devices().end()});
  if (!island.ok()) return Answer(id, island.status());
  absl::StatusOr<CheckedCompile> checked = CheckCompile(compile, devices());
  if (!checked.ok()) return Answer(id, checked.status());
  std::vector<DeviceId> physical;
  for (const int32_t device : checked->devices) physical.push_back(devices()[device].device);
  const size_t size = KnownSize(compile);
  auto done = [this, alive = alive_, id, handle = compile.executable(), devices = checked->devices,
               pending = compiling_.Add(size)](absl::StatusOr<CompiledProgram> program) {
    if (!*alive) return;
    absl::Status status = program.status();
    if (status.ok()) status = Bind(id, handle, *program, devices);
    if (!status.ok()) Answer(id, status);
  };
  if (size <= kTakenAtOnce)
    return compiler_->Compile(TakeProgram(compile), checked->options,
                              {session_, *island, std::move(physical)}, std::move(done));
  auto taken = std::make_shared<v1::Compile>(std::move(compile));
  auto program = std::make_shared<std::optional<KnownProgram>>();
  shell_->RunOffLoop([taken = std::move(taken), program] { *program = TakeProgram(*taken); },
                     [this, alive = alive_, program, options = checked->options,
                      target = CompileService::Target{session_, *island, std::move(physical)},
                      done = std::move(done)] {
                       if (!*alive) return;
                       compiler_->Compile(**program, options, target, done);
                     });
}

absl::Status NativeSession::Bind(uint64_t id, uint64_t handle, const CompiledProgram& program,
                                 const std::vector<int32_t>& devices) {
  constexpr size_t kCallable = 512;
  FAIRWAY_RETURN_IF_ERROR(cluster_->sessions().CountDoor(session_, callables_.size() * kCallable));
  FAIRWAY_RETURN_IF_ERROR(
      cluster_->executables().Bind(session_, handle, program.id, devices).status());
  FAIRWAY_ASSIGN_OR_RETURN(const ExecutableSignature signature,
                           cluster_->executables().Signature(session_, handle));
  for (const auto* specs : {&signature.parameters, &signature.outputs}) {
    for (const ArraySpec& spec : *specs) {
      if (!spec.sharding.per_device()) continue;
      FAIRWAY_RETURN_IF_ERROR(cluster_->executables().Release(session_, handle));
      return Error(absl::StatusCode::kUnimplemented,
                   "{} takes or makes an array, {}, that is unreduced or manual over its devices, "
                   "which fairway.v1 cannot tell; make it whole within the program",
                   signature.name, ToString(spec.dtype, spec.shape));
    }
  }
  callables_[handle] = {signature.outputs.size(), false};
  if (id == 0) return absl::OkStatus();
  v1::Answer answer = CompiledAnswer(id, signature);
  *answer.mutable_compiled()->mutable_memory() = program.metadata->memory();
  *answer.mutable_compiled()->mutable_cost() = program.metadata->cost();
  shell_->Send(std::move(answer));
  return absl::OkStatus();
}

v1::Answer NativeSession::CompiledAnswer(uint64_t id, const ExecutableSignature& signature) {
  v1::Answer answer;
  answer.set_id(id);
  v1::Compiled* compiled = answer.mutable_compiled();
  compiled->set_name(ValidUtf8(signature.name));
  for (const ArraySpec& spec : signature.parameters)
    ArraySpecToProto(spec, compiled->add_parameters());
  for (const ArraySpec& spec : signature.outputs) ArraySpecToProto(spec, compiled->add_results());
  for (const bool donated : signature.donated) compiled->add_donated(donated);
  return answer;
}

void NativeSession::BindProgram(uint64_t id, v1::BindProgram& bind) {
  const uint64_t handle = bind.executable();
  if (handle == 0) return Answer(id, InvalidArgument("0 is no handle"));
  auto pending = compiling_.Add(KnownSize(bind));
  auto program = std::make_shared<v1::BoundProgram>(std::move(*bind.mutable_program()));
  struct Told {
    v1::Answer answer;
    std::string serialized;  // if the answer is large, this is sent instead
    size_t results = 0;
  };
  auto told = std::make_shared<Told>();
  programs_.Bind({handle, [program = std::move(program)] { return std::move(*program); },
                  [told, id](const ExecutableSignature& signature) {
                    told->results = signature.outputs.size();
                    if (id == 0) return;
                    told->answer = CompiledAnswer(id, signature);
                    if (told->answer.ByteSizeLong() > kTakenAtOnce)
                      told->serialized = Serialized(std::exchange(told->answer, {}));
                  }},
                 [this, alive = alive_, id, told,
                  pending = std::move(pending)](const absl::StatusOr<uint64_t>& bound) {
                   if (!*alive) return;
                   if (!bound.ok()) return Answer(id, bound.status());
                   callables_[*bound] = {told->results, true};
                   if (id == 0) return;
                   if (told->serialized.empty()) return shell_->Send(std::move(told->answer));
                   shell_->SendSerialized(std::move(told->serialized));
                 });
}

void NativeSession::Call(uint64_t id, const v1::Call& call) {
  std::vector<uint64_t> out = ToVector(call.results());
  const auto refuse = [&](const absl::Status& status) {
    Answer(id, errors_.Poison(std::move(out), status));
  };
  const auto known = callables_.find(call.executable());
  if (known == callables_.end())
    return refuse(Error(absl::StatusCode::kNotFound, "there is no executable {} in this session",
                        call.executable()));
  // Without handles the core would choose some.
  if (out.size() != known->second.results)
    return refuse(InvalidArgument("{} results, but {} handles were given for them",
                                  known->second.results, out.size()));
  if (std::find(out.begin(), out.end(), uint64_t{0}) != out.end())
    return refuse(InvalidArgument("0 is no handle"));
  // The call ends with its results; without results, the watch tells its end.
  const std::optional<uint64_t> token = id != 0 ? std::optional(next_token_++) : std::nullopt;
  if (token) watches_.emplace(*token, id);
  ExecuteOptions options;
  options.non_donatable.assign(call.non_donatable().begin(), call.non_donatable().end());
  const bool program = known->second.program;
  if (out.empty()) options.watch = token;
  if (!out.empty() && program) options.watch_results = token;
  Cluster::Done done = [this, id, token, out,
                        program](const absl::StatusOr<std::vector<uint64_t>>& made) mutable {
    if (!made.ok()) {
      if (token) watches_.erase(*token);
      return Answer(id, errors_.Poison(std::move(out), made.status()));
    }
    // The core watches the results of programs.
    if (token && !out.empty() && !program)
      cluster_->arrays().Watch(session_, *token, std::move(out));
  };
  std::vector<uint64_t> arguments = ToVector(call.arguments());
  if (program) {
    cluster_->programs().Run(session_, call.executable(), std::move(arguments), options,
                             std::move(out), std::move(done));
  } else {
    cluster_->executables().Execute(session_, call.executable(), std::move(arguments), options,
                                    std::move(out), std::move(done));
  }
}

}  // namespace fairway
