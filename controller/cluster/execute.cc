// SPDX-License-Identifier: Apache-2.0
// Executables: compiled code, its handles and layouts.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/ranges.h>

#include "controller/cluster/command_bytes.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/state.h"

namespace fairway {
namespace {

// For each device position the first one that holds the same tile; empty if no two do.
std::vector<int32_t> ReplicaOf(const ValueType& type, size_t devices) {
  if (devices == 1) return {};
  if (type.tile_of.empty()) return std::vector<int32_t>(devices, 0);
  std::unordered_map<int64_t, int32_t> first;
  std::vector<int32_t> out;
  for (size_t i = 0; i < type.tile_of.size(); ++i)
    out.push_back(first.try_emplace(type.tile_of[i], static_cast<int32_t>(i)).first->second);
  return first.size() == out.size() ? std::vector<int32_t>() : out;
}

// How many of its shards are no replica of an earlier one.
int64_t NumDistinct(const CodeLayout::Output& output) {
  int64_t out = 0;
  for (size_t i = 0; i < output.places.size(); ++i)
    out += output.replica_of.empty() || output.replica_of[i] == static_cast<int32_t>(i) ? 1 : 0;
  return out;
}

std::vector<int64_t> TilesOf(const ValueType& type, size_t devices) {
  return type.tile_of.empty() ? std::vector<int64_t>(devices, 0) : type.tile_of;
}

absl::StatusOr<ArraySpec> SpecOf(const ValueType& type, const std::vector<int32_t>& devices) {
  if (devices.size() == 1)
    return ArraySpec{type.dtype, type.global, Sharding::SingleDevice(devices[0], type.memory_kind)};
  if (type.tile_of.empty())
    return ArraySpec{type.dtype, type.global, Sharding::Replicated(devices, type.memory_kind)};
  if (type.per_device)
    return ArraySpec{type.dtype, type.global,
                     Sharding::PerDevice(devices, type.shard, type.tile_of, type.memory_kind)};
  FAIRWAY_ASSIGN_OR_RETURN(
      Sharding sharding,
      Sharding::Tiled(devices, type.tiles, TilesOf(type, devices.size()), type.memory_kind));
  return ArraySpec{type.dtype, type.global, std::move(sharding)};
}

}  // namespace

absl::Status CheckCallValues(std::string_view what, size_t arguments, size_t results) {
  if (arguments + results <= kMaxCallValues) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted,
               "{} takes {} arrays and makes {}: one call may have {} of both together. Put them "
               "into fewer, larger arrays (stack those of one shape), or split the program",
               what, arguments, results, kMaxCallValues);
}

CodeLayout LayoutOf(const ExecutableSpec& spec, const std::vector<DeviceSeat>& seats) {
  CodeLayout layout;
  std::map<ExecutorId, int32_t> part_of;
  std::vector<Place> places;
  for (size_t i = 0; i < spec.devices.size(); ++i) {
    const DeviceSeat& seat = seats[i];
    const auto [known, fresh] =
        part_of.try_emplace(seat.executor, static_cast<int32_t>(layout.parts.size()));
    if (fresh) layout.parts.push_back({seat.executor, {}, {}});
    CodeLayout::Part& part = layout.parts[known->second];
    part.positions.push_back(static_cast<int32_t>(i));
    part.ordinals.push_back(seat.ordinal);
    layout.part_of.push_back(known->second);
    places.push_back({seat.executor, seat.ordinal, spec.devices[i], 0});
    AddReservation(layout.reservations, spec.devices[i], 0, spec.temp_bytes, i);
  }
  layout.part_on.assign(part_of.begin(), part_of.end());
  layout.install_bytes = InstallBytes(spec);
  for (const CodeLayout::Part& part : layout.parts)
    layout.widest = std::max(layout.widest, part.positions.size());
  for (const CodeLayout::Part& part : layout.parts)
    layout.command_bytes = std::max(layout.command_bytes, CommandBytes(spec, part.ordinals.size()));
  const ValueType* last = nullptr;
  layout.outputs.reserve(spec.outputs.size());
  for (const ValueType& type : spec.outputs) {
    const int64_t bytes = ByteSize(type.dtype, type.shard).value_or(0);
    if (last != nullptr && bytes == layout.outputs.back().places[0].bytes &&
        type.tile_of == last->tile_of) {
      layout.outputs.push_back(layout.outputs.back());  // outputs alike share their places
    } else {
      for (Place& place : places) place.bytes = bytes;
      layout.outputs.push_back({places, ReplicaOf(type, places.size()), RoomOf(places)});
    }
    last = places.empty() ? nullptr : &type;
    for (size_t i = 0; i < places.size(); ++i)
      AddReservation(layout.reservations, places[i].device, bytes, 0, i);
    const auto number = static_cast<int32_t>(layout.by_bytes.size());
    layout.by_bytes.emplace_back(bytes * NumDistinct(layout.outputs.back()), number);
  }
  if (!std::ranges::is_sorted(layout.by_bytes)) std::ranges::sort(layout.by_bytes);
  layout.needs = NeedsOf(layout.reservations);
  std::vector<MemoryNeed> temps;
  for (const Reservation& r : layout.reservations) {
    if (r.temp > 0) temps.push_back({r.device, r.temp});
  }
  layout.temps = InRows(std::move(temps));
  return layout;
}

void Cluster::Executables::Define(ExecutableSpec spec) {
  CodeLayout layout = LayoutOf(spec, SeatsOf(spec.devices));
  Define(std::move(spec), std::move(layout));
}

void Cluster::Executables::Define(ExecutableSpec spec, CodeLayout layout) {
  state_->launches.Define(std::move(spec), std::move(layout));
}

std::vector<DeviceSeat> Cluster::Executables::SeatsOf(const std::vector<DeviceId>& devices) const {
  return state_->launches.SeatsOf(devices);
}

const ExecutableSpec* Cluster::Executables::Find(ExecutableId id) const {
  const auto it = state_->executables.find(id);
  return it == state_->executables.end() ? nullptr : &it->second;
}

std::set<ExecutableId> Cluster::Executables::InUse() const {
  std::set<ExecutableId> out;
  for (const auto& [id, session] : state_->sessions) {
    for (const auto& [handle, binding] : session.executables) out.insert(binding.executable);
  }
  // The parts of programs, and of programs that are gone but still at work.
  for (auto it = state_->executables.lower_bound(ExecutableId(ProgramRuns::kFirstSequence));
       it != state_->executables.end(); ++it)
    out.insert(it->second.parts.begin(), it->second.parts.end());
  // The parts of programs that are being bound.
  for (const auto& [id, list] : state_->worklists) {
    for (const auto& bind : list.binds) {
      for (const PlacedProgram::Part& part : bind->program->placed->parts)
        out.insert(part.spec.parts.begin(), part.spec.parts.end());
    }
  }
  for (const auto& [id, layout] : state_->layouts) {
    if (layout.runs > 0) out.insert(id);
  }
  for (const auto& [id, executor] : state_->executors) {
    for (const auto& [executable, install] : executor.installs) {
      if (!install.installed) out.insert(executable);
    }
  }
  return out;
}

void Cluster::Executables::Forget(ExecutableId id) {
  const Operation operation(*state_);
  for (auto& [executor_id, executor] : state_->executors) {
    if (executor.installs.erase(id) > 0)
      state_->commands.Send(executor, DropExecutable{id}, SessionId());
  }
  state_->launches.Undefine(id);
}

absl::StatusOr<uint64_t> Cluster::Executables::Bind(SessionId session_id, uint64_t out,
                                                    ExecutableId id,
                                                    const std::vector<int32_t>& devices) {
  const Operation operation(*state_);
  State& s = *state_;
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, s.LookAt(session_id));
  const auto it = s.executables.find(id);
  if (it == s.executables.end())
    return Error(absl::StatusCode::kNotFound, "there is no executable {}", id);
  const ExecutableSpec& spec = it->second;
  FAIRWAY_RETURN_IF_ERROR(s.IslandOf(*session, devices).status());
  if (devices.size() != spec.devices.size())
    return InvalidArgument("{} was compiled for {} devices, but {} were given", spec.name,
                           spec.devices.size(), devices.size());
  for (size_t i = 0; i < devices.size(); ++i) {
    if (session->devices[devices[i]].device != spec.devices[i])
      return InvalidArgument("{} was not compiled for device {} at position {}", spec.name,
                             devices[i], i);
  }
  s.Charge((spec.parameters.size() + spec.outputs.size()) / kValuesPerUnit);
  std::vector<ArraySpec> outputs;
  outputs.reserve(spec.outputs.size());
  const ValueType* last = nullptr;
  for (const ValueType& type : spec.outputs) {
    // Mostly, results that follow each other have one sharding.
    const bool alike = last != nullptr && last->memory_kind == type.memory_kind &&
                       (devices.size() == 1 || (last->tile_of.empty() && type.tile_of.empty()));
    last = &type;
    if (alike) {
      outputs.push_back({type.dtype, type.global, outputs.back().sharding});
    } else {
      FAIRWAY_ASSIGN_OR_RETURN(outputs.emplace_back(), SpecOf(type, devices));
    }
  }
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t handle, s.NewHandle(*session, out));
  session->executables.emplace(
      handle,
      Binding{id, devices, std::make_shared<const std::vector<ArraySpec>>(std::move(outputs))});
  return handle;
}

absl::Status Cluster::Executables::Release(SessionId session_id, uint64_t handle) {
  const Operation operation(*state_);
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, state_->FindSession(session_id));
  if (session->executables.erase(handle) == 0)
    return Error(absl::StatusCode::kNotFound, "there is no executable {} in this session", handle);
  return absl::OkStatus();
}

absl::StatusOr<ExecutableSignature> Cluster::Executables::Signature(SessionId session_id,
                                                                    uint64_t executable) const {
  FAIRWAY_ASSIGN_OR_RETURN(const Session* session, state_->LookAt(session_id));
  const auto bound = session->executables.find(executable);
  if (bound == session->executables.end())
    return Error(absl::StatusCode::kNotFound, "there is no executable {} in this session",
                 executable);
  const ExecutableSpec& spec = state_->executables.at(bound->second.executable);
  ExecutableSignature out{spec.name, {}, {}, *bound->second.outputs};
  for (const ValueType& type : spec.parameters) {
    FAIRWAY_ASSIGN_OR_RETURN(out.parameters.emplace_back(), SpecOf(type, bound->second.devices));
    out.donated.push_back(type.donated);
  }
  return out;
}

absl::StatusOr<ResultTypes> Cluster::Executables::Results(SessionId session_id,
                                                          uint64_t executable) const {
  FAIRWAY_ASSIGN_OR_RETURN(const Session* session, state_->LookAt(session_id));
  const auto bound = session->executables.find(executable);
  if (bound == session->executables.end())
    return Error(absl::StatusCode::kNotFound, "there is no executable {} in this session",
                 executable);
  return [types = bound->second.outputs](size_t i) -> const ArraySpec& { return types->at(i); };
}

}  // namespace fairway
