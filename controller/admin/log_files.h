// SPDX-License-Identifier: Apache-2.0
// The log files of a cluster's processes: <directory>/<process>.log.
#ifndef FAIRWAY_CONTROLLER_ADMIN_LOG_FILES_H_
#define FAIRWAY_CONTROLLER_ADMIN_LOG_FILES_H_

#include <string>
#include <string_view>
#include <vector>

namespace fairway {

// The last lines of a text.
struct LastLines {
  std::vector<std::string> lines;  // oldest first
  bool older = false;              // as LastLinesOf says
};

// At most `max_lines` of them. `older`: there were lines before the text. If lines of the text are
// left out, the result is not `older`: whoever wants them asks for more.
LastLines LastLinesOf(std::string_view text, size_t max_lines, bool older);

// The processes that have a file in the directory, in order; none if there is no directory. Blocks
// on the disk.
std::vector<std::string> ProcessesIn(const std::string& directory);

std::string LogFileOf(const std::string& directory, const std::string& process);

// Those of the file, of the last 4 MiB at most; without secrets. `process` is one of ProcessesIn.
// Blocks on the disk.
LastLines ReadLog(const std::string& directory, const std::string& process, size_t max_lines);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_ADMIN_LOG_FILES_H_
