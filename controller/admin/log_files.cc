// SPDX-License-Identifier: Apache-2.0
#include "controller/admin/log_files.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>

namespace fairway {
namespace {

// The most bytes that are read, from the end of a file.
constexpr std::streamoff kMaxTail = 4 << 20;

std::deque<std::string> Tail(const std::filesystem::path& path, size_t max_lines) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  std::deque<std::string> lines;
  if (!in) return lines;
  const std::streamoff size = in.tellg();
  const std::streamoff begin = std::max<std::streamoff>(0, size - kMaxTail);
  in.seekg(begin);
  std::string line;
  if (begin > 0) std::getline(in, line);  // most likely the rest of a line
  while (std::getline(in, line)) {
    lines.push_back(line);
    if (lines.size() > max_lines) lines.pop_front();
  }
  return lines;
}

}  // namespace

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ReadLogs(
    const std::string& directory, const std::string& process, int max_lines) {
  if (directory.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "the controller keeps no log files (it was started without --log-dir)");
  }
  std::vector<std::string> known;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".log") known.push_back(entry.path().stem().string());
  }
  std::sort(known.begin(), known.end());
  if (!process.empty() && std::find(known.begin(), known.end(), process) == known.end()) {
    return Error(absl::StatusCode::kNotFound, "no process '{}'; there are: {}", process,
                 fmt::join(known, ", "));
  }
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& name : known) {
    if (!process.empty() && name != process) continue;
    for (std::string& line :
         Tail(directory + "/" + name + ".log", static_cast<size_t>(std::max(max_lines, 0)))) {
      out.emplace_back(name, std::move(line));
    }
  }
  return out;
}

}  // namespace fairway
