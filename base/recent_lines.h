// SPDX-License-Identifier: Apache-2.0
// What a daemon has logged lately, in its memory: so that it can be shown wherever the daemon's
// standard error goes.
#ifndef FAIRWAY_BASE_RECENT_LINES_H_
#define FAIRWAY_BASE_RECENT_LINES_H_

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

namespace fairway {

// The last lines of a stream of text. Takes twice kBytes of memory at most. Thread-safe.
class RecentLines {
 public:
  static constexpr size_t kBytes = size_t{256} << 10;
  static constexpr size_t kLongestLine = size_t{16} << 10;  // longer ones are cut

  // `line` has no newline.
  void Add(std::string_view line);

  struct Tail {
    std::string text;    // whole lines, each with its newline; at most kBytes
    bool older = false;  // there were lines before these
  };
  Tail Get() const;

 private:
  mutable std::mutex mutex_;
  std::string text_;    // guarded by mutex_
  bool older_ = false;  // guarded by mutex_: something was before `text_`
};

}  // namespace fairway

#endif  // FAIRWAY_BASE_RECENT_LINES_H_
