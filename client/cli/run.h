// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CLI_RUN_H_
#define FAIRWAY_CLIENT_CLI_RUN_H_

namespace fairway {

// `fairway run FILE`: runs a dataflow program on a cluster. argv[0] is the command. Returns the
// exit code.
int RunProgram(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_RUN_H_
