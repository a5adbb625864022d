// SPDX-License-Identifier: Apache-2.0
#include "base/recent_lines.h"

namespace fairway {

void RecentLines::Add(std::string_view line) {
  const std::lock_guard lock(mutex_);
  text_.append(line.substr(0, kLongestLine));
  text_ += '\n';
  if (text_.size() <= 2 * kBytes - kLongestLine - 1) return;
  // Rarely, so that a line costs little.
  text_.erase(0, text_.size() - kBytes);
  text_.erase(0, text_.find('\n') + 1);
  older_ = true;
}

RecentLines::Tail RecentLines::Get() const {
  const std::lock_guard lock(mutex_);
  if (text_.size() <= kBytes) return {text_, older_};
  // Behind the first line that ends in front of the last kBytes, or at them.
  const size_t begin = text_.find('\n', text_.size() - kBytes - 1) + 1;
  return {text_.substr(begin), true};
}

}  // namespace fairway
