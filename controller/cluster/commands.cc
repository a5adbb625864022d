// SPDX-License-Identifier: Apache-2.0
// Commands to executors, with the frees that go before them.
#include "controller/cluster/commands.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/state.h"

namespace fairway {

Cluster::Commands::Commands(State& state)
    : memory_(std::make_shared<MemoryBudget>(state.options.command_memory, state.options.memory)),
      s(state) {}

std::shared_ptr<MemoryBudget> Cluster::Commands::Share() const {
  return std::make_shared<MemoryBudget>(memory_);
}

bool Cluster::Commands::Wait(SessionId session) const {
  const auto has = s.holdings.find(session);
  return has != s.holdings.end() && has->second.commands->used() > s.options.least_commands &&
         has->second.commands->over();
}

int64_t Cluster::Commands::BytesOf(const Node& node) const {
  constexpr size_t kBrief = 256;  // not worth a look at the executors
  size_t bytes = 0;
  if (node.kind == NodeKind::kLaunch) {
    const auto count = [&](ExecutableId id, size_t install) {
      if (id == node.executable->id && node.layout->installed_as_of == s.arrivals) return;
      for (size_t p = 0; install > kBrief && p < node.layout->parts.size(); ++p) {
        const Executor& executor = s.executors.at(node.layout->parts[p].executor);
        bytes += executor.installs.contains(id) ? 0 : install;
      }
    };
    s.Charge(node.executable->parts.size() * (1 + node.layout->parts.size()) / kValuesPerUnit);
    count(node.executable->id, node.layout->install_bytes);
    for (const ExecutableId part : node.executable->parts)
      count(part, s.layouts.at(part).install_bytes);
  } else if (node.is_upload && s.transfers.IsInline(node)) {
    for (const Reservation& r : node.reservations) bytes += static_cast<size_t>(r.output);
    // Each of its executors gets each blob once at most. (Stored bytes are taken when it begins.)
    size_t blobs = 0;
    for (const BytesRef& blob : node.blobs) blobs += blob == nullptr ? 0 : blob->size();
    if (blobs > 0) bytes = std::min(bytes, blobs * s.islands.at(node.island).executors.size());
  }
  // The record of an upload counts bytes that do not go with its commands.
  constexpr size_t kUpload = 1024;
  return static_cast<int64_t>(bytes + (node.is_upload ? kUpload : node.record_bytes));
}

bool Cluster::Commands::HasRoom(const Node& node, int64_t bytes, int64_t planned) const {
  const MemoryBudget& has = *s.holdings.at(node.session).commands;
  const int64_t least = s.options.least_commands;
  if (has.used() + planned + bytes <= least || has.HasRoom(planned + bytes)) return true;
  return planned == 0 && has.used() <= 16 * least &&
         memory_->room() >= s.options.command_memory / 2;
}

absl::Status Cluster::Commands::TooMuch(const Node& node) const {
  constexpr double kMiB = 1 << 20;
  return Error(
      absl::StatusCode::kResourceExhausted,
      "{}: its commands take about {:.1f} MiB of the controller's memory, this session's commands "
      "that executors have not taken {:.1f} MiB, and {:.1f} of the {:.1f} MiB for those of all "
      "sessions are left; one session's may take as much as is left to others. It has waited for "
      "{} s. An executor may be stopped, or slow (`fairway status`): wait for results before more "
      "work is sent there, or use other devices",
      node.name, BytesOf(node) / kMiB, s.holdings.at(node.session).commands->used() / kMiB,
      memory_->room() / kMiB, s.options.command_memory / kMiB, s.options.command_grace_ms / 1000);
}

void Cluster::Commands::Tick(int64_t now_ms) {
  if (Planted(Bug::kHeldForEver)) return;
  const uint64_t until = s.units + s.options.turn_units / 2;
  size_t left = s.options.turn_units;
  bool any = false;
  for (size_t islands = s.islands.size(); islands > 0 && left > 0; --islands) {
    auto at = s.islands.lower_bound(tick_next_.first);
    if (at == s.islands.end()) at = s.islands.begin();
    Island& island = at->second;
    const NodeId from = at->first == tick_next_.first ? tick_next_.second : NodeId();
    const std::vector<NodeId> held = s.admission.TryHeldAgain(island.id, from, left);
    left -= held.size();
    if (!held.empty()) {
      s.Charge(1 + held.size() / kStepsPerUnit);
      s.to_pump.insert(island.id);
    }
    auto since = island.held_since.lower_bound(from);
    for (const NodeId node : held) {
      while (since != island.held_since.end() && since->first < node)
        since = island.held_since.erase(since);
      since = island.held_since.try_emplace(since, node, now_ms);
      const int64_t waited = now_ms - since++->second;
      // Later ticks fail those that are left.
      if (waited < s.options.command_grace_ms || (any && s.units >= until)) continue;
      Node* const waits = s.FindNode(node);
      if (waits == nullptr || HasRoom(*waits, BytesOf(*waits))) continue;
      any = true;
      s.nodes.Fail(*waits, TooMuch(*waits), node);
    }
    if (left == 0) {
      tick_next_ = {island.id, NodeId(held.back().value + 1)};
    } else {
      island.held_since.erase(since, island.held_since.end());
      tick_next_ = {IslandId(island.id.value + 1), NodeId()};
    }
  }
}

void Cluster::Commands::Flush(Executor& executor) {
  if (executor.frees.empty()) return;
  FreeGroups command{std::move(executor.frees)};
  executor.frees.clear();
  if (executor.serves()) s.actions->Send(executor.id, std::move(command), nullptr);
}

void Cluster::Commands::Free(Executor& executor, GroupId group) {
  if (!executor.serves() || (!executor.frees.empty() && executor.frees.back() == group)) return;
  if (executor.frees.empty()) with_frees_.push_back(executor.id);
  executor.frees.push_back(group);
}

void Cluster::Commands::FreeAll(std::pair<ExecutorId, ExecutorId> span, GroupId group) {
  const auto known =
      std::ranges::find(span_frees_, span, &decltype(span_frees_)::value_type::first);
  if (known != span_frees_.end()) return known->second.push_back(group);
  span_frees_.push_back({span, {group}});
}

void Cluster::Commands::FlushSpans() {
  for (auto& [span, groups] : std::exchange(span_frees_, {}))
    s.actions->SendAll(span.first, span.second, FreeGroups{std::move(groups)}, nullptr);
}

void Cluster::Commands::FlushAll() {
  FlushSpans();
  for (const ExecutorId id : with_frees_) Flush(s.executors.at(id));
  with_frees_.clear();
}

void Cluster::Commands::Send(Executor& executor, Command&& command, SessionId payer) {
  s.Charge(1);
  if (!span_frees_.empty()) FlushSpans();
  Flush(executor);
  if (!executor.serves()) return;
  const auto has = s.holdings.find(payer);
  s.actions->Send(executor.id, std::move(command),
                  has == s.holdings.end() ? nullptr : has->second.commands);
}

void Cluster::Commands::SendAll(const CodeLayout& layout, Command&& command, SessionId payer) {
  s.Charge(1);
  FlushAll();
  const auto has = s.holdings.find(payer);
  s.actions->SendAll(layout.part_on.front().first, layout.part_on.back().first, std::move(command),
                     has == s.holdings.end() ? nullptr : has->second.commands);
}

const SharedVector<InstallExecutable::Member>& Cluster::Commands::MembersOf(CodeLayout& layout) {
  if (std::exchange(layout.members_as_of, s.arrivals) == s.arrivals) return layout.members;
  std::vector<InstallExecutable::Member> members;
  members.reserve(layout.parts.size());
  for (const CodeLayout::Part& part : layout.parts) {
    const ExecutorSpec& member = s.executors.at(part.executor).spec;
    members.push_back({member.data_endpoint, member.incarnation, GangTicket(member.data_key)});
  }
  s.ChargeNamed(members.size());
  layout.members = std::move(members);
  return layout.members;
}

void Cluster::Commands::DescribePart(const ExecutableSpec& spec, const CodeLayout::Part& part,
                                     InstallExecutable& install) {
  if (spec.outputs.size() > s.launches.ValuesForAll(s.layouts.at(spec.id))) return;
  s.ChargeShards(spec.outputs.size() * part.positions.size());
  install.positions = part.positions;
  const CodeLayout& layout = s.layouts.at(spec.id);
  for (size_t o = 0; o < spec.outputs.size(); ++o) {
    const ValueType& type = spec.outputs[o];
    const SharedVector<int32_t>& replica_of = layout.outputs[o].replica_of;
    GroupPart& out = install.outputs.emplace_back();
    out.dtype = type.dtype;
    out.memory_kind = type.memory_kind;
    for (size_t d = 0; d < part.positions.size(); ++d) {
      const int32_t position = part.positions[d];
      out.shards.push_back({position, part.ordinals[d], type.shard});
      install.distinct.push_back(replica_of.empty() || replica_of[position] == position);
    }
  }
}

void Cluster::Commands::Install(Executor& executor, const ExecutableSpec& spec,
                                const std::vector<int32_t>& devices, Node& node) {
  auto [install, absent] = executor.installs.try_emplace(spec.id);
  if (absent && spec.sequence != nullptr) {
    Send(executor, InstallSequence{spec.id, spec.sequence, spec.code, spec.code_crc}, node.session);
  } else if (absent) {
    InstallExecutable command{spec.id, spec.code, spec.checksum, devices, {}, 0, spec.code_crc};
    CodeLayout& layout = s.layouts.at(spec.id);
    if (layout.parts.size() > 1) {
      command.members = MembersOf(layout);
      command.member = std::ranges::lower_bound(layout.part_on, executor.id, {},
                                                &std::pair<ExecutorId, int32_t>::first)
                           ->second;
      DescribePart(spec, layout.parts[command.member], command);
    }
    Send(executor, std::move(command), node.session);
  }
  if (install->second.installed) return;
  install->second.waiters[node.session].push_back({node.id, node.attempt});
  ++node.open_installs;
}

}  // namespace fairway
