// SPDX-License-Identifier: Apache-2.0
// The commands that look at a running cluster or end it, and the one that needs none. argv[0] is
// the command; each function returns the exit code.
#ifndef FAIRWAY_CLIENT_CLI_COMMANDS_H_
#define FAIRWAY_CLIENT_CLI_COMMANDS_H_

namespace fairway {

int RunDown(int argc, const char* const* argv);
// Returns when the worker's island is up again.
int RunRestart(int argc, const char* const* argv);
int RunStatus(int argc, const char* const* argv);
// Becomes the benchmark argv[1], a program beside this one. Returns only if there is none.
int RunBench(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_COMMANDS_H_
