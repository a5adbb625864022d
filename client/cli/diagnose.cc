// SPDX-License-Identifier: Apache-2.0
#include "client/cli/diagnose.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/config.h"
#include "base/redact.h"
#include "client/cli/archive.h"
#include "client/cli/diagnose_parts.h"
#include "client/cli/finding.h"
#include "client/cli/place.h"
#include "client/cli/status_text.h"
#include "identity/private_file.h"

namespace fairway {
namespace {

constexpr char kIndexHead[] =
    "What `fairway diagnose` has collected. Tokens, keys, passwords and what looks like one were "
    "left out,\nand are named in brackets. Names of hosts, users, paths, sessions and programs "
    "are in it: read it\nbefore you pass it on.\n\n";

struct Slot {
  std::mutex mutex;
  absl::StatusOr<std::string> made = absl::DeadlineExceededError("");
};

Made Finished(const Part& part, const absl::StatusOr<std::string>& made) {
  Made out{.name = part.name, .what = WithoutSecrets(part.what), .text = {}, .fault = {}};
  if (!made.ok()) {
    out.fault = WithoutSecrets(Text(made.status()));
    return out;
  }
  out.text = WithoutSecrets(*made);
  if (out.text.size() > kLongestPart) {
    out.fault = fmt::format("the last {} of {}", BytesText(static_cast<int64_t>(kLongestPart)),
                            BytesText(static_cast<int64_t>(out.text.size())));
    out.text.erase(0, out.text.size() - kLongestPart);
    out.text.erase(0, out.text.find('\n') + 1);
  }
  return out;
}

std::string Stamp(std::time_t now) { return fmt::format("{:%Y%m%d-%H%M%S}", fmt::gmtime(now)); }

// The archive of these parts, below a folder of its own.
absl::StatusOr<std::string> ArchiveOf(const std::vector<Made>& parts, std::time_t now) {
  const std::string folder = fmt::format("fairway-diagnose-{}/", Stamp(now));
  std::vector<ArchivedFile> files = {{folder + "INDEX.txt", IndexText(parts)}};
  for (const Made& part : parts) {
    if (!part.text.empty()) files.push_back({folder + part.name, part.text});
  }
  return TarGz(files, now);
}

int FailDiagnose(const absl::Status& status) {
  fmt::print(stderr, "fairway diagnose: {}\n", Text(status));
  return 1;
}

absl::Status IsThere(const std::string& output) {
  return Error(absl::StatusCode::kAlreadyExists,
               "{} is there, and is not replaced; give another --output", output);
}

int Write(const std::string& output, const std::vector<Made>& parts, std::time_t now) {
  const auto archive = ArchiveOf(parts, now);
  if (!archive.ok()) return FailDiagnose(archive.status());
  const absl::Status written = WriteNewPrivate(output, *archive);
  if (absl::IsAlreadyExists(written)) return FailDiagnose(IsThere(output));
  if (!written.ok()) return FailDiagnose(written);
  const auto missing =
      std::ranges::count_if(parts, [](const Made& part) { return part.text.empty(); });
  fmt::print("{} has {} of {} parts ({}); INDEX.txt in it says what could not be had, and why\n",
             output, parts.size() - static_cast<size_t>(missing), parts.size(),
             BytesText(static_cast<int64_t>(archive->size())));
  return 0;
}

}  // namespace

std::vector<Made> MakeParts(std::vector<Part> parts, bool* all_ended) {
  std::vector<std::shared_ptr<Slot>> slots;
  std::vector<Check> checks;
  for (const Part& part : parts) {
    slots.push_back(std::make_shared<Slot>());
    checks.push_back({part.name, part.limit, [make = part.make, slot = slots.back()](auto&) {
                        absl::StatusOr<std::string> made = make();
                        const std::lock_guard lock(slot->mutex);
                        slot->made = std::move(made);
                      }});
  }
  *all_ended = RunChecks(std::move(checks)).all_ended;
  std::vector<Made> out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::lock_guard lock(slots[i]->mutex);
    out.push_back(
        Finished(parts[i], slots[i]->made.status().code() == absl::StatusCode::kDeadlineExceeded &&
                                   slots[i]->made.status().message().empty()
                               ? Error(absl::StatusCode::kDeadlineExceeded, "not ended within {} s",
                                       static_cast<double>(parts[i].limit.count()) / 1000)
                               : slots[i]->made));
  }
  return out;
}

std::string IndexText(const std::vector<Made>& parts) {
  std::string out = kIndexHead;
  for (const Made& part : parts) {
    std::string state = part.text.empty() ? "MISSING: " + part.fault
                                          : BytesText(static_cast<int64_t>(part.text.size())) +
                                                (part.fault.empty() ? "" : ", only " + part.fault);
    std::ranges::replace(state, '\n', ' ');
    out += fmt::format("{}: {} ({})\n", part.name, state, part.what);
  }
  return out;
}

int RunDiagnose(int argc, const char* const* argv) {
  PlaceFlags flags;
  const std::time_t now = std::time(nullptr);
  std::string output = fmt::format("fairway-diagnose-{}.tar.gz", Stamp(now));
  Config config("fairway diagnose",
                "Writes one archive for a report of a fault: versions, what `fairway doctor` says, "
                "status, lists, metrics, settings and the latest lines of logs. Secrets, and what "
                "looks like one, are left out. It changes nothing else, and ends within two "
                "minutes, also if the controller does not answer.");
  DeclarePlace(config, &flags);
  config.Flag("output", &output, "The archive; a file that is there is not replaced");
  config.ShortName("output", 'o');
  if (const auto code = config.Parse(argc, argv)) return *code;
  struct stat facts {};
  if (::lstat(output.c_str(), &facts) == 0) return FailDiagnose(IsThere(output));
  flags.names_controller = config.source("controller") != Config::Source::kDefault;
  Checked settings;
  const Place place = FindPlace(std::move(flags), &settings);
  bool all_ended = true;
  const std::vector<Made> parts = MakeParts(PartsOf(place), &all_ended);
  const int code = Write(output, parts, now);
  std::fflush(nullptr);
  if (!all_ended || !settings.all_ended) ::_exit(code);
  return code;
}

}  // namespace fairway
