// SPDX-License-Identifier: Apache-2.0
// Planted mistakes of the log: test-only switches that break one rule each, so that the model test
// (log_model_test.cc) can prove that it would find them. As base/planted.h, but found by the model
// and not by the simulation, which does not run the log yet.
#ifndef FAIRWAY_LOG_PLANTED_H_
#define FAIRWAY_LOG_PLANTED_H_

namespace fairway {

enum class LogMistake {
  kNone,
  kOldVersionCounts,       // merger: a report of an older version counts
  kReplaySkipped,          // outbox: what was sent on a link that broke counts as delivered
  kReplayRunsAgain,        // follower: hands on entries that it has handed on before
  kConcludedEarly,         // merger: one of the children that an entry concerns is enough
  kStaleSet,               // tree: a new version keeps who a set concerned in the old one
  kAbsentChildEnded,       // head: an entry does not concern a child whose link is cut
  kForeignReportBelieved,  // merger: a number that does not concern the child, or was not sent
};

#ifdef FAIRWAY_PLANTED_BUGS
inline LogMistake g_planted_log_mistake = LogMistake::kNone;
inline bool Planted(LogMistake mistake) { return g_planted_log_mistake == mistake; }
#else
constexpr bool Planted(LogMistake) { return false; }
#endif

}  // namespace fairway

#endif  // FAIRWAY_LOG_PLANTED_H_
