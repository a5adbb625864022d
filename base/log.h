// SPDX-License-Identifier: Apache-2.0
// Logging by spdlog: readable on a terminal, one JSON object per line otherwise.
#ifndef FAIRWAY_BASE_LOG_H_
#define FAIRWAY_BASE_LOG_H_

#include <memory>
#include <string>
#include <string_view>

#include <spdlog/spdlog.h>

#include "base/recent_lines.h"
#include "base/status.h"

namespace fairway {

// The sender of the log lines; empty fields are left out.
struct LogIdentity {
  std::string component;  // controller, supervisor, executor, compiler, cli
  std::string island;
  std::string worker;
};

// Checks the value of --log-level and FAIRWAY_LOG_LEVEL: trace, debug, info, warn or error.
// INVALID_ARGUMENT: anything else (spdlog would turn it into "off").
absl::Status CheckLogLevel(std::string_view level);

// Sets the process's logger up; it writes to standard error, and as JSON to `recent`, if there is
// one. `level` has passed CheckLogLevel. Call it once, before threads start.
void InitLogging(const LogIdentity& identity, std::string_view level,
                 std::shared_ptr<RecentLines> recent = nullptr);

// Returns the level that begins with `letter`; empty: none does.
std::string_view LogLevelOf(char letter);

// Changes the level of the process's logger. `level` has passed CheckLogLevel. Any thread.
void SetLogLevel(std::string_view level);

// The JSON form of one log line, for tests and for readers of piped logs.
std::string JsonLogLine(const LogIdentity& identity, std::string_view level, std::string_view text,
                        int64_t unix_micros);

}  // namespace fairway

#endif  // FAIRWAY_BASE_LOG_H_
