// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_SUPERVISOR_LOG_TAIL_H_
#define FAIRWAY_WORKER_SUPERVISOR_LOG_TAIL_H_

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace fairway {

// The last lines of a stream of text. An unfinished line counts. Not thread-safe.
class LogTail {
 public:
  static constexpr size_t kMaxLine = 2000;  // bytes; longer ones are cut

  explicit LogTail(size_t lines) : limit_(lines) {}
  void Append(std::string_view text);
  std::vector<std::string> Lines() const;

 private:
  void EndLine();

  const size_t limit_;
  std::deque<std::string> lines_;
  std::string open_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_SUPERVISOR_LOG_TAIL_H_
