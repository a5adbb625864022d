// SPDX-License-Identifier: Apache-2.0
#include "client/cli/status_text.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/time_text.h"
#include "client/cli/json_text.h"
#include "client/cli/printable.h"

namespace fairway {
namespace {

const v1::Executor* ExecutorOf(const v1::GetStatusResponse& status, const std::string& worker) {
  for (const v1::Executor& executor : status.executors()) {
    if (executor.worker() == worker) return &executor;
  }
  return nullptr;
}

// Why its island may stand still.
std::string LaggingText(const v1::Executor& executor) {
  return fmt::format(
      "  waits for {}: it has acknowledged none of its {} commands for {:.1f} s; see `fairway logs "
      "{}`\n",
      executor.worker(), executor.open_commands(), static_cast<double>(executor.still_ms()) / 1000,
      executor.worker());
}

std::string LinkText(const v1::Executor& executor) {
  const std::string round_trip =
      executor.round_trip_us() == 0
          ? "not known yet"
          : fmt::format("{:.2f} ms", static_cast<double>(executor.round_trip_us()) / 1000);
  return fmt::format(
      "    round trip {}; {} commands ({}) not acknowledged; {} connections resumed{}\n",
      round_trip, executor.open_commands(),
      BytesText(static_cast<int64_t>(executor.open_command_bytes())), executor.links_resumed(),
      executor.log_from().empty() ? ""
                                  : "; commands come from the relay of " + executor.log_from());
}

std::string RelayText(const v1::Relay& relay) {
  if (relay.executors() + relay.relays() == 0)
    return fmt::format("  relay of {}: not needed\n", relay.worker());
  return fmt::format("  relay of {}: below {}, above {} executors and {} relays; {} messages, {}\n",
                     relay.worker(),
                     relay.above().empty() ? "the controller" : "that of " + relay.above(),
                     relay.executors(), relay.relays(), relay.messages(),
                     BytesText(static_cast<int64_t>(relay.bytes())));
}

std::string ExecutorText(const v1::Executor& executor) {
  int64_t used = 0;
  int64_t limit = 0;
  for (const v1::Device& device : executor.devices()) {
    used += device.memory_used();
    limit = std::max(limit, device.memory_limit());
  }
  std::string out =
      fmt::format("  {:<12} {:<5}{} {} {} devices, memory {}", executor.worker(),
                  StateText(executor), executor.up() && executor.stalled_ms() != 0 ? "," : "",
                  executor.devices_size(), executor.platform(), BytesText(used));
  if (limit > 0) out += fmt::format(" ({} each at most)", BytesText(limit));
  if (!executor.supervisor_connected()) out += ", no supervisor";
  out += '\n';
  if (!executor.last_error().empty()) {
    const std::string cause = CauseOf(executor);
    out += fmt::format("    {}: {}", executor.up() ? "lost before" : "lost", cause);
    if (cause.size() < executor.last_error().size())
      out += fmt::format("; see `fairway logs {}`", executor.worker());
    out += '\n';
  }
  return out;
}

}  // namespace

std::string DurationText(int64_t ms) {
  const int64_t s = ms / 1000;
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  return fmt::format("{} h {} min", s / 3600, s / 60 % 60);
}

std::string StateText(const v1::Executor& executor) {
  if (!executor.up()) return "down";
  if (executor.stalled_ms() == 0) return "up";
  return fmt::format("stalled for {}", DurationText(executor.stalled_ms()));
}

std::string StateText(const v1::Island& island) {
  std::string out = island.absent() ? "absent" : island.up() ? "up" : "down";
  if (!island.cordoned_by().empty()) out += island.drained() ? ", drained" : ", cordoned";
  return out;
}

std::string CordonText(const v1::Island& island) {
  if (island.cordoned_by().empty()) return "";
  return fmt::format("since {} by {}",
                     TimeText(std::chrono::sys_seconds(std::chrono::seconds(island.cordoned_s()))),
                     island.cordoned_by());
}

std::string CauseOf(const v1::Executor& executor) {
  const std::string& error = executor.last_error();
  return error.substr(0, std::min(error.find("; the last lines of its log:"), error.find('\n')));
}

std::string BytesText(int64_t bytes) {
  if (bytes == 0) return "0";
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

std::string StatusText(const v1::GetStatusResponse& status, bool wide) {
  std::string out =
      fmt::format("controller {} on {} (pid {}), up for {}\n", status.version(), status.host(),
                  status.controller_pid(), DurationText(status.uptime_ms()));
  if (!status.http_address().empty())
    out += fmt::format("metrics {}{}/metrics\n",
                       status.http_address().find("://") == std::string::npos ? "http://" : "",
                       status.http_address());
  if (!status.log_dir().empty()) out += fmt::format("logs {}\n", status.log_dir());
  for (const v1::Island& island : status.islands()) {
    out += fmt::format("{} {}: {} gangs launched, {} in flight, {} prepared, {} wait for memory\n",
                       island.name(), island.up() ? "up" : "DOWN", island.gangs_launched(),
                       island.in_flight(), island.prepared(), island.queued());
    if (!island.cordoned_by().empty())
      out += fmt::format("  {} {}\n",
                         island.drained() ? "drained; cordoned" : "takes no new sessions: cordoned",
                         CordonText(island));
    if (const v1::Executor* lagging = ExecutorOf(status, island.lagging_worker()))
      out += LaggingText(*lagging);
    for (const v1::Relay& relay : status.relays()) {
      if (wide && relay.island() == island.name()) out += RelayText(relay);
    }
    for (const v1::Executor& executor : status.executors()) {
      if (executor.island() != island.name()) continue;
      out += ExecutorText(executor);
      if (wide && executor.up()) out += LinkText(executor);
    }
  }
  if (status.islands().empty()) out += "no worker has registered\n";
  for (const v1::Island& island : status.absent_islands())
    out += fmt::format("{} {} {}\n", island.name(), StateText(island), CordonText(island));
  const v1::Counts& counts = status.counts();
  out +=
      fmt::format("{} sessions, {} arrays, {} shard groups, {} unfinished nodes, {} executables\n",
                  counts.sessions(), counts.arrays(), counts.shard_groups(),
                  counts.nodes_unfinished(), counts.executables());
  out += fmt::format("uploaded {}, fetched {}; {} compilations, {} from the cache\n",
                     BytesText(static_cast<int64_t>(counts.uploaded_bytes())),
                     BytesText(static_cast<int64_t>(counts.fetched_bytes())), counts.compilations(),
                     counts.compile_cache_hits());
  return PrintableLines(out);  // others choose names
}

std::string VersionNote(std::string_view command, std::string_view controller) {
  if (command == controller) return "";
  return fmt::format(
      "this command is version {}, the controller {}: use the `fairway` that started the cluster, "
      "or "
      "start the cluster again with this one",
      command, controller);
}

std::string StatusJson(const v1::GetStatusResponse& status) { return JsonText(ToJson(status)); }

}  // namespace fairway
