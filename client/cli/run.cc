// SPDX-License-Identifier: Apache-2.0
#include "client/cli/run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/strings/numbers.h>
#include <fmt/ranges.h>

#include "base/config.h"
#include "client/cli/commands.h"
#include "client/cli/npy.h"
#include "client/cli/printable.h"
#include "client/cli/program_file.h"
#include "client/cli/reach.h"
#include "client/cli/values.h"
#include "client/cpp/access.h"
#include "fairway/fairway.h"

namespace fairway {
namespace {

using client::Array;
using client::ArraySpec;
using client::Executable;
using client::HostArray;
using client::Session;

constexpr int kExitFailed = 1;

struct RunFlags {
  std::string file;
  Reach reach;
  std::vector<std::string> slices, arguments, outputs, code;
  int repeat = 1;
};

// Names the program's `file` in an error, unless the cause is that the controller is gone.
absl::Status OfFile(const absl::Status& status, const std::string& file) {
  return absl::IsUnavailable(status) ? status : Annotate(status, file);
}

absl::Status ToAbsl(const client::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.code()), status.message());
}

// Splits NAME=VALUE of a flag that may be given several times. INVALID_ARGUMENT: a value is not
// such a pair, or its name is not among `names`.
absl::StatusOr<std::map<size_t, std::string>> Pairs(std::string_view flag,
                                                    const std::vector<std::string>& given,
                                                    const std::vector<std::string>& names) {
  std::map<size_t, std::string> out;
  for (const std::string& pair : given) {
    const size_t at = pair.find('=');
    if (at == std::string::npos || at + 1 == pair.size())
      return InvalidArgument("--{} is '{}', not NAME=VALUE", flag, pair);
    const auto found = std::find(names.begin(), names.end(), pair.substr(0, at));
    if (found == names.end())
      return InvalidArgument("--{} {}: the program has {}", flag, pair,
                             names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
    out[static_cast<size_t>(found - names.begin())] = pair.substr(at + 1);
  }
  return out;
}

// The devices of each slice of the program: the first devices of an island.
absl::StatusOr<std::vector<std::vector<int>>> Places(const v1::Program& program,
                                                     const std::vector<std::string>& given,
                                                     const Session& session) {
  std::vector<std::string> names, islands;
  for (const v1::ProgramSlice& slice : program.slices()) names.push_back(slice.name());
  for (const client::Slice& island : session.slices()) islands.push_back(island.name);
  FAIRWAY_ASSIGN_OR_RETURN(const auto chosen, Pairs("slice", given, names));
  std::vector<std::vector<int>> out;
  for (size_t s = 0; s < names.size(); ++s) {
    size_t island = s;
    if (const auto wanted = chosen.find(s); wanted != chosen.end()) {
      const auto by_name = std::find(islands.begin(), islands.end(), wanted->second);
      island = static_cast<size_t>(by_name - islands.begin());
      if (by_name == islands.end() && !absl::SimpleAtoi(wanted->second, &island))
        island = islands.size();
    }
    if (island >= islands.size())
      return InvalidArgument(
          "slice '{}' has no island: the cluster has {}. Choose one with --slice {}=ISLAND",
          names[s], fmt::join(islands, ", "), names[s]);
    const std::vector<int>& devices = session.slices()[island].devices;
    const int count = program.slices(static_cast<int>(s)).devices();
    if (count < 1 || static_cast<size_t>(count) > devices.size())
      return InvalidArgument("slice '{}' is of {} devices, but {} has {}", names[s], count,
                             islands[island], devices.size());
    out.emplace_back(devices.begin(), devices.begin() + count);
  }
  return out;
}

absl::StatusOr<HostArray> ArgumentOf(const ArraySpec& spec, const std::string& given) {
  if (!given.ends_with(".npy")) return Filled(spec.dtype, spec.shape, given);
  FAIRWAY_ASSIGN_OR_RETURN(HostArray array, ReadNpy(given));
  if (array.dtype() == spec.dtype && array.shape() == spec.shape) return array;
  return InvalidArgument("{} is {}, the program takes {}", given,
                         ToString(ArraySpec{array.dtype(), array.shape(), {}}), ToString(spec));
}

struct Arguments {
  std::vector<HostArray> host;
  std::vector<Array> arrays;

  // Puts the arguments that are not on devices yet, or that a run took over; with `all`, all.
  void Put(Session& session, const Executable& program, bool all) {
    arrays.resize(host.size());
    for (size_t a = 0; a < host.size(); ++a) {
      if (!all && !program.donated()[a]) continue;
      arrays[a] = session.Put({host[a].bytes().data(), host[a].dtype(), host[a].shape(),
                               std::make_shared<HostArray>(host[a])},
                              program.parameters()[a].sharding);
    }
  }
};

absl::StatusOr<Arguments> ReadArguments(const RunFlags& flags, const v1::Program& file,
                                        const Executable& program) {
  const std::vector<std::string> names = ArgumentNames(file);
  FAIRWAY_ASSIGN_OR_RETURN(const auto given, Pairs("arg", flags.arguments, names));
  Arguments out;
  for (size_t a = 0; a < program.parameters().size(); ++a) {
    const auto value = given.find(a);
    auto array = ArgumentOf(program.parameters()[a], value == given.end() ? "0" : value->second);
    if (!array.ok())
      return Annotate(array.status(),
                      fmt::format("argument '{}'", a < names.size() ? names[a] : ""));
    out.host.push_back(*std::move(array));
  }
  return out;
}

// Fetches the results, and prints them, or writes those that have a file.
absl::Status Show(const std::vector<Array>& results, const std::vector<std::string>& names,
                  const std::map<size_t, std::string>& files) {
  for (size_t r = 0; r < results.size(); ++r) {
    const auto host = results[r].ToHost().Get();
    if (!host.ok()) return Annotate(ToAbsl(host.status()), fmt::format("result '{}'", names[r]));
    const auto file = files.find(r);
    if (file != files.end()) FAIRWAY_RETURN_IF_ERROR(WriteNpy(file->second, *host));
    fmt::print("{}  {}  {}\n", names[r], ToString(results[r].spec()),
               file != files.end() ? file->second : FirstValues(*host));
  }
  return absl::OkStatus();
}

absl::Status Run(const RunFlags& flags) {
  FAIRWAY_ASSIGN_OR_RETURN(v1::Program file, ReadProgramFile(flags.file));
  FAIRWAY_RETURN_IF_ERROR(AddCode(flags.code, file));
  const std::vector<std::string> results = ResultNames(file);
  FAIRWAY_ASSIGN_OR_RETURN(const auto files, Pairs("out", flags.outputs, results));
  auto session = client::Connect(
      flags.reach.controller,
      {.tenant = "run", .tls_ca = flags.reach.tls_ca, .token_file = flags.reach.token_file});
  if (!session.ok()) return ToAbsl(session.status());
  FAIRWAY_ASSIGN_OR_RETURN(const auto places, Places(file, flags.slices, *session));
  const auto bound = session->Bind(client::Access::Make(file), places).Get();
  if (!bound.ok()) return OfFile(ToAbsl(bound.status()), flags.file);
  FAIRWAY_ASSIGN_OR_RETURN(Arguments arguments, ReadArguments(flags, file, *bound));
  arguments.Put(*session, *bound, /*all=*/true);
  if (const auto put = session->Ready(arguments.arrays).Get(); !put.ok()) return ToAbsl(put);
  const auto begin = std::chrono::steady_clock::now();
  std::deque<client::Future<client::Status>> ends;  // of the runs that are under way, oldest first
  std::vector<Array> made;
  for (int i = 0; i < flags.repeat || !ends.empty();) {
    // After the first failure, as when the session has ended, no further run is asked for.
    if (i == flags.repeat || (!ends.empty() && ends.front().ready())) {
      if (const auto& end = ends.front().Get(); !end.ok()) return OfFile(ToAbsl(end), flags.file);
      ends.pop_front();
      continue;
    }
    if (i > 0) arguments.Put(*session, *bound, /*all=*/false);
    made = bound->Call(arguments.arrays);
    ends.push_back(session->Ready(made));
    ++i;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  FAIRWAY_RETURN_IF_ERROR(Show(made, results, files));
  if (flags.repeat > 1) {
    fmt::print("{} runs in {:.3f} s: {:.1f} a second, {:.1f} us each\n", flags.repeat, took.count(),
               flags.repeat / took.count(), 1e6 * took.count() / flags.repeat);
  }
  return absl::OkStatus();
}

}  // namespace

int RunProgram(int argc, const char* const* argv) {
  RunFlags flags;
  Config config("fairway run",
                "Runs a dataflow program (fairway.v1.Program, in protobuf's text format or JSON).");
  DeclareReach(config, &flags.reach);
  config.Flag("slice", &flags.slices,
              "SLICE=ISLAND (its name or number): where a slice of the program lies; default: its "
              "n-th slice on the n-th island, on the first devices there");
  config.Flag("arg", &flags.arguments,
              "NAME=FILE.npy, or NAME=NUMBER for that value everywhere; default: zeros");
  config.Flag("out", &flags.outputs, "NAME=FILE.npy: write a result instead of printing it");
  config.Flag("code", &flags.code, "COMPUTATION=FILE: its StableHLO, as jax.export makes it");
  config.Flag("repeat", &flags.repeat,
              "Run it so often, without waiting in between, and say how long that took");
  config.Positional("FILE", &flags.file, "The program");
  if (const auto code = config.Parse(argc, argv)) return *code;
  if (flags.file.empty() || flags.repeat < 1) {
    fmt::print(
        stderr, "fairway run: {}\n",
        flags.file.empty() ? "which program? fairway run FILE" : "--repeat must be 1 or more");
    return kExitUsage;
  }
  if (const absl::Status status = Run(flags); !status.ok()) {
    fmt::print(stderr, "fairway run: {}\n", PrintableLines(Text(status)));
    return kExitFailed;
  }
  return 0;
}

}  // namespace fairway
