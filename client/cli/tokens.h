// SPDX-License-Identifier: Apache-2.0
// fairway token create, list and revoke.
#ifndef FAIRWAY_CLIENT_CLI_TOKENS_H_
#define FAIRWAY_CLIENT_CLI_TOKENS_H_

#include <chrono>
#include <string>
#include <string_view>

#include "base/status.h"
#include "fairway/v1/admin.pb.h"

namespace fairway {

// argv[1] is the verb. Returns the exit code.
int RunToken(int argc, const char* const* argv);

// "30d", "12h", "45m", "10s". INVALID_ARGUMENT: anything else, or not 1 s to 36500 days.
absl::StatusOr<std::chrono::seconds> ParseLifetime(std::string_view text);

// A line for each token, below a line of titles. `now`: for what has expired.
std::string TokensText(const v1::ListTokensResponse& tokens, std::chrono::sys_seconds now);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_TOKENS_H_
