// SPDX-License-Identifier: Apache-2.0
// Who waits for what workers have logged (docs/design/0088-logs.md).
#ifndef FAIRWAY_CONTROLLER_DAEMON_WORKER_LINES_H_
#define FAIRWAY_CONTROLLER_DAEMON_WORKER_LINES_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace fairway {

// The last lines of a worker's daemon and of its children.
struct WorkerTail {
  std::string host;
  std::string text;    // whole lines, without secrets
  bool older = false;  // there were lines before these, which the worker does not keep
};
using WorkerTailDone = std::function<void(absl::StatusOr<WorkerTail>)>;

// One question at a time is under way to a worker, also if nobody waits for its answer any more: so
// a worker that was stopped for long has one to answer. All who ask meanwhile share that answer.
// How many may wait is their door's to say.
//
// Owned by WorkerHub. Loop-confined.
class WorkerLines {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kAnswerWait{3000};

  // Returns the number of the question to send; 0: one is under way. `who`: "worker w0 (host h, pid
  // 7)", for errors. `done` comes once, never within this call.
  uint64_t Ask(const std::string& worker, std::string who, Time now, WorkerTailDone done);
  // Answers to other questions than the one that is under way are ignored.
  void Answered(const std::string& worker, uint64_t id, const WorkerTail& tail);
  // Its link has ended.
  void Gone(const std::string& worker);
  // Those who have waited for kAnswerWait wait no longer.
  void Tick(Time now);

 private:
  struct Waiter {
    Time until;
    WorkerTailDone done;
  };
  struct Question {
    uint64_t id = 0;
    std::string who;
    std::vector<Waiter> waiters;  // those who asked first are first
  };
  uint64_t next_ = 1;
  std::map<std::string, Question> questions_;  // that are under way, by worker
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_WORKER_LINES_H_
