// SPDX-License-Identifier: Apache-2.0
// The rules that hold between any two events of the core, checked owner by owner.
#include <algorithm>
#include <map>
#include <utility>

#include "controller/cluster/inspection.h"
#include "controller/cluster/state.h"
#include "controller/cluster/virtual_device.h"

namespace fairway {

// The first checks fill the counts, and the later ones compare them.
struct Cluster::Inspection::Invariants {
  const State& s;
  std::map<GroupId, int> handle_refs;
  std::map<GroupId, int> readers, queued_readers;
  std::map<DeviceId, int64_t> used, leaving;  // bytes
  std::map<NodeId, int> untold;               // settled inputs that the node has not been told of
  std::map<const Stake*, std::map<DeviceId, Stake::Held>> held;

  // The counted records are those that exist.
  absl::Status CheckRecords();
  static absl::Status CheckWatchesAndInlined(const Session& session);
  // What its requests have made that is in no table yet.
  static size_t MadeBytes(const Closing& closing);
  // What islands count of sessions is right.
  absl::Status CheckIslands();
  absl::Status CheckMoves();
  // Counts the references to each group.
  absl::Status CountViews();
  absl::Status CheckStored();
  absl::Status CheckWaiters();
  absl::Status CheckNodes();
  absl::Status CheckGroups();
  // Those who hold islands are known there, and nobody has arrays on a drained one.
  absl::Status CheckHolders();
  absl::Status CheckStakes();
  absl::Status CheckMemory();
};

absl::Status Cluster::Inspection::CheckInvariants() const {
  const State& s = *state_;
  if (s.reentered) return absl::InternalError("an answer re-entered the core");
  Invariants check{s, {}, {}, {}, {}, {}, {}, {}};
  FAIRWAY_RETURN_IF_ERROR(check.CheckRecords());
  FAIRWAY_RETURN_IF_ERROR(s.nodes.Check());
  FAIRWAY_RETURN_IF_ERROR(s.transfers.Check());
  FAIRWAY_RETURN_IF_ERROR(s.CheckRegistry());
  FAIRWAY_RETURN_IF_ERROR(check.CheckIslands());
  FAIRWAY_RETURN_IF_ERROR(s.programs.CheckSequences());
  FAIRWAY_RETURN_IF_ERROR(check.CheckMoves());
  FAIRWAY_RETURN_IF_ERROR(check.CountViews());
  FAIRWAY_RETURN_IF_ERROR(check.CheckStored());
  FAIRWAY_RETURN_IF_ERROR(check.CheckWaiters());
  FAIRWAY_RETURN_IF_ERROR(check.CheckNodes());
  FAIRWAY_RETURN_IF_ERROR(check.CheckGroups());
  FAIRWAY_RETURN_IF_ERROR(check.CheckHolders());
  FAIRWAY_RETURN_IF_ERROR(check.CheckStakes());
  return check.CheckMemory();
}

absl::Status Cluster::Inspection::Invariants::CheckRecords() {
  size_t total = 0;
  std::map<SessionId, size_t> of_nodes, of_groups, of_programs, of_stored;
  std::map<SessionId, int64_t> of_fetches;
  for (const auto& [id, node] : s.all_nodes) {
    of_nodes[node->session] += node->record_bytes;
    of_fetches[node->session] += node->pulling;
  }
  for (const auto& [id, layout] : s.layouts) of_programs[layout.session] += layout.record_bytes;
  for (const auto& [id, list] : s.worklists) {
    for (const auto& program : list.retiring) of_programs[id] += program->bytes;
    for (const auto& bind : list.binds) of_programs[id] += bind->program->bytes;
  }
  for (const auto& [id, group] : s.all_groups) {
    of_stored[group->session] += group->stored == nullptr ? 0 : group->stored->bytes;
    of_groups[group->session] += group->record_bytes;
  }
  const auto check = [&](const Session& session) {
    size_t bytes = 0, programs = of_programs[session.id];
    for (const auto& [handle, array] : session.arrays) bytes += ArrayTable::BytesOf(*array);
    for (const auto& [handle, program] : session.programs) programs += program->bytes;
    for (const auto& [key, reserved] : session.binding) programs += reserved;
    total += session.arrays.bytes() + session.node_records.bytes() +
             session.program_records.bytes() + session.stored.bytes() +
             session.group_records.bytes() + session.watch_records.bytes() +
             session.inlined_bytes.bytes() + session.door_records.bytes();
    if (bytes == session.arrays.bytes() && programs == session.program_records.bytes())
      return absl::OkStatus();
    return Error(absl::StatusCode::kInternal,
                 "session {} counts {} bytes of arrays and {} of programs, but has {} and {}",
                 session.id, session.arrays.bytes(), session.program_records.bytes(), bytes,
                 programs);
  };
  for (const auto& [id, session] : s.sessions) {
    FAIRWAY_RETURN_IF_ERROR(check(session));
    if (session.node_records.bytes() != of_nodes[id])
      return Error(absl::StatusCode::kInternal, "session {} counts {} bytes of nodes, but has {}",
                   id, session.node_records.bytes(), of_nodes[id]);
    if (session.group_records.bytes() != of_groups[id])
      return Error(absl::StatusCode::kInternal, "session {} counts {} bytes of groups, but has {}",
                   id, session.group_records.bytes(), of_groups[id]);
    FAIRWAY_RETURN_IF_ERROR(CheckWatchesAndInlined(session));
    if (session.fetching != of_fetches[id])
      return Error(absl::StatusCode::kInternal, "session {} counts {} fetched bytes, but has {}",
                   id, session.fetching, of_fetches[id]);
    if (session.stored.bytes() != of_stored[id])
      return Error(absl::StatusCode::kInternal, "session {} counts {} stored bytes, but has {}", id,
                   session.stored.bytes(), of_stored[id]);
  }
  for (const auto& [id, list] : s.worklists) {
    if (list.request != nullptr) total += list.request->made_bytes();
    if (list.run != nullptr && list.run->making != nullptr) total += list.run->making->made_bytes();
    if (list.closing != nullptr) total += MadeBytes(*list.closing);
    if (list.closing != nullptr) FAIRWAY_RETURN_IF_ERROR(check(list.closing->session));
  }
  if (total == s.record_bytes) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, "{} bytes of records are counted, but there are {}",
               s.record_bytes, total);
}

absl::Status Cluster::Inspection::Invariants::CheckWatchesAndInlined(const Session& session) {
  size_t watches = 0, inlined = 0;
  for (const auto& [id, watch] : session.watches) watches += watch.bytes;
  for (const Session::InlinedEntry& entry : session.inlined) inlined += entry.bytes;
  if (watches == session.watch_records.bytes() && inlined == session.inlined_bytes.bytes())
    return absl::OkStatus();
  return Error(absl::StatusCode::kInternal,
               "session {} counts {} bytes of watches and {} inline, but has {} and {}", session.id,
               session.watch_records.bytes(), session.inlined_bytes.bytes(), watches, inlined);
}

size_t Cluster::Inspection::Invariants::MadeBytes(const Closing& closing) {
  size_t bytes = closing.request == nullptr ? 0 : closing.request->made_bytes();
  if (closing.run != nullptr && closing.run->making != nullptr)
    bytes += closing.run->making->made_bytes();
  return bytes;
}

absl::Status Cluster::Inspection::Invariants::CheckIslands() {
  std::map<IslandId, size_t> known;
  const auto count = [&](const Session& session) {
    int32_t slice = -1;
    for (const VirtualDevice& device : session.devices) {
      if (std::exchange(slice, device.slice_index) != device.slice_index) ++known[device.island_id];
    }
  };
  for (const auto& [id, session] : s.sessions) count(session);
  for (const auto& [id, list] : s.worklists) {
    if (list.closing != nullptr) count(list.closing->session);
  }
  for (const auto& [id, island] : s.islands) {
    if (island.sessions != known[id])
      return Error(absl::StatusCode::kInternal, "island {} counts {} sessions, but has {}", id,
                   island.sessions, known[id]);
  }
  if (known.size() <= s.islands.size()) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, "sessions know {} islands of {}", known.size(),
               s.islands.size());
}

absl::Status Cluster::Inspection::Invariants::CheckMoves() {
  for (size_t from = 0; from < kStateNames.size(); ++from) {
    for (size_t to = 0; to < kStateNames.size(); ++to) {
      if (s.nodes.transitions[from][to] > 0 &&
          !CanMove(static_cast<NodeState>(from), static_cast<NodeState>(to)))
        return Error(absl::StatusCode::kInternal, "a node went from {} to {}", kStateNames[from],
                     kStateNames[to]);
    }
  }
  return absl::OkStatus();
}

absl::Status Cluster::Inspection::Invariants::CountViews() {
  const auto count = [&](const Array& array) {
    for (const GroupId group : GroupsOf(array.shards)) ++handle_refs[group];
  };
  const auto count_program = [&](const BoundProgram& program) {
    for (const auto& [value, array] : program.constants) count(array);
  };
  const auto count_session = [&](const Session& session) {
    for (const auto& [handle, array] : session.arrays) count(*array);
    for (const auto& [handle, program] : session.programs) count_program(*program);
  };
  for (const auto& [id, session] : s.sessions) count_session(session);
  for (const auto& [id, list] : s.worklists) {
    if (list.closing != nullptr) count_session(list.closing->session);
    for (const auto& program : list.retiring) count_program(*program);
    for (const auto& bind : list.binds) count_program(*bind->program);
    const ProgramRun* run = list.closing != nullptr ? list.closing->run.get() : list.run.get();
    const LongRequest* request =
        list.closing != nullptr ? list.closing->request.get() : list.request.get();
    if (request != nullptr) {
      for (const GroupId group : request->held) ++handle_refs[group];
    }
    for (size_t v = 0; run != nullptr && v < run->values.size(); ++v) count(run->values[v]);
    for (size_t e = 0; run != nullptr && e < run->errors.size(); ++e) count(run->errors[e]);
    if (run != nullptr && run->making != nullptr) {
      for (const GroupId group : run->making->held) ++handle_refs[group];
    }
  }
  return absl::OkStatus();
}

absl::Status Cluster::Inspection::Invariants::CheckStored() {
  for (const auto& [id, group] : s.all_groups) {
    if (group->stored == nullptr) continue;
    if (const Group* const placed = s.all_groups.Find(group->stored->placed); placed != nullptr) {
      ++handle_refs[placed->id];
      if (placed->deleted != group->deleted)
        return Error(absl::StatusCode::kInternal, "group {} is not deleted as its placed {} is", id,
                     placed->id);
    }
    if (group->charged || group->declared || group->reserved)
      return Error(absl::StatusCode::kInternal, "group {} is stored and on its devices", id);
  }
  return absl::OkStatus();
}

absl::Status Cluster::Inspection::Invariants::CheckWaiters() {
  // An input that is settled still counts as open until its reader has been told.
  for (const auto& [id, group] : s.all_groups) {
    for (size_t w = group->num_told; group->settled() && w < group->waiters.size(); ++w)
      ++untold[group->waiters[w]];
    if (group->settled() && !(group->waiters.empty() && group->watchers.empty()) &&
        !s.worklists.contains(group->session))
      return Error(absl::StatusCode::kInternal, "nobody tells those that wait for group {}", id);
    const Node* const producer = s.all_nodes.Find(group->producer);
    if (producer == nullptr || producer->state != NodeState::kLaunched || !producer->failure.ok() ||
        group->launched)
      continue;
    const auto list = s.worklists.find(group->session);
    if (list == s.worklists.end() ||
        std::ranges::find(list->second.launched, producer->id, &LaunchedNode::node) ==
            list->second.launched.end())
      return Error(absl::StatusCode::kInternal, "nobody tells that group {} was launched", id);
  }
  return absl::OkStatus();
}

absl::Status Cluster::Inspection::Invariants::CheckNodes() {
  for (const auto& [id, node] : s.all_nodes) {
    int unsettled = untold[id];
    const bool has_memory = node->has_memory();
    const auto& preparing = s.islands.at(node->island).preparing;
    const auto rest = std::ranges::find(
        preparing, std::pair(id, node->attempt),
        [](const Island::Preparing& next) { return std::pair(next.node, next.attempt); });
    const bool told = rest == preparing.end();
    if (node->telling && (told || node->state != NodeState::kPrepared))
      return Error(absl::StatusCode::kInternal, "nobody tells the executors of node {} the rest",
                   id);
    for (const GroupId group : node->reads) {
      ++readers[group];
      if (!has_memory && (node->kind != NodeKind::kFetch || node->paced)) ++queued_readers[group];
      const Group* const read = s.all_groups.Find(group);
      if (read == nullptr)
        return Error(absl::StatusCode::kInternal, "node {} reads group {}, which is gone", id,
                     group);
      unsettled += read->settled() ? 0 : 1;
      if (read->producer >= id)
        return Error(absl::StatusCode::kInternal, "node {} reads what the younger node {} makes",
                     id, read->producer);
    }
    if (unsettled != node->unsettled_inputs)
      return Error(absl::StatusCode::kInternal, "node {} counts {} open inputs, but has {}", id,
                   node->unsettled_inputs, unsettled);
    if (unsettled == 0 && node->unlaunched_inputs == 0 && !node->making &&
        std::any_of(node->reads.begin(), node->reads.end(), [&](GroupId id) {
          const Group& input = *s.all_groups.at(id);
          return input.state == GroupState::kFailed && input.cause;
        }))
      return Error(absl::StatusCode::kInternal, "node {} does not know that an input failed", id);
    const auto open = std::count_if(node->participants.begin(), node->participants.end(),
                                    [](const Participant& p) { return !p.done; });
    const bool counts = node->for_all ? node->participants.empty() && node->open_participants <= 1
                                      : open == node->open_participants;
    if (!counts)
      return Error(absl::StatusCode::kInternal, "node {} counts {} open participants, but has {}",
                   id, node->open_participants, open);
    for (const Reservation& r : node->reservations) {
      if (!has_memory) break;
      used[r.device] += r.total();
      leaving[r.device] += r.temp;
    }
    for (const GroupId group : node->outputs) {
      const Group* const made = s.all_groups.Find(group);
      if (made == nullptr || made->producer != id)
        return Error(absl::StatusCode::kInternal, "node {} is not the producer of its output {}",
                     id, group);
    }
  }
  return absl::OkStatus();
}

absl::Status Cluster::Inspection::Invariants::CheckGroups() {
  for (const auto& [id, group] : s.all_groups) {
    if (group->handle_refs != handle_refs[id])
      return Error(absl::StatusCode::kInternal, "group {} counts {} views, but has {}", id,
                   group->handle_refs, handle_refs[id]);
    if (group->readers != readers[id])
      return Error(absl::StatusCode::kInternal, "group {} counts {} readers, but has {}", id,
                   group->readers, readers[id]);
    if (group->settled() == static_cast<bool>(group->producer))
      return Error(absl::StatusCode::kInternal, "group {} is {} with producer {}", id,
                   group->settled() ? "settled" : "pending", group->producer);
    if (group->handle_refs == 0 && group->readers == 0 && !group->producer &&
        group->waiters.empty() && group->watchers.empty())
      return Error(absl::StatusCode::kInternal, "group {} is known to nobody", id);
    if (group->charged) {
      for (const Place& place : group->places) used[place.device] += Rounded(place.bytes);
    }
    for (size_t i = 0; group->charged && i < group->places.size(); ++i) {
      Stake::Held& sum = held[group->stake][group->places[i].device];
      sum.bytes += Rounded(group->places[i].bytes);
      ++sum.shards;
    }
    if (group->queued_readers != queued_readers[id])
      return Error(absl::StatusCode::kInternal, "group {} counts {} queued readers, but has {}", id,
                   group->queued_readers, queued_readers[id]);
    if ((group->charged || group->reserved) && group->queued_readers == 0 &&
        (group->handle_refs == 0 || group->all_deleted())) {
      for (const Place& place : group->places) leaving[place.device] += Rounded(place.bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status Cluster::Inspection::Invariants::CheckHolders() {
  std::map<const Stake*, size_t> calls;
  const auto count = [&](const CallHold& hold) {
    for (const Stake* const stake : hold.stakes()) ++calls[stake];
  };
  const auto count_work = [&](const auto& work) {
    if (work.run != nullptr) count(work.run->hold);
    if (work.request != nullptr) count(work.request->hold);
    return work.run == nullptr ||
           work.run->hold.stakes().size() == work.run->program->placed->islands.size();
  };
  for (const auto& [id, list] : s.worklists) {
    if (!count_work(list) || (list.closing != nullptr && !count_work(*list.closing)))
      return Error(absl::StatusCode::kInternal,
                   "session {} runs a program in slices and does not hold its islands", id);
  }
  std::map<IslandId, size_t> holders;
  for (const auto& [id, has] : s.holdings) {
    for (const auto& [island, stake] : has.stakes) {
      const auto there = s.islands.find(island);  // it may be forgotten, without a stake
      const bool holds = stake.nodes + stake.arrays + stake.calls > 0;
      const bool known = there != s.islands.end() && there->second.holders.contains(id);
      holders[island] += holds ? 1 : 0;
      if (holds != known || stake.calls != calls[&stake])
        return Error(absl::StatusCode::kInternal,
                     "session {} has {} nodes, {} arrays and {} calls ({} are made) on island {}, "
                     "and holds it: {}",
                     id, stake.nodes, stake.arrays, stake.calls, calls[&stake], island, known);
      if (stake.arrays == 0) continue;
      const Cordon* const cordon = s.CordonOf(there->second);
      if (cordon != nullptr && cordon->drained)
        return Error(absl::StatusCode::kInternal,
                     "session {} has arrays on island {}, which is drained", id, island);
    }
  }
  for (const auto& [id, island] : s.islands) {
    if (island.holders.size() != holders[id])
      return Error(absl::StatusCode::kInternal, "island {} has {} holders, but {} sessions hold it",
                   id, island.holders.size(), holders[id]);
  }
  return absl::OkStatus();
}

absl::Status Cluster::Inspection::Invariants::CheckStakes() {
  size_t listed = 0, owned = 0, losses = 0, endings = 0, ending = 0;
  for (const auto& [id, has] : s.holdings) {
    owned += has.nodes.size();
    for (const auto& [island, stake] : has.stakes) {
      size_t arrays = 0;
      for (const Group* group = stake.groups; group != nullptr; group = group->next) {
        ++listed;
        arrays += group->charged ? 1 : 0;
      }
      int64_t bytes = stake.bytes;
      for (size_t i = 0; i < stake.held.size(); ++i) {
        const DeviceId device(static_cast<uint32_t>(stake.first_device + i));
        const Stake::Held& sum = held[&stake][device];
        if (sum.bytes != stake.held[i].bytes || sum.shards != stake.held[i].shards)
          return Error(absl::StatusCode::kInternal,
                       "session {} is said to hold {} bytes on device {}, but holds {}", id,
                       stake.held[i].bytes, device, sum.bytes);
        bytes -= sum.bytes;
      }
      if (bytes != 0 || arrays != stake.arrays)
        return Error(absl::StatusCode::kInternal,
                     "session {} is said to have {} arrays of {} bytes on island {}, but has {}",
                     id, stake.arrays, stake.bytes, island, arrays);
    }
  }
  for (const auto& [id, list] : s.worklists) {
    losses += list.losses.size();
    endings += list.endings.size();
  }
  for (const auto& [id, node] : s.all_nodes) ending += node->state == NodeState::kDone ? 1 : 0;
  if (endings != ending)
    return Error(absl::StatusCode::kInternal, "{} nodes have concluded, but {} go on ending",
                 ending, endings);
  if (listed != s.all_groups.size() || owned != s.all_nodes.size() ||
      losses != s.losses.open_losses)
    return Error(absl::StatusCode::kInternal,
                 "{} groups, {} nodes and {} losses are counted, but there are {}, {} and {}",
                 listed, owned, s.losses.open_losses, s.all_groups.size(), s.all_nodes.size(),
                 losses);
  return absl::OkStatus();
}

absl::Status Cluster::Inspection::Invariants::CheckMemory() {
  for (const auto& [id, executor] : s.executors) {
    for (int i = 0; i < executor.spec.num_devices; ++i) {
      const DeviceId device(executor.first_device.value + i);
      if (s.admission.used(device) != used[device])
        return Error(absl::StatusCode::kInternal, "device {} counts {} bytes, but {} are held",
                     device, s.admission.used(device), used[device]);
      if (s.admission.will_release(device) != leaving[device])
        return Error(absl::StatusCode::kInternal,
                     "device {} counts on {} bytes, but {} will be given back", device,
                     s.admission.will_release(device), leaving[device]);
      const int64_t limit = s.admission.limit(device);
      if (limit != 0 && used[device] > limit)
        return Error(absl::StatusCode::kInternal, "device {} holds {} bytes, over its {}", device,
                     used[device], limit);
    }
  }
  return absl::OkStatus();
}

}  // namespace fairway
