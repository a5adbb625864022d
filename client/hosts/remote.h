// SPDX-License-Identifier: Apache-2.0
// The text of remote.sh, which the build puts into the program.
#ifndef FAIRWAY_CLIENT_HOSTS_REMOTE_H_
#define FAIRWAY_CLIENT_HOSTS_REMOTE_H_

#include <string_view>

namespace fairway {

extern const std::string_view kRemoteScript;

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_HOSTS_REMOTE_H_
