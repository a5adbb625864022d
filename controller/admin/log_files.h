// SPDX-License-Identifier: Apache-2.0
// The log files of a cluster's processes: <directory>/<process>.log.
#ifndef FAIRWAY_CONTROLLER_ADMIN_LOG_FILES_H_
#define FAIRWAY_CONTROLLER_ADMIN_LOG_FILES_H_

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace fairway {

// Returns (process, line), oldest first, at most `max_lines` of each process (empty `process`: of
// all processes). Blocks on the disk. FAILED_PRECONDITION: no directory was configured. NOT_FOUND:
// there is no such process; the text names the known ones.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ReadLogs(
    const std::string& directory, const std::string& process, int max_lines);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_ADMIN_LOG_FILES_H_
