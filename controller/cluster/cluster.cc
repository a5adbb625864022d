// SPDX-License-Identifier: Apache-2.0
// The core as a whole; sessions: opened, closed, their devices.
#include "controller/cluster/cluster.h"

#include <algorithm>
#include <utility>

#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/listings.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/sessions.h"
#include "controller/cluster/state.h"

namespace fairway {

struct Cluster::Owners {
  explicit Owners(State* state)
      : fleet(state),
        sessions(state),
        arrays(state),
        executables(state),
        programs(state),
        inspection(state),
        listings(state, &sessions) {}

  Fleet fleet;
  Sessions sessions;
  Arrays arrays;
  Executables executables;
  Programs programs;
  Inspection inspection;
  Listings listings;
};

Cluster::Cluster(ClusterOptions options, ClusterActions* actions)
    : state_(std::make_unique<State>(std::move(options), actions)),
      owners_(std::make_unique<Owners>(state_.get())) {}
// Calls that are being made let go of their islands, which must still be there.
Cluster::~Cluster() { state_->worklists.clear(); }

Cluster::Fleet& Cluster::fleet() { return owners_->fleet; }
const Cluster::Fleet& Cluster::fleet() const { return owners_->fleet; }
Cluster::Sessions& Cluster::sessions() { return owners_->sessions; }
const Cluster::Sessions& Cluster::sessions() const { return owners_->sessions; }
Cluster::Arrays& Cluster::arrays() { return owners_->arrays; }
const Cluster::Arrays& Cluster::arrays() const { return owners_->arrays; }
Cluster::Executables& Cluster::executables() { return owners_->executables; }
const Cluster::Executables& Cluster::executables() const { return owners_->executables; }
Cluster::Programs& Cluster::programs() { return owners_->programs; }
const Cluster::Programs& Cluster::programs() const { return owners_->programs; }
const Cluster::Inspection& Cluster::inspection() const { return owners_->inspection; }
const Cluster::Listings& Cluster::listings() const { return owners_->listings; }

absl::Status Cluster::Sessions::MayOpen() const { return state_->AnyOpen(); }

absl::StatusOr<SessionId> Cluster::Sessions::Open(const std::string& tenant) {
  const Operation operation(*state_);
  State& s = *state_;
  FAIRWAY_RETURN_IF_ERROR(s.AnyOpen());
  Session session(&s.record_bytes);
  session.id = SessionId(s.next_session++);
  session.tenant = tenant;
  session.fetched = s.transfers.Share();
  std::vector<VirtualDevice> devices;
  int32_t slice = 0;
  for (const auto& [name, island_id] : s.open_islands) {
    Island& island = s.islands.at(island_id);
    ++island.sessions;
    std::vector<const Executor*> executors;
    for (const ExecutorId id : island.executors) executors.push_back(&s.executors.at(id));
    std::sort(executors.begin(), executors.end(),
              [](const Executor* a, const Executor* b) { return a->spec.worker < b->spec.worker; });
    for (const Executor* executor : executors) {
      for (int ordinal = 0; ordinal < executor->spec.num_devices; ++ordinal) {
        VirtualDevice device;
        device.id = static_cast<int32_t>(devices.size());
        device.slice_index = slice;
        device.local_ordinal = ordinal;
        device.island = name;
        device.worker = executor->spec.worker;
        device.runtime = executor->spec.runtime;
        device.platform_name = executor->spec.platform_name;
        device.platform_version = executor->spec.platform_version;
        device.device_kind = executor->spec.device_kind;
        device.memory_kinds = executor->spec.memory_kinds;
        device.memory_bytes = executor->spec.device_memory;
        device.device = DeviceId(executor->first_device.value + ordinal);
        device.island_id = island_id;
        device.executor = executor->id;
        devices.push_back(std::move(device));
      }
    }
    ++slice;
  }
  s.ChargeNamed(devices.size());
  // Sessions with the same devices share one list, so their number costs no lists.
  if (s.latest_devices.get() != devices) s.latest_devices = std::move(devices);
  session.devices = s.latest_devices;
  const SessionId id = session.id;
  s.sessions.emplace(id, std::move(session));
  return id;
}

void Cluster::Sessions::SetSink(SessionId session, SessionSink* sink) {
  const auto it = state_->sessions.find(session);
  if (it != state_->sessions.end()) it->second.sink = sink;
}

void Cluster::Sessions::Close(SessionId id) {
  const Operation operation(*state_);
  State& s = *state_;
  const auto it = s.sessions.find(id);
  if (it == s.sessions.end()) return;
  // From here on no handle finds anything of the session; its launched work goes on.
  auto closing = std::make_unique<Closing>(std::move(it->second));
  s.sessions.erase(it);
  Worklist& list = s.WorkOf(id);
  closing->run = std::move(list.run);
  closing->request = std::move(list.request);
  for (std::unique_ptr<ProgramBind>& bind : list.binds)
    list.retiring.push_back(std::move(bind->program));
  list.binds.clear();
  for (const auto& [key, bytes] : std::exchange(closing->session.binding, {}))
    closing->session.program_records.Remove(bytes);
  list.closing = std::move(closing);
  s.work.GoOn();
}

absl::Status Cluster::Sessions::CountDoor(SessionId id, size_t bytes) {
  const auto it = state_->sessions.find(id);
  if (it == state_->sessions.end()) return absl::OkStatus();
  RecordCount& count = it->second.door_records;
  count.Remove(count.bytes());
  count.Add(bytes);
  state_->Publish();
  return state_->CheckDoorRoom(it->second);
}

bool Cluster::Sessions::Busy(SessionId session) const {
  const auto list = state_->worklists.find(session);
  return list != state_->worklists.end() && list->second.busy();
}

const std::vector<VirtualDevice>& Cluster::Sessions::Devices(SessionId session) const {
  static const std::vector<VirtualDevice> kNone;
  const auto it = state_->sessions.find(session);
  return it == state_->sessions.end() ? kNone : it->second.devices.get();
}

SharedVector<VirtualDevice> Cluster::Sessions::SharedDevices(SessionId session) const {
  const auto it = state_->sessions.find(session);
  return it == state_->sessions.end() ? SharedVector<VirtualDevice>() : it->second.devices;
}

absl::StatusOr<IslandId> Cluster::Sessions::IslandOf(SessionId session_id,
                                                     const std::vector<int32_t>& devices) const {
  FAIRWAY_ASSIGN_OR_RETURN(const Session* session, state_->LookAt(session_id));
  return state_->IslandOf(*session, devices);
}

absl::StatusOr<IslandId> IslandOf(const std::vector<VirtualDevice>& all,
                                  const std::vector<int32_t>& devices) {
  std::map<std::string, std::vector<int32_t>> by_island;
  for (const int32_t id : devices) {
    if (id < 0 || static_cast<size_t>(id) >= all.size())
      return InvalidArgument("there is no device {}: this session has devices 0 to {}", id,
                             all.size() - 1);
    by_island[all[id].island].push_back(id);
  }
  if (by_island.empty()) return InvalidArgument("no device was named");
  if (by_island.size() == 1) return all[devices[0]].island_id;
  std::string text;
  for (const auto& [island, ids] : by_island) {
    text += fmt::format("{}island {} (devices {} to {})", text.empty() ? "" : ", ", island,
                        *std::min_element(ids.begin(), ids.end()),
                        *std::max_element(ids.begin(), ids.end()));
  }
  return InvalidArgument(
      "one computation cannot span the devices of {} islands: {}. Islands have no common "
      "collective network here. Give "
      "each island a computation of its own over the devices of one slice_index, and move arrays "
      "between them with "
      "jax.device_put",
      by_island.size(), text);
}

void Cluster::Tick(int64_t now_ms) {
  const Operation operation(*state_);
  State& s = *state_;
  s.nodes.EndOverdue(now_ms);
  s.memory.GiveUpStuck(now_ms);
  s.commands.Tick(now_ms);
  s.transfers.WakeFetches();
  s.work.GoOn();
}

}  // namespace fairway
