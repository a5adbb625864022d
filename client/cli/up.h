// SPDX-License-Identifier: Apache-2.0
// `fairway up`: a whole cluster on this host, kept running until Ctrl-C or `fairway down`.
#ifndef FAIRWAY_CLIENT_CLI_UP_H_
#define FAIRWAY_CLIENT_CLI_UP_H_

namespace fairway {

// argv[0] is "up". Returns the exit code.
int RunUp(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_UP_H_
