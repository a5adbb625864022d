// SPDX-License-Identifier: Apache-2.0
// The method of the Admin service that gives the last lines of processes' logs
// (docs/design/0088-logs.md).
#ifndef FAIRWAY_CONTROLLER_ADMIN_LOG_STREAM_H_
#define FAIRWAY_CONTROLLER_ADMIN_LOG_STREAM_H_

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "async/blocking_pool.h"
#include "async/event_loop.h"
#include "base/recent_lines.h"
#include "controller/access/gated_methods.h"
#include "controller/daemon/worker_lines.h"

namespace fairway {

// Where the lines come from. All of it outlives the method.
struct LogSources {
  EventLoop* loop = nullptr;
  BlockingPool* disk = nullptr;        // reads log files, and leaves secrets out
  std::string directory;               // <process>.log is there; empty: there are no files
  std::shared_ptr<RecentLines> lines;  // of this process
  std::function<std::set<std::string>()> workers;  // called in the loop
  // Called in the loop; answers there, as WorkerHub::AskRecentLines does.
  std::function<void(const std::string& worker, WorkerTailDone done)> ask;
};

// Adds GetLogs. Four calls are served at one time. Each looks at one process after the other, and
// goes on when its client has taken that one's lines, so it holds those of one.
void ServeLogs(GatedMethods& methods, LogSources sources);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_ADMIN_LOG_STREAM_H_
