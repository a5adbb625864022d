// SPDX-License-Identifier: Apache-2.0
#include "controller/admin/log_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "base/redact.h"

namespace fairway {
namespace {

// The most bytes that are read, from the end of a file.
constexpr std::streamoff kMaxTail = 4 << 20;

}  // namespace

LastLines LastLinesOf(std::string_view text, size_t max_lines, bool older) {
  LastLines out;
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.empty()) return out;
  while (out.lines.size() < max_lines) {
    const size_t end = text.rfind('\n');
    out.lines.emplace_back(text.substr(end + 1));  // npos + 1 is 0
    if (end == std::string_view::npos) {
      out.older = older;
      break;
    }
    text = text.substr(0, end);
  }
  std::ranges::reverse(out.lines);
  return out;
}

std::vector<std::string> ProcessesIn(const std::string& directory) {
  std::vector<std::string> out;
  if (directory.empty()) return out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".log") out.push_back(entry.path().stem().string());
  }
  std::ranges::sort(out);
  return out;
}

std::string LogFileOf(const std::string& directory, const std::string& process) {
  return fmt::format("{}/{}.log", directory, process);
}

LastLines ReadLog(const std::string& directory, const std::string& process, size_t max_lines) {
  std::ifstream in(LogFileOf(directory, process), std::ios::binary | std::ios::ate);
  if (!in) return {};
  const std::streamoff size = in.tellg();
  const std::streamoff begin = std::max<std::streamoff>(0, size - kMaxTail);
  in.seekg(begin);
  std::string text(static_cast<size_t>(size - begin), '\0');
  in.read(text.data(), size - begin);
  text.resize(static_cast<size_t>(in.gcount()));
  if (begin > 0) text.erase(0, text.find('\n') + 1);  // most likely the rest of a line
  // Secrets of several lines are found in what is left out, too; but that may be much.
  const LastLines last = LastLinesOf(text, max_lines, begin > 0);
  std::string shown;
  for (const std::string& line : last.lines) shown.append(line).append("\n");
  return LastLinesOf(WithoutSecrets(shown), max_lines, last.older);
}

}  // namespace fairway
