// SPDX-License-Identifier: Apache-2.0
// Commands to executors, with the frees that go before them.
#include "controller/cluster/commands.h"

#include <utility>

#include "controller/cluster/state.h"

namespace fairway {

void Cluster::Commands::Flush(Executor& executor) {
  if (executor.frees.empty()) return;
  FreeGroups command{std::move(executor.frees)};
  executor.frees.clear();
  if (executor.serves()) s.actions->Send(executor.id, std::move(command));
}

void Cluster::Commands::Free(Executor& executor, GroupId group) {
  if (!executor.serves() || (!executor.frees.empty() && executor.frees.back() == group)) return;
  executor.frees.push_back(group);
  with_frees_.insert(executor.id);
}

void Cluster::Commands::FlushAll() {
  for (const ExecutorId id : std::exchange(with_frees_, {})) Flush(s.executors.at(id));
}

void Cluster::Commands::Send(Executor& executor, Command command) {
  s.Charge(1);
  Flush(executor);
  if (executor.serves()) s.actions->Send(executor.id, std::move(command));
}

void Cluster::Commands::Install(Executor& executor, const ExecutableSpec& spec,
                                const std::vector<int32_t>& devices, Node& node) {
  auto [install, absent] = executor.installs.try_emplace(spec.id);
  if (absent && spec.sequence != nullptr) {
    Send(executor, InstallSequence{spec.id, spec.sequence});
  } else if (absent) {
    InstallExecutable command{spec.id, spec.code, spec.checksum, devices, {}, 0};
    const std::vector<CodeLayout::Part>& parts = s.layouts.at(spec.id).parts;
    for (size_t p = 0; p < parts.size() && parts.size() > 1; ++p) {
      if (parts[p].executor == executor.id) command.member = static_cast<int32_t>(p);
      const ExecutorSpec& member = s.executors.at(parts[p].executor).spec;
      command.members.push_back({member.data_endpoint, member.incarnation});
    }
    Send(executor, std::move(command));
  }
  if (install->second.installed) return;
  install->second.waiters.push_back({node.id, node.attempt});
  ++node.open_installs;
}

}  // namespace fairway
