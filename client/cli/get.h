// SPDX-License-Identifier: Apache-2.0
// `fairway get`: the objects of a cluster, by kind. argv[0] is the command; the function returns
// the exit code.
#ifndef FAIRWAY_CLIENT_CLI_GET_H_
#define FAIRWAY_CLIENT_CLI_GET_H_

namespace fairway {

int RunGet(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_GET_H_
