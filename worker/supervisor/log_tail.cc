// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/log_tail.h"

#include <utility>

namespace fairway {

void LogTail::Append(std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view part = text.substr(0, end);
    if (open_.size() < kMaxLine) open_.append(part.substr(0, kMaxLine - open_.size()));
    if (end == std::string_view::npos) return;
    EndLine();
    text.remove_prefix(end + 1);
  }
}

void LogTail::End() {
  if (!open_.empty()) EndLine();
}

void LogTail::EndLine() {
  if (on_line_) on_line_(open_);
  lines_.push_back(std::exchange(open_, {}));
  if (lines_.size() > limit_) lines_.pop_front();
}

std::vector<std::string> LogTail::Lines() const {
  std::vector<std::string> out(lines_.begin(), lines_.end());
  if (!open_.empty()) out.push_back(open_);
  if (out.size() > limit_) out.erase(out.begin());
  return out;
}

}  // namespace fairway
