// SPDX-License-Identifier: Apache-2.0
// fairway-bench-scale: the scale model (docs/design/0045-scale-model.md), `fairway bench scale`.
#include <cstdio>
#include <string>

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <nlohmann/json.hpp>

#include "base/config.h"
#include "bench/scale/measure.h"

namespace fairway::scale {
namespace {

using nlohmann::json;

constexpr int kExitFailed = 1;

constexpr int kMostHosts = 16384;

double Us(Nanos time) { return static_cast<double>(time) / 1000; }

json PointJson(const Parity::Point& point) {
  const Result& r = point.result;
  return {{"computation_us", Us(point.computation)},
          {"period_us", Us(r.period)},
          {"of_local_loop", r.parity(point.computation)},
          {"code_us", r.code_us},
          {"cold_us", r.cold_us},
          {"repeats_us", r.repeats_us},
          {"sockets_us", r.sockets_us},
          {"frames_out", r.frames_out},
          {"frames_in", r.frames_in},
          {"bytes_out", r.bytes_out},
          {"bytes_in", r.bytes_in},
          {"host_us", r.host_us},
          {"relays", r.relays},
          {"depth", r.depth},
          {"relay_code_us", r.relay_us},
          {"relay_us", r.relay_all_us}};
}

void PrintPoints(const Options& options, const Parity& parity) {
  fmt::print("{:>15} {:>12} {:>11} | controller, a gang: {:>9} {:>11} {:>11} {:>11} {:>12}\n",
             "computation us", "period us", "local loop", "code us", "sockets us", "frames out",
             "frames in", "bytes/host");
  for (const Parity::Point& point : parity.points) {
    const Result& r = point.result;
    fmt::print(
        "{:>15.1f} {:>12.1f} {:>10.2f}% | {:>29.1f} {:>11.1f} {:>11.1f} {:>11.1f} {:>12.1f}\n",
        Us(point.computation), Us(r.period), 100 * r.parity(point.computation), r.code_us,
        r.sockets_us, r.frames_out, r.frames_in, r.bytes_out / options.hosts);
  }
}

absl::Status Run(const Options& options, bool details, bool as_json) {
  FAIRWAY_ASSIGN_OR_RETURN(const Parity parity, FindParity(options));
  // The last point that held, at parity.
  const Parity::Point* at = nullptr;
  for (const Parity::Point& point : parity.points) {
    if (point.computation == parity.computation) at = &point;
  }
  Memory memory;
  ProgramSize program;
  if (details) {
    FAIRWAY_ASSIGN_OR_RETURN(memory, MeasureMemory(options));
    FAIRWAY_ASSIGN_OR_RETURN(program, MeasureProgram(options));
  }
  if (as_json) {
    json out = {{"hosts", options.hosts},
                {"devices", options.hosts * options.devices_per_host},
                {"network_us", Us(options.network)},
                {"receive_us", Us(options.link.receive)},
                {"send_us", Us(options.link.send)},
                {"parity_us", Us(parity.computation)},
                {"fastest_period_us", Us(parity.fastest_period)},
                {"at_parity", PointJson(*at)}};
    for (const Parity::Point& point : parity.points) out["points"].push_back(PointJson(point));
    if (details) {
      out["memory"] = {{"host", memory.host}, {"array", memory.array}, {"gang", memory.gang}};
      out["program"] = {{"graph_nodes", program.graph_nodes},
                        {"controller_nodes", program.controller_nodes},
                        {"client_bytes", program.client_bytes},
                        {"frames_per_host", program.frames_per_host},
                        {"bytes_per_host", program.bytes_per_host},
                        {"report_bytes_per_host", program.reports_per_host},
                        {"controller_memory", program.controller_memory}};
    }
    fmt::print("{}\n", out.dump());
    return absl::OkStatus();
  }
  fmt::print(
      "{} hosts, {} devices; declared: network {:.1f} us one way, {} Gbit/s, the computation; "
      "sockets (measured on loopback): {:.2f} us to receive a frame, {:.2f} us to send one\n\n",
      options.hosts, options.hosts * options.devices_per_host, Us(options.network),
      options.gigabits, Us(options.link.receive), Us(options.link.send));
  PrintPoints(options, parity);
  fmt::print("\nparity with the local loop ({:.0f} %) from computations of {:.1f} us on\n",
             100 * kParity, Us(parity.computation));
  fmt::print(
      "controller per gang: {:.1f} us ({:.2f} us a host), its code {:.1f} to {:.1f} us, and {:.1f} "
      "us between the turns of all hosts, as virtual time has it; host per gang: {:.2f} us\n",
      at->result.code_us + at->result.sockets_us,
      (at->result.code_us + at->result.sockets_us) / options.hosts, at->result.repeats_us.front(),
      at->result.repeats_us.back(), at->result.cold_us, at->result.host_us);
  if (at->result.relays > 0) {
    fmt::print(
        "{} relays, {} links from the controller to a host; the relay that took most, per gang: "
        "{:.2f} us of code, {:.2f} us with its sockets\n",
        at->result.relays, at->result.depth, at->result.relay_us, at->result.relay_all_us);
  }
  if (!details) return absl::OkStatus();
  fmt::print("controller's memory, bytes: {:.0f} a host, {:.0f} an array, {:.0f} a waiting gang\n",
             memory.host, memory.array, memory.gang);
  fmt::print(
      "a run of Arg -> A -> B -> Result: {} nodes as written, {:.2f} in the controller ({:.0f} "
      "bytes while it waits), {:.0f} bytes to and from the client, {:.2f} frames and {:.0f} bytes "
      "to each host, {:.0f} bytes from it\n",
      program.graph_nodes, program.controller_nodes, program.controller_memory,
      program.client_bytes, program.frames_per_host, program.bytes_per_host,
      program.reports_per_host);
  return absl::OkStatus();
}

int Main(int argc, const char* const* argv) {
  Options options;
  options.hosts = 512;
  options.devices_per_host = 4;
  int64_t network_us = 25;
  bool details = true;
  bool as_json = false;
  Config config("fairway bench scale",
                "The controller's real code against simulated hosts, in virtual time: how short "
                "computations may be, and what a gang, an array and a host cost the controller.");
  config.Flag("hosts", &options.hosts, "Simulated hosts, of one island");
  config.Flag("devices-per-host", &options.devices_per_host, "Devices of each");
  config.Flag("network-us", &network_us, "Declared time of a message, one way");
  config.Flag("gigabits", &options.gigabits,
              "Declared bandwidth of the controller's port, a second");
  config.Flag("gangs", &options.gangs, "Calls of a run that are measured");
  config.Flag("ahead", &options.ahead, "Calls that the client makes before the first has ended");
  config.Flag("chain", &options.chain,
              "Gangs of one call: above 1 it is a program of so many steps");
  config.Flag("relay-fan-out", &options.relay_fanout,
              "Children of the controller and of each relay of the island's log; 0: no relays");
  config.Flag("in-order", &options.in_order,
              "The devices run gangs in order; else each is started when its inputs are ready");
  config.Flag("details", &details, "Memory and the sizes of programs too");
  config.Flag("json", &as_json, "One JSON object instead of a table");
  if (const auto code = config.Parse(argc, argv)) return *code;
  const bool sizes = options.hosts >= 1 && options.hosts <= kMostHosts &&
                     options.devices_per_host >= 1 && options.devices_per_host <= 64;
  if (!sizes || options.gangs < 1 || options.ahead < 1 || options.chain < 1 || network_us < 0 ||
      options.relay_fanout < 0 || options.relay_fanout == 1 || options.gigabits <= 0) {
    fmt::print(
        stderr,
        "fairway bench scale: --hosts is 1 to {}, --devices-per-host 1 to 64, --gangs, "
        "--ahead and --chain at least 1, --gigabits above 0, --relay-fan-out 0 or at least 2\n",
        kMostHosts);
    return kExitUsage;
  }
  options.network = network_us * 1000;
  spdlog::set_level(spdlog::level::err);
  absl::StatusOr<LinkCost> link = MeasureLinkCost();
  absl::Status status = link.status();
  if (link.ok()) {
    options.link = *link;
    status = Run(options, details, as_json);
  }
  if (status.ok()) return 0;
  fmt::print(stderr, "fairway bench scale: {}\n", Text(status));
  return kExitFailed;
}

}  // namespace
}  // namespace fairway::scale

int main(int argc, char** argv) { return fairway::scale::Main(argc, argv); }
