// SPDX-License-Identifier: Apache-2.0
// Who was refused, which tokens were used, and what admins did: one line of JSON each, for people
// who look into it afterwards.
#ifndef FAIRWAY_IDENTITY_AUDIT_LOG_H_
#define FAIRWAY_IDENTITY_AUDIT_LOG_H_

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/status.h"

namespace fairway {

// How many lines may be written: for each of many, and for all together. Each grows by its rate
// until it is full. Pure; not thread-safe. What it holds is bounded, however many there are.
class LineBudget {
 public:
  using Time = std::chrono::sys_time<std::chrono::milliseconds>;
  struct Rate {
    int full = 0;
    int per_second = 0;
  };
  // More than these share one part.
  static constexpr size_t kMostParts = 1024;

  LineBudget(Rate each, Rate all) : each_(each), all_(all) {}
  // Whether `whose` may have a line at `now`; counts it if so.
  bool Take(const std::string& whose, Time now);
  size_t num_parts() const { return parts_.size(); }

 private:
  // Thousandths of a line, and when it had so many.
  struct Part {
    int64_t left = 0;
    Time at{};
  };
  static void Fill(Part& part, Rate rate, Time now);

  const Rate each_;
  const Rate all_;
  Part whole_;
  bool begun_ = false;
  std::map<std::string, Part> parts_;
};

enum class AuditEvent : uint8_t { kRefused, kUsed, kAdmin };

struct AuditLine {
  AuditEvent event;
  std::string_view verb;
  std::string_view host;
  int64_t token = 0;  // 0: none that is known
  std::string_view role;
  std::string_view tenant;
  std::string object = {};  // what an admin's verb was about
  absl::Status status = {};
};

// Files of this user alone in one directory: refused.log, used.log and admin.log, so that none of
// them pushes lines of another one out. A file of 16 MiB becomes NAME.log.1, that one .2, and so on
// to .3. No secret comes here. Thread-safe.
class AuditLog {
 public:
  static constexpr size_t kFileBytes = size_t{16} << 20;
  static constexpr int kOldFiles = 3;

  // Makes `directory` unless it is there. UNAVAILABLE: it cannot be used.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& directory,
                                                        size_t file_bytes = kFileBytes);
  ~AuditLog();  // writes what was given
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Never blocks. A line above the rate, or that the disk does not take, is left out, and the next
  // one of its event says how many were.
  void Write(const AuditLine& line, LineBudget::Time now);
  // Returns when all lines so far are in the files, or were left out. Blocks.
  void Flush();

 private:
  static constexpr size_t kEvents = 3;
  static constexpr size_t kMostWaiting = 4096;  // lines
  struct Waiting {
    AuditEvent event;
    int64_t left_out = 0;  // which the text says
    std::string text;
  };

  AuditLog(std::string directory, size_t file_bytes);
  void WriteAll();
  bool Append(AuditEvent event, const std::string& text);
  std::string PathOf(AuditEvent event, int number) const;

  const std::string directory_;
  const size_t file_bytes_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;                  // guarded by mu_
  bool writing_ = false;                         // guarded by mu_
  bool ending_ = false;                          // guarded by mu_
  bool failing_ = false;                         // guarded by mu_; the disk took no line
  std::array<int64_t, kEvents> left_out_{};      // guarded by mu_; since the last line
  std::array<LineBudget, kEvents + 2> budgets_;  // guarded by mu_
  std::thread writer_;
};

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_AUDIT_LOG_H_
