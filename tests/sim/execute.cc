// SPDX-License-Identifier: Apache-2.0
// Computations, invented to fit the existing arrays.
#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"
#include "tests/sim/client.h"
#include "tests/sim/controller.h"
#include "tests/sim/machine.h"
#include "tests/sim/world.h"

namespace fairway::sim {

Code* Client::MakeCode(const std::vector<const ModelArray*>& args,
                       const std::vector<int32_t>& devices) {
  Random& r = world_.random;
  const ExecutableId id(world_.next_code++);
  Code& code = world_.codes[id];
  code.salt = r.Next();
  code.duration = r.Between(1, world_.config.duration);
  if (r.Percent(world_.config.failing_percent))
    code.fails_one_in = static_cast<int>(r.Between(1, 3));
  code.load_fails = r.Percent(world_.config.failing_percent / 8);
  code.separable = true;
  ExecutableSpec& spec = code.spec;
  spec.id = id;
  spec.name = fmt::format("f{}", id);
  spec.island = Virtual(devices[0]).island_id;
  for (const int32_t device : devices) spec.devices.push_back(DeviceOf(device));
  for (const ModelArray* arg : args) {
    ValueType type;
    type.dtype = DType::kU64;
    type.global = arg->spec.shape;
    type.shard = arg->spec.sharding.ShardShape(arg->spec.shape, 0).value();
    type.donated = r.Percent(30);
    spec.parameters.push_back(std::move(type));
  }
  const auto count = static_cast<int64_t>(devices.size());
  for (int64_t o = r.Percent(5) ? 0 : r.Between(1, 3); o > 0; --o) {
    ValueType type;
    type.dtype = DType::kU64;
    // Often as large as an argument, so that an argument can be donated.
    const bool like = !spec.parameters.empty() && r.Percent(50);
    type.shard =
        like ? r.Pick(spec.parameters).shard : Shape{{r.Percent(5) ? 0 : r.Between(1, 30)}};
    type.global = type.shard;
    if (count > 1 && r.Percent(60)) {
      type.tiles = {count};
      type.global.dims[0] *= count;
      for (int64_t i = 0; i < count; ++i) type.tile_of.push_back(i);
      if (r.Percent(30)) r.Shuffle(type.tile_of);
    } else if (count > 1) {
      code.separable = false;
    }
    if (r.Percent(5)) type.memory_kind = "host";
    spec.outputs.push_back(std::move(type));
  }
  code.separable = code.separable && r.Percent(80);
  spec.temp_bytes = r.Percent(50) ? 0 : 64 * r.Between(1, 6);
  spec.code = std::make_shared<const std::string>("code");
  world_.controller->cluster().executables().Define(spec);
  return &code;
}

Code* Client::FindCode(const std::vector<const ModelArray*>& args,
                       const std::vector<int32_t>& devices) {
  if (world_.random.Percent(40)) return MakeCode(args, devices);
  for (auto& [id, code] : world_.codes) {
    const ExecutableSpec& spec = code.spec;
    bool fits = world_.controller->cluster().executables().Has(id) &&
                spec.parameters.size() == args.size() && spec.devices.size() == devices.size();
    for (size_t i = 0; fits && i < devices.size(); ++i)
      fits = spec.devices[i] == DeviceOf(devices[i]);
    for (const ValueType& output : spec.outputs) fits = fits && output.dtype == DType::kU64;
    for (size_t a = 0; fits && a < args.size(); ++a)
      fits = args[a]->spec.sharding.ShardShape(args[a]->spec.shape, 0).value() ==
             spec.parameters[a].shard;
    if (fits) return &code;
  }
  return MakeCode(args, devices);
}

uint64_t Client::Bind(const Code& code, const std::vector<int32_t>& devices) {
  for (const auto& [handle, id] : executables_) {
    if (id == code.spec.id && world_.random.Percent(80)) return handle;
  }
  const auto bound =
      world_.controller->cluster().executables().Bind(session_, OutHandle(), code.spec.id, devices);
  if (world_.drained.contains(Virtual(devices[0]).island)) {
    Expect(bound.status(), "is drained", "bind on a drained island");
    return 0;
  }
  if (!Expect(bound.status(), "", "bind")) return 0;
  executables_[*bound] = code.spec.id;
  return *bound;
}

void Client::DoExecute() {
  Random& r = world_.random;
  std::vector<uint64_t> args;
  std::vector<int32_t> devices;
  const uint64_t base = r.Percent(10) ? 0 : AnyHandle();
  if (base != 0) {
    const ModelArray& like = arrays_[base];
    devices = like.spec.sharding.devices();
    std::set<int32_t> slices;
    for (const int32_t device : devices) slices.insert(Virtual(device).slice_index);
    if (slices.size() > 1) return;
    args.push_back(base);
    const std::vector<uint64_t> alike = Alike(like);
    while (args.size() < 4 && !alike.empty() && r.Percent(50))
      args.push_back(alike[r.Below(static_cast<int64_t>(alike.size()))]);
    r.Shuffle(args);
  } else {
    devices = RandomDevices(r.Between(1, 5), true);
  }
  // Code has one shape for all shards of an argument.
  std::erase_if(args, [&](uint64_t arg) {
    const ArraySpec& spec = arrays_[arg].spec;
    if (spec.dtype != DType::kU64) return true;
    const Shape first = spec.sharding.ShardShape(spec.shape, 0).value();
    for (int i = 1; i < spec.sharding.num_shards(); ++i) {
      if (spec.sharding.ShardShape(spec.shape, i).value() != first) return true;
    }
    return false;
  });
  std::vector<const ModelArray*> models;
  for (const uint64_t arg : args) models.push_back(&arrays_[arg]);
  Code* code = FindCode(models, devices);
  const uint64_t executable = Bind(*code, devices);
  if (executable == 0) return;
  ExecuteOptions options;
  for (size_t a = 0; a < args.size(); ++a) {
    if (r.Percent(20)) options.non_donatable.push_back(static_cast<int32_t>(a));
  }
  if (r.Percent(20)) options.watch = next_token_++;
  // The error of a wrong call; empty: the call is right.
  std::string refusal;
  for (size_t a = args.size(); a > 0; --a) {
    if (models[a - 1]->error.empty() && models[a - 1]->deleted()) refusal = "FAILED_PRECONDITION";
  }
  if (!args.empty() && r.Percent(4)) {
    switch (r.Below(3)) {
      case 0:
        args.pop_back();
        refusal = "arguments, but";
        break;
      case 1:
        args[0] = OutHandle();
        refusal = "NOT_FOUND";
        break;
      default:
        for (const auto& [handle, array] : arrays_) {
          if (array.error.empty() && !array.deleted() && array.spec.sharding.devices() != devices &&
              refusal.empty()) {
            args[0] = handle;
            refusal = "INVALID_ARGUMENT";
          }
        }
        break;
    }
  }
  std::vector<uint64_t> out;
  if (r.Percent(85)) {
    for (size_t o = 0; o < code->spec.outputs.size(); ++o) out.push_back(OutHandle());
  }
  world_.Trace("s{} execute {} args [{}] -> [{}] on {} devices", session_, code->spec.name,
               fmt::join(args, " "), fmt::join(out, " "), devices.size());
  Cluster::Executables& executables = world_.controller->cluster().executables();
  if (!out.empty() && r.Percent(70)) {
    ExecuteResult run;
    run.handles = out;
    run.specs = executables.Signature(session_, executable)->outputs;
    run.node = executables.Execute(session_, executable, args, options, out,
                                   ExpectsCall(refusal, "execute", out));
    if (refusal.empty()) Executed(*code, args, options, run);
    Began();
  } else {
    const auto run = executables.Execute(session_, executable, args, options, out);
    if (Expect(run.status(), refusal, "execute")) {
      Executed(*code, args, options, *run);
    } else {
      Refused(out, run.status());
    }
  }
  world_.controller->Settle();
  if (session_ && !executables_.empty() && r.Percent(5)) {
    const uint64_t released = executables_.begin()->first;
    executables_.erase(released);
    Expect(world_.controller->cluster().executables().Release(session_, released), "",
           "release of an executable");
  }
  if (r.Percent(3)) ForgetUnusedCode();
}

// The results hold the error of a refused call.
void Client::Refused(const std::vector<uint64_t>& out, const absl::Status& error) {
  world_.Count("execute refused");
  for (const uint64_t handle : out) {
    const ArraySpec* spec = world_.controller->cluster().arrays().Spec(session_, handle);
    if (spec != nullptr) arrays_[handle] = {*spec, {}, Describe(error)};
  }
}

Cluster::Done Client::ExpectsCall(const std::string& refusal, const std::string& what,
                                  const std::vector<uint64_t>& out) {
  return [this, out, done = Expects(refusal, what, out.size())](
             const absl::StatusOr<std::vector<uint64_t>>& made) {
    done(made);
    if (!made.ok()) Refused(out, made.status());
  };
}

void Client::ForgetUnusedCode() {
  Cluster& cluster = world_.controller->cluster();
  const std::set<ExecutableId> in_use = cluster.executables().InUse();
  for (const auto& [id, code] : world_.codes) {
    if (in_use.contains(id) || !cluster.executables().Has(id)) continue;
    cluster.executables().Forget(id);
    world_.Count("code forgotten");
  }
}

void Client::Executed(const Code& code, const std::vector<uint64_t>& args,
                      const ExecuteOptions& options, const ExecuteResult& result) {
  const ExecutableSpec& spec = code.spec;
  Inputs inputs;
  std::vector<std::shared_ptr<ModelGroup>> reads;
  std::string poison;
  uint64_t bits = 0;
  bool gone = false;
  for (const DeviceId device : spec.devices) bits |= BitsOf(device);
  for (const uint64_t arg : args) {
    const ModelArray& array = arrays_[arg];
    if (poison.empty()) poison = array.error;
    inputs.emplace_back(spec.devices.size(), 0);
    for (size_t i = 0; i < array.shards.size(); ++i) {
      inputs.back()[i] = array.shards[i].value();
      reads.push_back(array.shards[i].group);
      bits |= array.shards[i].group->machines;
      gone = gone || array.shards[i].group->surely_failed;
    }
  }
  Failures failures = Inherit(reads, world_.config.memory != 0);
  if (!poison.empty()) {
    failures = {{result.node, poison}};
  } else if (code.load_fails) {
    failures.push_back({result.node, code.LoadFailureText()});
  } else if (sim::MayBeFine(failures)) {
    for (std::string& text : code.Failures(inputs))
      failures.push_back({result.node, std::move(text)});
  }
  auto outcome = std::make_shared<ModelGroup>();
  outcome->failures = failures;
  outcome->machines = bits;
  for (size_t o = 0; o < spec.outputs.size(); ++o) {
    auto group = std::make_shared<ModelGroup>();
    group->failures = failures;
    group->machines = bits;
    group->surely_failed = gone && poison.empty();
    ModelArray array{result.specs[o], {}, {}};
    for (size_t i = 0; i < spec.devices.size(); ++i) {
      group->values.push_back(code.Output(inputs, o, i));
      group->devices.push_back(spec.devices[i]);
      group->kinds.push_back(spec.outputs[o].memory_kind);
      group->shapes.push_back(spec.outputs[o].shard);
      group->deleted.push_back(false);
      group->places |= BitsOf(spec.devices[i]);
      array.shards.push_back({group, static_cast<int32_t>(i)});
    }
    arrays_[result.handles[o]] = std::move(array);
  }
  for (size_t a = 0; a < args.size() && poison.empty(); ++a) {
    const bool kept = std::find(options.non_donatable.begin(), options.non_donatable.end(),
                                static_cast<int32_t>(a)) != options.non_donatable.end();
    if (spec.parameters[a].donated && !kept) arrays_[args[a]].Delete();
  }
  world_.Trace("  is n{}", result.node);
  if (options.watch) Await(*options.watch, result.node, std::move(outcome));
}

}  // namespace fairway::sim
