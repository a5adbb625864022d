// SPDX-License-Identifier: Apache-2.0
// Planted mistakes of the log, like base/planted.h: test-only switches that each break one rule.
// The model test (log_model_test.cc) must find all of them. The simulation finds those that need no
// children that lie (kSimulatedMistakes).
#ifndef FAIRWAY_LOG_PLANTED_H_
#define FAIRWAY_LOG_PLANTED_H_

#include <array>
#include <string_view>
#include <utility>

namespace fairway {

enum class LogMistake {
  kNone,
  kOldVersionCounts,       // merger: a report of an older version counts
  kReplaySkipped,          // outbox: what was sent on a link that broke counts as delivered
  kReplayRunsAgain,        // follower: returns entries that it has returned before
  kConcludedEarly,         // merger: one of the children that an entry concerns is enough
  kStaleSet,               // tree: a new version keeps a span's children of the old one
  kAbsentChildEnded,       // head: an entry does not concern a child whose link is cut
  kForeignReportBelieved,  // merger: a child reports what does not concern it, or was not sent
  kReportedOnce,           // follower: does not report anew in a new version
};

inline constexpr std::array kLogMistakes = {
    std::pair{LogMistake::kOldVersionCounts, std::string_view("old_version_counts")},
    std::pair{LogMistake::kReplaySkipped, std::string_view("replay_skipped")},
    std::pair{LogMistake::kReplayRunsAgain, std::string_view("replay_runs_again")},
    std::pair{LogMistake::kConcludedEarly, std::string_view("concluded_early")},
    std::pair{LogMistake::kStaleSet, std::string_view("stale_set")},
    std::pair{LogMistake::kAbsentChildEnded, std::string_view("absent_child_ended")},
    std::pair{LogMistake::kForeignReportBelieved, std::string_view("foreign_report_believed")},
    std::pair{LogMistake::kReportedOnce, std::string_view("reported_once")},
};
inline constexpr std::array kSimulatedMistakes = {
    LogMistake::kReplaySkipped, LogMistake::kReplayRunsAgain, LogMistake::kAbsentChildEnded,
    LogMistake::kReportedOnce};

#ifdef FAIRWAY_PLANTED_BUGS
inline LogMistake g_planted_log_mistake = LogMistake::kNone;
inline bool Planted(LogMistake mistake) { return g_planted_log_mistake == mistake; }
#else
constexpr bool Planted(LogMistake) { return false; }
#endif

}  // namespace fairway

#endif  // FAIRWAY_LOG_PLANTED_H_
