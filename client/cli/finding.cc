// SPDX-License-Identifier: Apache-2.0
#include "client/cli/finding.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "client/cli/printable.h"

namespace fairway {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"PASS", "WARN", "FAIL", "SKIP"};

std::string_view NameOf(Verdict verdict) { return kNames[static_cast<size_t>(verdict)]; }

size_t CountOf(const std::vector<Finding>& findings, Verdict verdict) {
  return static_cast<size_t>(std::ranges::count(findings, verdict, &Finding::verdict));
}

// What one check has reported. Shared with its thread, which may outlive the caller's interest.
struct Running {
  std::mutex mutex;
  std::condition_variable end;
  std::vector<Finding> findings;
  bool ended = false;
  bool given_up = false;  // later findings are dropped
};

void Run(const Check& check, const std::shared_ptr<Running>& running) {
  check.run([running](Finding finding) {
    const std::lock_guard lock(running->mutex);
    if (!running->given_up) running->findings.push_back(std::move(finding));
  });
  const std::lock_guard lock(running->mutex);
  running->ended = true;
  running->end.notify_all();
}

// On a thread of its own.
void Start(const Check& check, const std::shared_ptr<Running>& running) {
  try {
    std::thread([check, running] { Run(check, running); }).detach();
  } catch (const std::system_error& error) {  // as where few threads are permitted
    running->findings.push_back(Fail(check.what, fmt::format("no thread: {}", error.what()),
                                     "ulimit -u 4096, or --pids-limit of the container"));
    running->ended = true;
  }
}

}  // namespace

Finding Pass(std::string_view what, std::string text) {
  return {Verdict::kPass, std::string(what), std::move(text), ""};
}
Finding Warn(std::string_view what, std::string text, std::string fix) {
  return {Verdict::kWarn, std::string(what), std::move(text), std::move(fix)};
}
Finding Fail(std::string_view what, std::string text, std::string fix) {
  return {Verdict::kFail, std::string(what), std::move(text), std::move(fix)};
}
Finding Skip(std::string_view what, std::string text) {
  return {Verdict::kSkip, std::string(what), std::move(text), ""};
}

Checked RunChecks(std::vector<Check> checks) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::shared_ptr<Running>> running;
  for (const Check& check : checks) {
    running.push_back(std::make_shared<Running>());
    Start(check, running.back());
  }
  Checked out;
  for (size_t i = 0; i < checks.size(); ++i) {
    std::unique_lock lock(running[i]->mutex);
    const bool ended = running[i]->end.wait_until(lock, begin + checks[i].limit,
                                                  [&] { return running[i]->ended; });
    out.findings.insert(out.findings.end(), running[i]->findings.begin(),
                        running[i]->findings.end());
    if (ended) continue;
    running[i]->given_up = true;
    out.all_ended = false;
    out.findings.push_back(Fail(
        checks[i].what, fmt::format("not ended within {} s", checks[i].limit.count() / 1000.0),
        "look for a name server, a network file system or a driver that hangs: `dmesg | tail`"));
  }
  return out;
}

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& finding : findings) {
    std::string line =
        fmt::format("{}  {}: {}", NameOf(finding.verdict), finding.what, finding.text);
    if (!finding.fix.empty()) line += fmt::format("  (fix: {})", finding.fix);
    // Texts may be others': a line stays one.
    std::ranges::replace(line, '\n', ' ');
    out += Printable(line) + "\n";
  }
  return out + fmt::format("{} passed, {} warnings, {} failed, {} skipped\n",
                           CountOf(findings, Verdict::kPass), CountOf(findings, Verdict::kWarn),
                           CountOf(findings, Verdict::kFail), CountOf(findings, Verdict::kSkip));
}

Json FindingsJson(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"verdict", NameOf(finding.verdict)},
                    {"what", finding.what},
                    {"text", finding.text},
                    {"fix", finding.fix}});
  }
  return {{"findings", std::move(list)},
          {"pass", CountOf(findings, Verdict::kPass)},
          {"warn", CountOf(findings, Verdict::kWarn)},
          {"fail", CountOf(findings, Verdict::kFail)},
          {"skip", CountOf(findings, Verdict::kSkip)}};
}

bool AnyFails(const std::vector<Finding>& findings) {
  return CountOf(findings, Verdict::kFail) > 0;
}

}  // namespace fairway
