// SPDX-License-Identifier: Apache-2.0
// Logging by spdlog: readable on a terminal, one JSON object per line otherwise.
#ifndef FAIRWAY_BASE_LOG_H_
#define FAIRWAY_BASE_LOG_H_

#include <string>
#include <string_view>

#include <spdlog/spdlog.h>

#include "base/status.h"

namespace fairway {

// Who speaks; empty fields are left out of the line.
struct LogIdentity {
  std::string component;  // controller, supervisor, executor, compiler, cli
  std::string island;
  std::string worker;
};

// What --log-level and FAIRWAY_LOG_LEVEL may be: trace, debug, info, warn or error.
// INVALID_ARGUMENT: anything else, of which spdlog would make "off".
absl::Status CheckLogLevel(std::string_view level);

// Sets the process's logger up: to standard error. `level` passes CheckLogLevel.
// Call once, before threads start.
void InitLogging(const LogIdentity& identity, std::string_view level);

// The JSON form of one log line, for tests and for readers of piped logs.
std::string JsonLogLine(const LogIdentity& identity, std::string_view level, std::string_view text,
                        int64_t unix_micros);

}  // namespace fairway

#endif  // FAIRWAY_BASE_LOG_H_
