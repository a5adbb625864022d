// SPDX-License-Identifier: Apache-2.0
// Reads log files in folders of other users, for `fairway diagnose`, which root may run.
#ifndef FAIRWAY_CLIENT_CLI_LOG_FILES_H_
#define FAIRWAY_CLIENT_CLI_LOG_FILES_H_

#include <string>

#include "base/status.h"

namespace fairway {

// The ends of the latest 20 files NAME.log of a folder, one behind the other. Whoever may write in
// that folder cannot make this read another file: no link is followed there, and only regular files
// that have no second name are opened. On the way to the folder a link is followed if only root or
// this user can have made it. NOT_FOUND: it has no NAME.log. PERMISSION_DENIED: such a link.
// UNAVAILABLE: it cannot be read.
absl::StatusOr<std::string> LogsIn(const std::string& folder);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_LOG_FILES_H_
