// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CLI_STATE_ROOT_H_
#define FAIRWAY_CLIENT_CLI_STATE_ROOT_H_

#include <string>

namespace fairway {

// Where `fairway up` keeps a folder for each cluster: ${XDG_STATE_HOME:-~/.local/state}/fairway.
std::string StateRoot();

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_STATE_ROOT_H_
