// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/listings.h"

#include <algorithm>
#include <utility>

#include "controller/cluster/sessions.h"
#include "controller/cluster/state.h"

namespace fairway {
namespace {

constexpr size_t kMostIslands = 8;  // named in a row
constexpr size_t kMostReads = 64;   // looked at for a row
constexpr size_t kMostText = 256;   // of names and errors, which clients choose

std::string_view KindOf(const Node& node) {
  if (node.kind == NodeKind::kLaunch) return "launch";
  if (node.kind == NodeKind::kFetch) return "fetch";
  return node.is_upload || node.stores ? "upload" : "move";
}

std::string StateOf(const Cluster::Sessions::Backlog& backlog) {
  if (backlog.waits_for_memory) return "waits for memory";
  if (backlog.waits_for_bytes) return "waits for bytes";
  if (backlog.commands_wait) return "waits for executors";
  return backlog.nodes > 0 ? "working" : "idle";
}

// The bytes of `count` shards from `first` on. Adds to `looks`.
int64_t BytesOf(const Group& group, size_t first, size_t count, size_t& looks) {
  if (group.shapes.size() == 1)
    return static_cast<int64_t>(count) * ByteSize(group.dtype, group.shapes[0]).value_or(0);
  looks += count;
  int64_t bytes = 0;
  for (size_t i = first; i < first + count && i < group.shapes.size(); ++i)
    bytes += ByteSize(group.dtype, group.shapes[i]).value_or(0);
  return bytes;
}

// Whether one of `count` shards from `first` on is deleted. Adds to `looks`.
bool AnyDeleted(const Group& group, size_t first, size_t count, size_t& looks) {
  if (group.num_deleted == 0 || group.all_deleted()) return group.num_deleted > 0;
  looks += count;
  for (size_t i = first; i < first + count; ++i) {
    if (group.is_deleted(static_cast<int32_t>(i))) return true;
  }
  return false;
}

}  // namespace

// Makes the rows of one page.
class Cluster::Listings::Lister {
 public:
  Lister(const State& state, const Asked& asked) : s(state), asked_(asked) {}

  // Calls `each` with the sessions that are asked for, in the order of their ids, until it returns
  // false.
  template <typename Each>
  void EachSession(Each each) const {
    auto at = asked_.session ? s.sessions.find(asked_.session) : s.sessions.begin();
    for (; at != s.sessions.end(); ++at) {
      if (Sees(at->second) && !each(at->second)) return;
      if (asked_.session) return;
    }
  }
  // The id in this session behind which the page begins; nullopt: it begins behind the session.
  std::optional<uint64_t> BehindIn(const Session& session) const {
    const ListingCursor& after = asked_.after;
    if (session.id.value < after.session) return std::nullopt;
    return session.id.value == after.session ? after.id : 0;
  }
  // Whether no row may be added; then the next page begins behind the last one.
  template <typename Row>
  bool Full(RowPage<Row>& page) const {
    const size_t rows = page.rows.size();
    if (rows < kMostRows && (looks < kMostLooks || rows == 0)) return false;
    page.next = {page.rows.back().session.value, page.rows.back().handle};
    return true;
  }
  bool Sees(const Session& session) const {
    return !asked_.tenant.has_value() || session.tenant == *asked_.tenant;
  }
  // Also of a session that has ended; nullptr: nothing of it is left.
  const Session* SessionOf(SessionId id) const {
    if (const auto open = s.sessions.find(id); open != s.sessions.end()) return &open->second;
    const auto list = s.worklists.find(id);
    if (list == s.worklists.end() || list->second.closing == nullptr) return nullptr;
    return &list->second.closing->session;
  }

  SessionRow RowOf(const Session& session, const Cluster::Sessions& sessions) {
    const Cluster::Sessions::Backlog backlog = sessions.BacklogOf(session.id);
    SessionRow row{.id = session.id,
                   .tenant = BoundedText(session.tenant, kMostText),
                   .state = StateOf(backlog)};
    row.devices = session.devices.size();
    row.arrays = session.arrays.size();
    row.programs = session.programs.size();
    row.computations = session.executables.size();
    row.nodes = backlog.nodes;
    row.record_bytes = session.arrays.bytes() + session.node_records.bytes() +
                       session.group_records.bytes() + session.watch_records.bytes() +
                       session.program_records.bytes() + session.door_records.bytes() +
                       session.stored.bytes() + session.inlined_bytes.bytes();
    if (const auto has = s.holdings.find(session.id); has != s.holdings.end()) {
      looks += has->second.stakes.size();
      for (const auto& [island, stake] : has->second.stakes) row.device_bytes += stake.bytes;
    }
    return row;
  }

  ArrayRow RowOf(const Session& session, uint64_t handle, const Array& array) {
    ArrayRow row{
        .session = session.id, .handle = handle, .tenant = BoundedText(session.tenant, kMostText)};
    row.type = array.unknown ? "unknown" : ToString(array.spec.dtype, array.spec.shape);
    row.shards = array.shards.size();
    bool pending = false, deleted = array.deleted, stored = false;
    absl::Status failed = array.error;
    size_t begin = 0;
    for (const ShardList::Run& run : array.shards.runs()) {
      ++looks;
      const size_t count = run.end - std::exchange(begin, run.end);
      const auto first = static_cast<size_t>(run.shard);
      const Group* const group = s.all_groups.Find(run.group);
      if (group == nullptr) continue;
      NameIsland(group->island, row.islands);
      row.bytes += BytesOf(*group, first, count, looks);
      pending = pending || group->state == GroupState::kPending;
      stored = stored || (group->stored != nullptr && !group->stored->placed);
      deleted = deleted || AnyDeleted(*group, first, count, looks);
      if (failed.ok() && group->state == GroupState::kFailed) failed = group->error;
    }
    row.error = BoundedText({failed.message().data(), failed.message().size()}, kMostText);
    row.state = deleted        ? "deleted"
                : !failed.ok() ? "failed"
                : pending      ? "pending"
                : stored       ? "stored"
                               : "ready";
    return row;
  }

  ProgramRow RowOf(const Session& session, uint64_t handle, const Binding& computation) {
    ++looks;
    ProgramRow row{
        .session = session.id, .handle = handle, .tenant = BoundedText(session.tenant, kMostText)};
    row.steps = 1;
    const auto spec = s.executables.find(computation.executable);
    if (spec == s.executables.end()) return row;
    row.name = BoundedText(spec->second.name, kMostText);
    NameIsland(spec->second.island, row.islands);
    return row;
  }
  ProgramRow RowOf(const Session& session, uint64_t handle, const BoundProgram& program) {
    ProgramRow row{
        .session = session.id, .handle = handle, .tenant = BoundedText(session.tenant, kMostText)};
    row.is_program = true;
    row.name = BoundedText(program.placed->name, kMostText);
    row.steps = program.sequences.size();
    for (const ExecutableId id : program.sequences) {
      if (++looks >= kMostLooks || row.islands.size() == kMostIslands) break;
      if (const auto spec = s.executables.find(id); spec != s.executables.end())
        NameIsland(spec->second.island, row.islands);
    }
    return row;
  }

  NodeRow RowOf(const Node& node, const Session* session) {
    NodeRow row{.id = node.id, .session = node.session};
    if (session != nullptr) row.tenant = BoundedText(session->tenant, kMostText);
    row.kind = KindOf(node);
    row.state = kStateNames[static_cast<size_t>(node.state)];
    row.name = BoundedText(node.name, kMostText);
    row.island = NameOf(node.island);
    row.waits_for = WaitsFor(node);
    looks += node.reservations.size();
    for (const Reservation& reserved : node.reservations) row.bytes += reserved.total();
    if (node.kind == NodeKind::kFetch) {
      if (const Group* const group = s.all_groups.Find(node.fetched.group))
        row.bytes = BytesOf(*group, static_cast<size_t>(node.fetched.shard), 1, looks);
    }
    if (node.kind == NodeKind::kReceive) {
      for (size_t i = 0; i < node.reads.size() && i < kMostReads; ++i, ++looks) {
        if (const Group* const group = s.all_groups.Find(node.reads[i]))
          NameIsland(group->island, row.from);
      }
    }
    return row;
  }

  size_t looks = 0;

 private:
  std::string NameOf(IslandId id) const {
    const auto island = s.islands.find(id);
    return island == s.islands.end() ? "" : island->second.name;
  }
  void NameIsland(IslandId id, std::vector<std::string>& names) const {
    std::string name = NameOf(id);
    if (names.size() < kMostIslands && std::ranges::find(names, name) == names.end())
      names.push_back(std::move(name));
  }

  // The first thing that the node waits for.
  std::string WaitsFor(const Node& node) {
    if (node.open_blobs > 0) return "bytes of its client";
    if (node.state == NodeState::kLaunched && node.unsettled_inputs == 0) {
      for (const Participant& participant : node.participants) {
        ++looks;
        const auto executor = s.executors.find(participant.executor);
        if (!participant.done && executor != s.executors.end())
          return "worker " + executor->second.spec.worker;
      }
      return node.for_all ? "workers of " + NameOf(node.island) : "";
    }
    if (node.paced) return "its session's other fetches";
    // What waits for memory needs it whether its inputs are there or not.
    if (node.state == NodeState::kQueued && node.kind != NodeKind::kFetch)
      return s.parked.contains(node.id) ? "the workers of its sources" : "memory";
    if (node.open_installs > 0) return "its code";
    for (size_t i = 0; i < node.reads.size() && i < kMostReads; ++i, ++looks) {
      const Group* const group = s.all_groups.Find(node.reads[i]);
      if (group != nullptr && group->producer) return fmt::format("node {}", group->producer);
    }
    if (node.state == NodeState::kDone) return "";
    return node.kind == NodeKind::kLaunch ? "its turn" : "bytes";
  }

  const State& s;
  const Asked& asked_;
};

RowPage<SessionRow> Cluster::Listings::Sessions(const Asked& asked) const {
  Lister lister(*state_, asked);
  RowPage<SessionRow> page;
  lister.EachSession([&](const Session& session) {
    ++page.total;
    if (session.id.value <= asked.after.session || page.next.has_value()) return true;
    if (page.rows.size() == kMostRows || (lister.looks >= kMostLooks && !page.rows.empty())) {
      page.next = {page.rows.back().id.value, 0};
    } else {
      page.rows.push_back(lister.RowOf(session, *sessions_));
    }
    return true;
  });
  return page;
}

RowPage<ArrayRow> Cluster::Listings::Arrays(const Asked& asked) const {
  Lister lister(*state_, asked);
  RowPage<ArrayRow> page;
  lister.EachSession([&](const Session& session) {
    page.total += session.arrays.size();
    const auto behind = lister.BehindIn(session);
    if (!behind.has_value() || page.next.has_value()) return true;
    for (auto at = session.arrays.upper_bound(*behind); at != session.arrays.end(); ++at) {
      if (lister.Full(page)) break;
      page.rows.push_back(lister.RowOf(session, at->first, *at->second));
    }
    return true;
  });
  return page;
}

RowPage<ProgramRow> Cluster::Listings::Programs(const Asked& asked) const {
  Lister lister(*state_, asked);
  RowPage<ProgramRow> page;
  lister.EachSession([&](const Session& session) {
    page.total += session.executables.size() + session.programs.size();
    const auto behind = lister.BehindIn(session);
    if (!behind.has_value() || page.next.has_value()) return true;
    // No handle is in both.
    auto one = session.executables.upper_bound(*behind);
    auto many = session.programs.upper_bound(*behind);
    while (one != session.executables.end() || many != session.programs.end()) {
      if (lister.Full(page)) break;
      if (many == session.programs.end() ||
          (one != session.executables.end() && one->first < many->first)) {
        page.rows.push_back(lister.RowOf(session, one->first, one->second));
        ++one;
      } else {
        page.rows.push_back(lister.RowOf(session, many->first, *many->second));
        ++many;
      }
    }
    return true;
  });
  return page;
}

RowPage<NodeRow> Cluster::Listings::Nodes(const Asked& asked) const {
  const State& s = *state_;
  Lister lister(s, asked);
  RowPage<NodeRow> page;
  // Whether the page goes on behind this node.
  const auto list = [&](const Node& node) {
    if (page.rows.size() == kMostRows || lister.looks >= kMostLooks) return false;
    ++lister.looks;
    page.next = {0, node.id.value};
    if (asked.transfers && node.kind == NodeKind::kLaunch) return true;
    const Session* const session = lister.SessionOf(node.session);
    if (asked.tenant.has_value() && (session == nullptr || !lister.Sees(*session))) return true;
    page.rows.push_back(lister.RowOf(node, session));
    return true;
  };
  const NodeId first(asked.after.id + 1);
  bool more = false;
  if (asked.session) {
    const auto has = s.holdings.find(asked.session);
    if (has == s.holdings.end()) return page;
    const auto& nodes = has->second.nodes;
    auto at = nodes.lower_bound(first);
    while (at != nodes.end() && list(*s.all_nodes.at(*at))) ++at;
    more = at != nodes.end();
    if (!asked.transfers && !asked.tenant.has_value()) page.total = nodes.size();
  } else {
    auto at = s.all_nodes.lower_bound(first);
    while (at != s.all_nodes.end() && list(*at->second)) ++at;
    more = at != s.all_nodes.end();
    if (!asked.transfers && !asked.tenant.has_value()) page.total = s.all_nodes.size();
  }
  if (!more) page.next.reset();
  return page;
}

}  // namespace fairway
