// SPDX-License-Identifier: Apache-2.0
// Requests about compiled programs.
#include <algorithm>
#include <optional>
#include <utility>

#include "controller/cluster/executables.h"
#include "controller/cluster/placed_program.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/sessions.h"
#include "controller/ifrt/compile_request.h"
#include "controller/ifrt/describe.h"
#include "controller/ifrt/session.h"
#include "controller/sessions/handle_lists.h"
#include "wire/ifrt_sharding.h"
#include "wire/ifrt_values.h"

namespace fairway {
namespace {

constexpr size_t kHashedAtOnce = size_t{1} << 20;  // another thread hashes larger programs

}  // namespace

absl::StatusOr<IfrtSession::Loaded*> IfrtSession::FindLoaded(uint64_t handle) {
  const auto it = loaded_.find(handle);
  if (it == loaded_.end())
    return Error(absl::StatusCode::kNotFound, "there is no executable {} in this session", handle);
  return &it->second;
}

absl::StatusOr<IfrtSession::Loaded*> IfrtSession::FindComputation(uint64_t handle,
                                                                  std::string_view what) {
  FAIRWAY_ASSIGN_OR_RETURN(Loaded * loaded, FindLoaded(handle));
  if (loaded->dataflow)
    return Error(absl::StatusCode::kUnimplemented, "a dataflow program has no {}", what);
  return loaded;
}

void IfrtSession::Compile(Call call, xla::ifrt::proxy::CompileRequest& request) {
  if (IsPluginProgram(request)) return BindDataflow(std::move(call), request);
  const auto fail = [&](const absl::Status& status) {
    Answer(std::move(call), status, std::make_unique<Response>());
  };
  const absl::StatusOr<ParsedCompile> parsed =
      ParseCompile(request, static_cast<int>(devices().size()));
  if (!parsed.ok()) return fail(parsed.status());
  const absl::StatusOr<IslandId> island = cluster_->sessions().IslandOf(session_, parsed->devices);
  if (!island.ok()) return fail(island.status());
  std::vector<DeviceId> physical;
  for (const int32_t device : parsed->devices) physical.push_back(devices()[device].device);
  auto bytes =
      std::make_shared<const std::string>(std::move(*request.mutable_program()->mutable_data()));
  const size_t size = bytes->size();
  auto done = [this, alive = alive_, call = std::move(call), devices = parsed->devices,
               portable = parsed->options.portable(),
               pending = compiling_.Add(size)](absl::StatusOr<CompiledProgram> program) {
    if (!*alive) return;
    auto response = std::make_unique<Response>();
    absl::Status status = program.status();
    if (status.ok()) status = FillCompiled(*program, devices, portable, *response);
    Answer(call, status, std::move(response));
  };
  if (size <= kHashedAtOnce) {
    return compiler_->Compile(KnownProgram(std::move(bytes)), parsed->options,
                              {session_, *island, std::move(physical)}, std::move(done));
  }
  auto program = std::make_shared<std::optional<KnownProgram>>();
  shell_->RunOffLoop([bytes = std::move(bytes), program] { program->emplace(bytes); },
                     [this, alive = alive_, program, options = parsed->options,
                      target = CompileService::Target{session_, *island, std::move(physical)},
                      done = std::move(done)] {
                       if (!*alive) return;
                       compiler_->Compile(**program, options, target, done);
                     });
}

absl::Status IfrtSession::FillCompiled(const CompiledProgram& program,
                                       const std::vector<int32_t>& devices, bool portable,
                                       Response& response) {
  FAIRWAY_RETURN_IF_ERROR(CountRecords());
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t handle,
                           cluster_->executables().Bind(session_, 0, program.id, devices));
  Loaded& loaded = loaded_[handle];
  loaded.id = program.id;
  loaded.metadata = program.metadata;
  loaded.devices = devices;
  loaded.portable = portable;
  auto* out = response.mutable_compile_response();
  out->set_loaded_executable_handle(handle);
  out->set_name(ValidUtf8(program.metadata->name()));
  out->set_num_devices(static_cast<int32_t>(devices.size()));
  if (!portable) out->mutable_device_ids()->Assign(devices.begin(), devices.end());
  out->mutable_addressable_device_ids()->Assign(devices.begin(), devices.end());
  out->set_fingerprint_value(program.metadata->fingerprint());
  Future ready;
  ready.status = absl::OkStatus();
  out->set_ready_future_handle(MakeFuture(std::move(ready)));
  return absl::OkStatus();
}

void IfrtSession::Metadata(Call call, uint64_t handle) {
  const absl::StatusOr<Loaded*> found = FindLoaded(handle);
  auto response = std::make_unique<Response>();
  if (!found.ok()) return Answer(std::move(call), found.status(), std::move(response));
  const Loaded& loaded = **found;
  if (loaded.dataflow) return DataflowMetadata(std::move(call), handle);
  const v1::ExecutableMetadata& metadata = *loaded.metadata;
  Describe(
      std::move(call), metadata.parameters_size() + metadata.outputs_size(),
      [metadata = loaded.metadata, count = loaded.devices.size(),
       kinds = devices()[loaded.devices[0]].memory_kinds](Response& out) {
        DescribeExecutable(*metadata, count, kinds,
                           out.mutable_loaded_executable_metadata_response());
        return absl::OkStatus();
      },
      std::move(response));
}

absl::StatusOr<uint64_t> IfrtSession::HandleFor(Loaded& loaded, uint64_t handle,
                                                const std::vector<int32_t>& devices) {
  if (devices.empty() || devices == loaded.devices) return handle;
  if (!loaded.portable)
    return InvalidArgument("{} was compiled for other devices than those named by this execution",
                           loaded.metadata->name());
  FAIRWAY_ASSIGN_OR_RETURN(const IslandId island, cluster_->sessions().IslandOf(session_, devices));
  if (devices.size() != 1)
    return InvalidArgument("{} runs on one device, {} were named", loaded.metadata->name(),
                           devices.size());
  const auto known = loaded.placed.find(devices[0]);
  if (known != loaded.placed.end()) return known->second;
  FAIRWAY_ASSIGN_OR_RETURN(
      const ExecutableId id,
      compiler_->Place(loaded.id, island, {this->devices()[devices[0]].device}));
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t placed,
                           cluster_->executables().Bind(session_, 0, id, devices));
  loaded.placed[devices[0]] = placed;
  return placed;
}

std::vector<int32_t> IfrtSession::DevicesOf(
    const Loaded& loaded, const xla::ifrt::proxy::LoadedExecutableExecuteRequest& request) const {
  const auto& named = request.device_ids();
  if (named.empty()) return loaded.devices;
  if (static_cast<size_t>(named.size()) > devices().size()) return {};  // it will be refused
  return {named.begin(), named.end()};
}

// An execution that is not answered yet.
struct IfrtSession::Executing {
  Call call;
  uint64_t executable = 0;
  uint64_t placed = 0;        // the cluster's handle, unless it is a dataflow program
  std::vector<uint64_t> out;  // handles for the results; empty: the answer describes them
  bool fill_status = false;
  uint64_t asked_status = 0;
  uint64_t status_handle = 0;
  bool room = true;     // for its future, if it has one
  uint64_t number = 0;  // in ends_
  std::optional<uint64_t> watch;
};

void IfrtSession::Execute(Call call,
                          const xla::ifrt::proxy::LoadedExecutableExecuteRequest& request) {
  const auto executing = std::make_shared<Executing>();
  executing->executable = request.loaded_executable_handle();
  executing->out = ToVector(request.result_array_handle());
  executing->asked_status = executing->status_handle = request.result_status_handle();
  const bool asks = request.execute_options().fill_status() || executing->asked_status != 0;
  const absl::Status room = asks ? CountRecords() : absl::OkStatus();
  executing->room = room.ok();
  executing->fill_status = request.execute_options().fill_status() && room.ok();
  Cluster::Each hold = Holding(call);
  executing->call = std::move(call);
  const absl::StatusOr<Loaded*> loaded = FindLoaded(executing->executable);
  if (executing->fill_status) {  // now, because the end may come within the call
    Future future;
    future.of_execution = true;
    if (executing->asked_status != 0) {
      futures_[executing->asked_status] = std::move(future);
    } else {
      executing->status_handle = MakeFuture(std::move(future));
    }
    const uint64_t number =
        ends_.Begin(loaded.ok() ? DevicesOf(**loaded, request) : std::vector<int32_t>());
    executing->number = number;
    statuses_.emplace(number, executing->status_handle);
    executing->watch = WatchToken([this, number](absl::Status status) {
      ends_.Ended(number, std::move(status));
      TellEnds();
    });
  }
  if (!room.ok()) return Executed(*executing, room);
  if (!loaded.ok()) return Executed(*executing, loaded.status());
  ExecuteOptions options;
  options.watch = executing->watch;
  options.non_donatable.assign(request.execute_options().non_donatable_input_indices().begin(),
                               request.execute_options().non_donatable_input_indices().end());
  Cluster::Done done = [this, executing](const absl::StatusOr<std::vector<uint64_t>>& handles) {
    Executed(*executing, handles);
  };
  std::vector<uint64_t> arguments = ToVector(request.args_handles());
  if ((*loaded)->dataflow) {
    cluster_->programs().Run(session_, executing->executable, std::move(arguments), options,
                             executing->out, std::move(done), std::move(hold));
    return;
  }
  const absl::StatusOr<uint64_t> handle = HandleFor(
      **loaded, executing->executable, {request.device_ids().begin(), request.device_ids().end()});
  if (!handle.ok()) return Executed(*executing, handle.status());
  executing->placed = *handle;
  cluster_->executables().Execute(session_, *handle, std::move(arguments), options, executing->out,
                                  std::move(done), std::move(hold));
}

void IfrtSession::Executed(Executing& executing,
                           const absl::StatusOr<std::vector<uint64_t>>& handles) {
  auto response = std::make_unique<Response>();
  if (handles.ok()) {
    auto* const executed = response->mutable_loaded_executable_execute_response();
    if (executing.fill_status && executing.asked_status == 0)
      executed->set_status_handle(executing.status_handle);
    if (executing.out.empty() && !handles->empty())
      return DescribeOutputs(executing, *handles, std::move(response));
    return Answer(std::move(executing.call), absl::OkStatus(), std::move(response));
  }
  const absl::Status& error = handles.status();
  (void)errors_.Poison(executing.out, error);
  if (executing.watch) watches_.erase(*executing.watch);
  if (executing.fill_status) {
    // The client does not learn of it.
    if (executing.asked_status == 0) futures_.erase(executing.status_handle);
    ends_.Ended(executing.number, error);
    TellEnds();
  } else if (executing.asked_status != 0 && executing.room) {
    futures_[executing.asked_status] = Future{true, false, error, std::nullopt};
  }
  Answer(std::move(executing.call), error, std::move(response));
}

void IfrtSession::DescribeOutputs(Executing& executing, std::vector<uint64_t> handles,
                                  std::unique_ptr<Response> response) {
  const auto fail = [&](const absl::Status& status) {
    Answer(std::move(executing.call), status, std::make_unique<Response>());
  };
  const absl::StatusOr<Loaded*> loaded = FindLoaded(executing.executable);
  if (!loaded.ok()) return fail(loaded.status());
  absl::StatusOr<ResultTypes> types;
  if ((*loaded)->dataflow) {
    auto program = cluster_->programs().Find(session_, executing.executable);
    if (!program.ok()) return fail(program.status());
    types = ResultsOf(*std::move(program));
  } else {
    types = cluster_->executables().Results(session_, executing.placed);
    if (!types.ok()) return fail(types.status());
  }
  const size_t results = handles.size();
  Describe(
      std::move(executing.call), results,
      [metadata = (*loaded)->metadata, types = *std::move(types),
       handles = std::move(handles)](Response& out) -> absl::Status {
        auto* const executed = out.mutable_loaded_executable_execute_response();
        for (size_t i = 0; i < handles.size(); ++i) {
          const ArraySpec& spec = types(i);
          auto* output = executed->add_outputs();
          // jaxlib refuses to fetch a token, and recognizes it by this dtype.
          const bool token = metadata != nullptr && metadata->outputs(static_cast<int>(i)).token();
          DTypeToProto(token ? DType::kToken : spec.dtype, output->mutable_dtype());
          ShapeToProto(spec.shape, output->mutable_shape());
          FAIRWAY_RETURN_IF_ERROR(
              ShardingToProto(spec.sharding, spec.shape, output->mutable_sharding()));
          output->set_array_handle(handles[i]);
        }
        return absl::OkStatus();
      },
      std::move(response));
}

void IfrtSession::Describe(Call call, size_t values,
                           std::function<absl::Status(Response& response)> fill,
                           std::unique_ptr<Response> response) {
  constexpr size_t kDescribedAtOnce = 256;  // another thread describes more
  struct Described {
    std::unique_ptr<Response> response;
    std::function<absl::Status(Response& response)> fill;
    absl::Status status;
  };
  auto described = std::make_shared<Described>(Described{std::move(response), std::move(fill), {}});
  const auto work = [described] {
    described->status = std::exchange(described->fill, nullptr)(*described->response);
  };
  if (values <= kDescribedAtOnce) {
    work();
    return Answer(std::move(call), described->status, std::move(described->response));
  }
  ++describing_;
  shell_->RunOffLoop(work, [this, alive = alive_, call = std::move(call), described] {
    if (!*alive) return;
    --describing_;
    Answer(call, described->status, std::move(described->response));
  });
}

absl::Status IfrtSession::CostAnalysis(uint64_t handle, Response& response) {
  FAIRWAY_ASSIGN_OR_RETURN(const Loaded* loaded, FindComputation(handle, "cost analysis"));
  std::map<std::string, AttributeValue> attributes;
  for (const auto& [name, value] : loaded->metadata->cost())
    attributes[name] = static_cast<float>(value);
  AttributesToProto(
      attributes,
      response.mutable_loaded_executable_cost_analysis_response()->mutable_attributes());
  return absl::OkStatus();
}

absl::Status IfrtSession::ProgramText(uint64_t handle, Response& response) {
  FAIRWAY_ASSIGN_OR_RETURN(const Loaded* loaded, FindComputation(handle, "text"));
  auto* out = response.mutable_loaded_executable_human_readable_program_text_response();
  if (loaded->metadata->program_text().empty()) {
    StatusToProto(
        Error(absl::StatusCode::kUnimplemented, "the plugin gives no text of this program"),
        out->mutable_status());
  } else {
    out->set_human_readable_program_text(ValidUtf8(loaded->metadata->program_text()));
  }
  return absl::OkStatus();
}

absl::Status IfrtSession::DestructExecutable(uint64_t handle, Response& response) {
  FAIRWAY_ASSIGN_OR_RETURN(const Loaded* loaded, FindLoaded(handle));
  for (const auto& [device, placed] : loaded->placed)
    (void)cluster_->executables().Release(session_, placed);
  const bool dataflow = loaded->dataflow;
  loaded_.erase(handle);
  response.mutable_loaded_executable_destruct_response();
  if (dataflow) return cluster_->programs().Release(session_, handle);
  return cluster_->executables().Release(session_, handle);
}

}  // namespace fairway
