// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CLI_CHECK_CONFIG_H_
#define FAIRWAY_CLIENT_CLI_CHECK_CONFIG_H_

namespace fairway {

// `fairway config check FILE`: has each program that FILE has a table for read it, as it would at
// its start, and end. argv[0] is "config". Returns 0 if none found a fault; each fault is a line on
// standard error.
int RunConfig(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_CHECK_CONFIG_H_
