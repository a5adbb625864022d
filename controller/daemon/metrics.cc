// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/metrics.h"

#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

#include "controller/cluster/status.h"

namespace fairway {
namespace {

using Labels = std::initializer_list<std::pair<std::string_view, std::string>>;

// Writes one metric family after the other.
class Exposition {
 public:
  void Family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <typename Number>
  void Value(Number value, Labels labels = {}) {
    out_ += name_;
    if (labels.size() > 0) {
      char separator = '{';
      for (const auto& [key, text] : labels) {
        out_ += fmt::format("{}{}=\"{}\"", separator, key, Escape(text));
        separator = ',';
      }
      out_ += '}';
    }
    out_ += fmt::format(" {}\n", value);
  }
  template <typename Number>
  void Single(std::string_view name, std::string_view type, std::string_view help, Number value) {
    Family(name, type, help);
    Value(value);
  }
  std::string Take() { return std::move(out_); }

 private:
  static std::string Escape(std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '\\' || c == '"') out += '\\';
      if (c == '\n') {
        out += "\\n";
      } else {
        out += c;
      }
    }
    return out;
  }

  std::string_view name_;
  std::string out_;
};

int CountEntries(const char* directory) {
  std::error_code error;
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory, error))
    ++count;
  return count;
}

void OfLinks(Exposition& out, const ControllerSnapshot& s) {
  out.Family("fairway_link_messages_total", "counter",
             "Messages of commands to executors, and of reports from them.");
  out.Value(s.commands.messages, {{"direction", "to_executors"}});
  out.Value(s.reports.messages, {{"direction", "from_executors"}});
  out.Family("fairway_link_bytes_total", "counter",
             "Bytes of the messages of commands to executors, and of reports from them.");
  out.Value(s.commands.bytes, {{"direction", "to_executors"}});
  out.Value(s.reports.bytes, {{"direction", "from_executors"}});
  out.Single("fairway_commands_total", "counter", "Commands to executors; a message has many.",
             s.commands_sent);
  out.Single("fairway_links_resumed_total", "counter",
             "Connections of executors that broke and came back within --link-grace.",
             s.links_resumed);
}

// A value of each executor that `of` has something about.
template <typename Of>
void EachExecutor(Exposition& out, const ControllerSnapshot& s, const std::map<ExecutorId, Of>& of,
                  auto value) {
  for (const ExecutorStatus& executor : s.executors) {
    const auto it = of.find(executor.id);
    if (it != of.end())
      out.Value(value(it->second),
                {{"worker", executor.spec.worker}, {"island", executor.spec.island}});
  }
}

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

void OfExecutorLinks(Exposition& out, const ControllerSnapshot& s) {
  const auto each = [&](auto value) { EachExecutor(out, s, s.health, value); };
  out.Family("fairway_executor_open_commands", "gauge",
             "Commands for the executor that it has not acknowledged.");
  each([](const LinkHealth& health) { return health.open_entries; });
  out.Family("fairway_executor_still_seconds", "gauge",
             "How long the executor has acknowledged none of its open commands; 0: none is open.");
  each([&](const LinkHealth& health) { return Seconds(health.still); });
  out.Family("fairway_executor_round_trip_seconds", "gauge",
             "From the executor's latest heartbeat to the answer; 0: there was none yet.");
  each([&](const LinkHealth& health) { return Seconds(health.round_trip); });
  out.Family("fairway_executor_links_resumed_total", "counter",
             "Connections of the executor that broke and came back within --link-grace.");
  each([](const LinkHealth& health) { return health.links_resumed; });
}

// What executors say of themselves in their heartbeats.
void OfExecutorProcesses(Exposition& out, const ControllerSnapshot& s) {
  const auto each = [&](auto value) { EachExecutor(out, s, s.said.executors, value); };
  out.Family("fairway_executor_launches_total", "counter",
             "Launches of the executor: gangs, and programs on one device.");
  each([](const ExecutorCounters& counters) { return counters.launches; });
  out.Family("fairway_executor_served_bytes_total", "counter",
             "Bytes that others pulled from the executor.");
  each([](const ExecutorCounters& counters) { return counters.served_bytes; });
  out.Family("fairway_executor_buffers", "gauge", "Shard buffers that live on the executor.");
  each([](const ExecutorCounters& counters) { return counters.buffers; });
  out.Family("fairway_executor_executables", "gauge",
             "Compiled programs that the executor has loaded.");
  each([](const ExecutorCounters& counters) { return counters.executables; });
  out.Family("fairway_executor_cpu_seconds_total", "counter",
             "Processor time of the executor's process.");
  each([](const ExecutorCounters& counters) { return Seconds(counters.process.cpu); });
  out.Family("fairway_executor_resident_bytes", "gauge",
             "Memory of the host that the executor's process has.");
  each([](const ExecutorCounters& counters) { return counters.process.resident_bytes; });
}

// Of the workers' daemons.
void OfWorkers(Exposition& out, const ControllerSnapshot& s) {
  out.Family("fairway_worker_up", "gauge", "1 while the worker's daemon is connected.");
  for (const ExecutorStatus& executor : s.executors) {
    out.Value(s.said.daemons.contains(executor.spec.worker) ? 1 : 0,
              {{"worker", executor.spec.worker}, {"island", executor.spec.island}});
  }
  const auto each = [&](auto value) {
    for (const auto& [name, counters] : s.said.daemons)
      out.Value(value(counters), {{"worker", name}, {"island", counters.island}});
  };
  out.Family("fairway_worker_executor_starts_total", "counter",
             "Executors that the worker's daemon has started: one, and one for each that ended.");
  each([](const WorkerCounters& counters) { return counters.executor_starts; });
  out.Family("fairway_worker_compile_processes", "gauge",
             "Compile processes of the worker: those that compile, and those kept ready.");
  each([](const WorkerCounters& counters) { return counters.compile_processes; });
  out.Family("fairway_worker_compile_starts_total", "counter",
             "Compile processes that the worker's daemon has started.");
  each([](const WorkerCounters& counters) { return counters.compile_starts; });
  out.Family("fairway_worker_compile_crashes_total", "counter",
             "Compile processes that ended by themselves, or were killed at a limit of time.");
  each([](const WorkerCounters& counters) { return counters.compile_crashes; });
  out.Family("fairway_worker_cpu_seconds_total", "counter",
             "Processor time of the worker's daemon, without its children.");
  each([](const WorkerCounters& counters) { return Seconds(counters.process.cpu); });
  out.Family("fairway_worker_resident_bytes", "gauge",
             "Memory of the host that the worker's daemon has, without its children.");
  each([](const WorkerCounters& counters) { return counters.process.resident_bytes; });
}

void OfRelays(Exposition& out, const ControllerSnapshot& s) {
  const auto each = [&](auto value) {
    for (const RelayStatus& relay : s.relays)
      out.Value(value(relay), {{"worker", relay.worker}, {"island", relay.island}});
  };
  out.Family("fairway_relay_children", "gauge",
             "Executors and relays to which the relay passes the log of its island on.");
  each([](const RelayStatus& relay) { return relay.executors + relay.relays; });
  out.Family("fairway_relay_messages_total", "counter",
             "Messages that the relay sent to its children and to its parent.");
  each([](const RelayStatus& relay) { return relay.passed_on.messages; });
  out.Family("fairway_relay_bytes_total", "counter",
             "Bytes of the messages that the relay sent to its children and to its parent.");
  each([](const RelayStatus& relay) { return relay.passed_on.bytes; });
  out.Single("fairway_relay_moves_total", "counter",
             "Executors to which the log came from another relay, or from the controller again.",
             s.relay_moves);
  out.Single("fairway_relay_troubles_total", "counter",
             "Relays and their children that got another place because they were silent, slow or "
             "could not be reached.",
             s.relay_troubles);
}

void OfLoads(Exposition& out, const ControllerSnapshot& s) {
  const auto each = [&](auto value) { EachExecutor(out, s, s.said.loads, value); };
  out.Family("fairway_executor_turn_units_max", "gauge",
             "The most units of one turn of the executor's core.");
  each([](const LoopLoad& load) { return load.turn_units; });
  out.Family("fairway_executor_handler_cpu_seconds_max", "gauge",
             "The most processor time of one handler of the executor's loop; 0: under 2 ms.");
  each([](const LoopLoad& load) { return Seconds(load.handler); });
}

void ByIsland(Exposition& out, const ControllerSnapshot& s) {
  std::map<IslandId, std::string> names;
  for (const IslandStatus& island : s.islands) names[island.id] = island.name;

  out.Family("fairway_island_up", "gauge", "1 when all executors of the island are registered.");
  for (const IslandStatus& island : s.islands)
    out.Value(island.up ? 1 : 0, {{"island", island.name}});
  out.Family("fairway_island_cordoned", "gauge",
             "1 while new sessions do not see the island (fairway cordon, fairway drain).");
  for (const IslandStatus& island : s.islands)
    out.Value(island.cordon.has_value() ? 1 : 0, {{"island", island.name}});
  out.Family("fairway_gangs_launched_total", "counter",
             "Computations launched over several devices.");
  for (const IslandStatus& island : s.islands)
    out.Value(island.gangs_launched, {{"island", island.name}});
  out.Family("fairway_island_nodes", "gauge",
             "Graph nodes of the island that have not ended, by state.");
  for (const IslandStatus& island : s.islands) {
    out.Value(island.queued, {{"island", island.name}, {"state", "waits_for_memory"}});
    out.Value(island.prepared, {{"island", island.name}, {"state", "prepared"}});
    out.Value(island.in_flight, {{"island", island.name}, {"state", "in_flight"}});
  }

  std::map<std::string, uint64_t> fetches;
  for (const ExecutorStatus& executor : s.executors) {
    const auto it = s.executor_fetches.find(executor.id);
    fetches[names[executor.island]] += it == s.executor_fetches.end() ? 0 : it->second;
  }
  out.Family("fairway_executor_fetches_total", "counter",
             "Fetches that asked an executor for the bytes.");
  for (const auto& [island, count] : fetches) out.Value(count, {{"island", island}});
  out.Family(
      "fairway_transferred_bytes_total", "counter",
      "Bytes that executors pulled from each other, by island; never through the controller.");
  for (const auto& [pair, bytes] : s.transferred_bytes) {
    out.Value(bytes, {{"from_island", pair.first}, {"to_island", pair.second}});
  }
  out.Family("fairway_executor_up", "gauge", "1 when the worker's executor is registered.");
  for (const ExecutorStatus& executor : s.executors) {
    out.Value(executor.up ? 1 : 0,
              {{"island", names[executor.island]}, {"worker", executor.spec.worker}});
  }
  std::map<ExecutorId, std::string> workers;
  out.Family(
      "fairway_executor_stalled_seconds", "gauge",
      "How long the executor has been silent, while its host answers; 0: it is not stalled.");
  for (const ExecutorStatus& executor : s.executors) {
    const auto it = s.stalled.find(executor.id);
    out.Value(it == s.stalled.end() ? 0 : static_cast<double>(it->second.count()) / 1000,
              {{"worker", executor.spec.worker}, {"island", executor.spec.island}});
  }
  OfLoads(out, s);
  OfExecutorLinks(out, s);
  OfExecutorProcesses(out, s);
  OfWorkers(out, s);
  for (const ExecutorStatus& executor : s.executors) workers[executor.id] = executor.spec.worker;
  out.Family("fairway_device_memory_used_bytes", "gauge",
             "Device memory that arrays and running work hold.");
  for (const DeviceUsage& device : s.usage) {
    out.Value(device.used,
              {{"island", names[device.island]},
               {"device", fmt::format("{}/{}", workers[device.executor], device.local_ordinal)}});
  }
}

}  // namespace

std::string MetricsText(const ControllerSnapshot& s) {
  Exposition out;
  out.Single("fairway_uploaded_bytes_total", "counter", "Bulk bytes from clients to devices.",
             s.uploaded_bytes);
  out.Single("fairway_fetched_bytes_total", "counter", "Bulk bytes from devices to clients.",
             s.fetched_bytes);
  out.Single("fairway_executions_total", "counter", "Requests to run a computation or a program.",
             s.counts.executions);
  out.Single("fairway_inline_fetches_total", "counter",
             "Fetches answered from results that came with their completion, or small uploads.",
             s.counts.inline_hits);
  out.Single("fairway_sessions", "gauge", "Open client sessions.", s.counts.sessions);
  out.Single("fairway_arrays", "gauge", "Array handles of all sessions.", s.counts.arrays);
  out.Single("fairway_stored_upload_bytes", "gauge",
             "Bytes of small uploads that lie with the controller.", s.counts.stored_bytes);
  out.Single("fairway_shard_groups", "gauge", "Groups of shard buffers that live.",
             s.counts.groups);
  out.Single("fairway_nodes_unfinished", "gauge", "Graph nodes that have not ended.",
             s.counts.nodes);
  out.Single("fairway_nodes_total", "counter", "Graph nodes made.", s.counts.nodes_made);
  out.Single("fairway_core_units_total", "counter",
             "Units of work of the core: nodes, groups, handles, pieces and commands it touched.",
             s.counts.units);
  out.Single("fairway_core_turn_units_max", "gauge",
             "The most units of one operation or turn since the controller's start.",
             s.counts.most_units);
  out.Single("fairway_executables", "gauge", "Compiled programs known.", s.counts.executables);
  ByIsland(out, s);
  OfLinks(out, s);
  OfRelays(out, s);
  out.Single("fairway_compilations_total", "counter", "Programs compiled.", s.compilations);
  out.Single("fairway_compile_cache_hits_total", "counter",
             "Compile requests answered from the cache.", s.compile_cache_hits);
  out.Single("fairway_loop_handler_cpu_seconds_max", "gauge",
             "The most processor time of one handler of the controller's loop; 0: under 2 ms.",
             Seconds(s.longest_handler));
  out.Single("fairway_process_open_fds", "gauge", "Open file descriptors of the controller.",
             s.open_fds);
  out.Single("fairway_process_threads", "gauge", "Threads of the controller.", s.threads);
  out.Single("fairway_uptime_seconds", "gauge", "Time since the controller's start.",
             static_cast<double>(s.uptime_ms) / 1000);
  return out.Take();
}

// The descriptor of the directory itself is not counted.
int CountOpenFds() { return CountEntries("/proc/self/fd") - 1; }
int CountThreads() { return CountEntries("/proc/self/task"); }

}  // namespace fairway
