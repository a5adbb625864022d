// SPDX-License-Identifier: Apache-2.0
// The commands that look at a running cluster or end it. argv[0] is the command; each returns the
// exit code.
#ifndef FAIRWAY_CLIENT_CLI_COMMANDS_H_
#define FAIRWAY_CLIENT_CLI_COMMANDS_H_

namespace fairway {

int RunDown(int argc, const char* const* argv);
int RunStatus(int argc, const char* const* argv);
int RunLogs(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_COMMANDS_H_
