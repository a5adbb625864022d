// SPDX-License-Identifier: Apache-2.0
// For tests of fairway-worker: real worker processes, and a controller that the test plays over
// real links.
#ifndef FAIRWAY_TESTS_INTEGRATION_WORKER_HARNESS_H_
#define FAIRWAY_TESTS_INTEGRATION_WORKER_HARNESS_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "async/event_loop.h"
#include "core/device.h"
#include "fairway/v1/link.pb.h"
#include "graph/callback.h"
#include "graph/plan.h"
#include "transport/data_plane.h"
#include "transport/link.h"

namespace fairway::test {

// Whether the process exists and is no zombie.
bool Alive(pid_t pid);
// The processes whose command line contains `marker`.
std::vector<pid_t> ProcessesWith(const std::string& marker);

// A fairway-worker that the test started. It is killed, with its children, on destruction.
class WorkerProcess {
 public:
  explicit WorkerProcess(const std::vector<std::string>& flags);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int number) const;
  // Acts as if the parent had died.
  void CloseLifePipe();
  // Its wait status once it has ended; nullopt before.
  std::optional<int> Ended();
  // The log of the worker and its children so far.
  std::string Log() const;

 private:
  pid_t pid_ = 0;
  int life_ = -1;
  std::string log_path_;
  std::optional<int> status_;
};

// One registration of an executor.
// The id that the controller gives every executor.
inline constexpr uint32_t kExecutorId = 1;

struct SeenExecutor {
  std::unique_ptr<Link> link;
  v1::RegisterExecutor registration;
  ExecutorSpec spec;
  v1::Heartbeat heartbeat;  // the latest one
  int heartbeats = 0;
  bool closed = false;
  absl::Status how;
  Report report;  // all reports so far; finished_through is the latest
  std::vector<CallbackCall> callbacks;
  std::vector<uint64_t> given_up;  // calls
  uint64_t entries = 0;            // of the log, that were sent

  void Answer(const CallbackAnswer& answer) const;

  // As an entry of the log for executor `to`.
  void Send(Command command, uint32_t to = kExecutorId);
  bool Finished(uint64_t seq) const;
  // OK: there is no failure.
  absl::Status Failure(uint64_t seq) const;
  const Report::Installed* Installed(ExecutableId id) const;
  // nullptr: no bytes came.
  std::shared_ptr<const Blob> Inlined(ShardRef ref) const;
};

struct SeenSupervisor {
  std::unique_ptr<Link> link;
  v1::RegisterWorker registration;
  std::vector<v1::ExecutorDied> deaths;
  std::map<uint64_t, v1::LinkCompileResponse> compiled;
  int heartbeats = 0;
  bool closed = false;

  void Send(const v1::FromController& message) const;
};

// Answers registrations and heartbeats, and remembers all other messages. Everything happens inside
// RunUntil, on the test's thread.
class PlayedController {
 public:
  explicit PlayedController(int port = 0);
  ~PlayedController();

  int port() const { return server_->port(); }
  std::string address() const;
  Incarnation incarnation() const { return incarnation_; }
  const PortKey& data_key() const { return data_key_; }
  EventLoop& loop() { return *loop_; }
  DataPlane& data() { return *data_; }

  // Runs the loop until `holds` is true. Returns false after two minutes.
  bool Until(std::function<bool()> holds);
  // Waits for the `count`-th registration of an executor of `worker`, and for its first heartbeat.
  SeenExecutor* WaitForExecutor(const std::string& worker, size_t count = 1);
  SeenSupervisor* WaitForSupervisor(const std::string& worker, size_t count = 1);
  // Compiles `program` at that worker.
  v1::LinkCompileResponse Compile(SeenSupervisor& at, const std::string& program,
                                  const v1::CompileOptions& options);
  // Pulls a shard from an executor.
  absl::StatusOr<std::shared_ptr<Blob>> Fetch(const SeenExecutor& from, TransferId transfer,
                                              int32_t index, int64_t bytes);
  absl::StatusOr<std::shared_ptr<Blob>> FetchWith(const Ticket& ticket, const SeenExecutor& from,
                                                  TransferId transfer, int32_t index,
                                                  int64_t bytes);

  // The shards that executors may pull from this controller.
  std::map<std::pair<TransferId, int32_t>, std::shared_ptr<const Blob>> uploads;
  // Whether registrations are ended with a Fence.
  bool fence_everybody = false;
  std::vector<std::unique_ptr<SeenExecutor>> executors;
  std::vector<std::unique_ptr<SeenSupervisor>> supervisors;

 private:
  struct NewPeer;
  void Accept(std::unique_ptr<Link> link);
  void OnFirst(NewPeer& peer, Frame frame);
  void OnExecutorFrame(SeenExecutor& from, Frame frame);
  void OnSupervisorFrame(SeenSupervisor& from, Frame frame);

  std::unique_ptr<EventLoop> loop_ = std::make_unique<EventLoop>();
  Incarnation incarnation_;
  const PortKey data_key_ = RandomPortKey();
  std::unique_ptr<DataPlane> data_;
  std::unique_ptr<LinkServer> server_;
  std::vector<std::unique_ptr<NewPeer>> new_peers_;
  uint64_t next_compile_ = 1;
};

}  // namespace fairway::test

#endif  // FAIRWAY_TESTS_INTEGRATION_WORKER_HARNESS_H_
