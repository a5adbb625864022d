// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_SUPERVISOR_LOG_TAIL_H_
#define FAIRWAY_WORKER_SUPERVISOR_LOG_TAIL_H_

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fairway {

// The last lines of a stream of text. An unfinished line counts. Not thread-safe.
class LogTail {
 public:
  static constexpr size_t kMaxLine = 2000;  // bytes; longer ones are cut

  // `on_line` hears of each line when it has ended.
  explicit LogTail(size_t lines, std::function<void(std::string_view)> on_line = nullptr)
      : limit_(lines), on_line_(std::move(on_line)) {}
  void Append(std::string_view text);
  // The stream has ended, and so has an unfinished line.
  void End();
  std::vector<std::string> Lines() const;

 private:
  void EndLine();

  const size_t limit_;
  const std::function<void(std::string_view)> on_line_;
  std::deque<std::string> lines_;
  std::string open_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_SUPERVISOR_LOG_TAIL_H_
