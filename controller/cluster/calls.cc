// SPDX-License-Identifier: Apache-2.0
// Calls of executables. A call may have tens of thousands of arguments and results, so it begins a
// few of them at a time.
#include <algorithm>
#include <memory>
#include <utility>

#include "controller/cluster/executables.h"
#include "controller/cluster/many.h"

namespace fairway {
class Cluster::Requests::CallRequest final : public LongRequest {
 public:
  // `binding` and `spec` must outlive it.
  CallRequest(State& state, const Binding& binding, const ExecutableSpec& spec,
              std::vector<uint64_t> args, const ExecuteOptions& options, std::vector<uint64_t> out)
      : s(state),
        binding_(binding),
        spec_(spec),
        args_(std::move(args)),
        kept_(options.Kept(args_.size())),
        watch_(options.watch),
        handles_(std::move(out)) {}

  bool GoOn(Session& session) override;
  bool GiveUp() override;
  std::vector<IslandId> ComputesOn() const override { return {spec_.island}; }
  NodeId node() const { return launch_.id; }

 private:
  enum class Phase : uint8_t { kHandles, kArguments, kLaunch, kRefused };
  // Does the next item. Returns whether the call is over.
  bool DoSome(Session& session);
  bool AddHandle(Session& session);
  absl::Status CheckNext(Session& session);
  // Checks argument `a`. The messages must let the user find the mistake.
  absl::Status Fits(size_t a, const Array& array) const;
  void BeginLaunch(Session& session);

  State& s;
  const Binding& binding_;
  const ExecutableSpec& spec_;
  const std::vector<uint64_t> args_;
  const std::vector<bool> kept_;
  const std::optional<uint64_t> watch_;
  ResultHandles handles_;
  Phase phase_ = Phase::kHandles;
  NewLaunch launch_;
  size_t errors_ = 0;  // kRefused: the results that hold the error
};

bool Cluster::Requests::CallRequest::GoOn(Session& session) {
  constexpr int kAtOnce = 16;
  constexpr uint64_t kUnitsAtOnce = 32;
  if (phase_ == Phase::kLaunch) {
    if (!s.launches.GoOn(session, launch_)) return false;
    if (launch_.watch != 0) s.watches.Ended(session.id, launch_.watch, 0, launch_.poison, NodeId());
    result = handles_.Take();
    return true;
  }
  const uint64_t until = s.units + kUnitsAtOnce;
  for (int i = 0; i < kAtOnce && s.units < until && phase_ != Phase::kLaunch; ++i) {
    if (DoSome(session)) return true;
  }
  return false;
}

bool Cluster::Requests::CallRequest::DoSome(Session& session) {
  switch (phase_) {
    case Phase::kHandles:
      return AddHandle(session);
    case Phase::kArguments:
      if (launch_.arguments.size() == args_.size()) {
        BeginLaunch(session);
      } else if (absl::Status fits = CheckNext(session); !fits.ok()) {
        result = std::move(fits);
        phase_ = Phase::kRefused;
      }
      return false;
    case Phase::kRefused:
      // The results hold the error, if the client knows them.
      if (!handles_.asked() || errors_ == handles_.size()) return true;
      s.Charge(1);
      session.arrays.emplace(handles_[errors_],
                             Array{(*binding_.outputs)[errors_], {}, result.status()});
      ++errors_;
      return false;
    case Phase::kLaunch:
      return false;
  }
  return true;
}

bool Cluster::Requests::CallRequest::AddHandle(Session& session) {
  const size_t results = spec_.outputs.size();
  if (handles_.size() == 0) handles_.Reserve(results);
  if (handles_.size() < results) {
    if (absl::Status added = s.requests.AddHandle(session, handles_); !added.ok()) {
      result = std::move(added);
      return true;
    }
    return false;
  }
  phase_ = Phase::kArguments;
  if (args_.size() != spec_.parameters.size()) {
    result = InvalidArgument("{} takes {} arguments, but {} were given", spec_.name,
                             spec_.parameters.size(), args_.size());
    phase_ = Phase::kRefused;
  }
  launch_.arguments.reserve(args_.size());
  return false;
}

absl::Status Cluster::Requests::CallRequest::CheckNext(Session& session) {
  const size_t a = launch_.arguments.size();
  const auto what = [&] { return fmt::format("{}: argument {}", spec_.name, a); };
  const absl::StatusOr<Array*> found = s.FindIn(session, args_[a]);
  if (!found.ok()) return Annotate(found.status(), what());
  const Array& array = **found;
  launch_.arguments.push_back(&array);
  if (spec_.parameters[a].donated && (kept_.empty() || !kept_[a]))
    launch_.donatable.push_back(static_cast<int32_t>(a));
  if (!array.error.ok()) {
    if (launch_.poison.ok()) launch_.poison = array.error;
    return absl::OkStatus();
  }
  s.ChargeShards(array.shards.size());
  if (absl::Status usable = s.views.CheckUsable(array, args_[a]); !usable.ok())
    return Annotate(usable, what());
  return Fits(a, array);
}

absl::Status Cluster::Requests::CallRequest::Fits(size_t a, const Array& array) const {
  const ValueType& want = spec_.parameters[a];
  if (array.spec.dtype != want.dtype)
    return InvalidArgument("{}: argument {} is {}, expected {}", spec_.name, a,
                           ToString(array.spec.dtype, array.spec.shape),
                           ToString(want.dtype, want.global));
  if (array.shards.size() != spec_.devices.size())
    return InvalidArgument(
        "{}: argument {} has {} shards, expected {} (one per device of the computation)",
        spec_.name, a, array.shards.size(), spec_.devices.size());
  const auto runs = array.shards.runs();
  const Group* group = s.FindGroup(runs.front().group);
  CodeLayout& layout = s.layouts.at(spec_.id);
  const bool whole = runs.size() == 1 && runs[0].shard == 0 && group->shapes.size() == 1 &&
                     group->places.size() == spec_.devices.size();
  if (whole && group->shapes[0] == want.shard && group->places.Shares(layout.argument_places))
    return absl::OkStatus();
  for (size_t i = 0; i < array.shards.size(); ++i) {
    const ShardRef& ref = array.shards[i];
    if (group->id != ref.group) group = s.FindGroup(ref.group);
    if (group->places[ref.shard].device != spec_.devices[i])
      return InvalidArgument(
          "{}: shard {} of argument {} lies on another device than the computation expects there; "
          "arrays given to one "
          "computation must all lie on its devices (use jax.device_put)",
          spec_.name, i, a);
    const Shape& shape = group->shape(ref.shard);
    if (shape != want.shard)
      return InvalidArgument("{}: shard {} of argument {} is {}, expected {}", spec_.name, i, a,
                             ToString(array.spec.dtype, shape), ToString(want.dtype, want.shard));
  }
  if (whole) layout.argument_places = group->places;
  return absl::OkStatus();
}

void Cluster::Requests::CallRequest::BeginLaunch(Session& session) {
  phase_ = Phase::kLaunch;
  launch_.spec = &spec_;
  launch_.types = {binding_.outputs->data()};
  if (launch_.poison.ok()) launch_.poison = s.launches.CheckSendable(spec_);
  launch_.put = [this, &session](size_t output, Array array) {
    handles_.Used(output);
    if (each != nullptr) each(handles_[output]);
    session.arrays.emplace(handles_[output], std::move(array));
  };
  if (watch_) launch_.watch = s.watches.Add(session, *watch_);  // open until all is made
}

bool Cluster::Requests::CallRequest::GiveUp() {
  s.launches.GiveUp(launch_);
  return handles_.GiveUp();
}

absl::StatusOr<std::unique_ptr<Cluster::Requests::CallRequest>> Cluster::Requests::NewCall(
    Session& session, uint64_t executable, std::vector<uint64_t> args,
    const ExecuteOptions& options, std::vector<uint64_t> out) {
  ++s.executions;
  const auto bound = session.executables.find(executable);
  if (bound == session.executables.end())
    return Error(absl::StatusCode::kNotFound, "there is no executable {} in this session",
                 executable);
  const Binding& binding = bound->second;
  const ExecutableSpec& spec = s.executables.at(binding.executable);
  if (!out.empty() && out.size() != spec.outputs.size())
    return InvalidArgument("{} has {} results, but {} handles were given for them", spec.name,
                           spec.outputs.size(), out.size());
  return std::make_unique<CallRequest>(s, binding, spec, std::move(args), options, std::move(out));
}

absl::StatusOr<ExecuteResult> Cluster::Executables::Execute(SessionId session_id,
                                                            uint64_t executable,
                                                            const std::vector<uint64_t>& args,
                                                            const ExecuteOptions& options,
                                                            const std::vector<uint64_t>& out) {
  const Operation operation(*state_);
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, state_->FindSession(session_id));
  FAIRWAY_ASSIGN_OR_RETURN(const auto call,
                           state_->requests.NewCall(*session, executable, args, options, out));
  ExecuteResult result;
  FAIRWAY_ASSIGN_OR_RETURN(result.handles, state_->requests.AtOnce(*session, *call));
  result.node = call->node();
  result.specs = *session->executables.at(executable).outputs;
  return result;
}

NodeId Cluster::Executables::Execute(SessionId session_id, uint64_t executable,
                                     std::vector<uint64_t> args, const ExecuteOptions& options,
                                     std::vector<uint64_t> out, Done done, Each each) {
  const Operation operation(*state_);
  const NodeId first(state_->nodes.next_node);
  const absl::StatusOr<Session*> session = state_->FindSession(session_id);
  if (!session.ok()) return first;
  auto call =
      state_->requests.NewCall(**session, executable, std::move(args), options, std::move(out));
  if (call.ok()) {
    state_->requests.Begin(**session, *std::move(call), std::move(done), std::move(each));
  } else {
    state_->requests.AnswerAtOnce(session_id, std::move(done), call.status());
  }
  return first;
}

}  // namespace fairway
