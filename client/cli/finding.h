// SPDX-License-Identifier: Apache-2.0
// What `fairway doctor` finds, and how checks are run so that none can hold up the others.
#ifndef FAIRWAY_CLIENT_CLI_FINDING_H_
#define FAIRWAY_CLIENT_CLI_FINDING_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/json_text.h"

namespace fairway {

enum class Verdict : uint8_t { kPass, kWarn, kFail, kSkip };

struct Finding {
  Verdict verdict = Verdict::kPass;
  std::string what;  // "token file"
  std::string text;  // what was found; of a check that could not be made: why
  std::string fix;   // a command where one exists; empty: nothing is to be done
};

// Takes one finding, on any thread.
using Report = std::function<void(Finding finding)>;

Finding Pass(std::string_view what, std::string text);
Finding Warn(std::string_view what, std::string text, std::string fix);
Finding Fail(std::string_view what, std::string text, std::string fix);
Finding Skip(std::string_view what, std::string text);

struct Check {
  std::string what;
  std::chrono::milliseconds limit{};
  // May report any number of findings. It owns what it uses, since it may never end.
  std::function<void(const Report& report)> run;
};

struct Checked {
  std::vector<Finding> findings;  // in the order of the checks
  bool all_ended = true;
};

// Runs all checks at one time, each on a thread of its own, and returns when each has ended or its
// limit has passed. One that has not ended has what it reported by then, and one FAIL more. Its
// thread goes on, so the process must be ended by _exit.
Checked RunChecks(std::vector<Check> checks);

// A line for each: "FAIL  token file: ... (fix: ...)", and one that counts them.
std::string FindingsText(const std::vector<Finding>& findings);
// {"findings": [{"verdict", "what", "text", "fix"}], "pass", "warn", "fail", "skip": counts}.
Json FindingsJson(const std::vector<Finding>& findings);
bool AnyFails(const std::vector<Finding>& findings);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_FINDING_H_
