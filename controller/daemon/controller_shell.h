// SPDX-License-Identifier: Apache-2.0
// The shell around the controller's core (controller/cluster): connects it with workers, with the
// data plane and with time. Front doors use cluster() and compiler().
#ifndef FAIRWAY_CONTROLLER_DAEMON_CONTROLLER_SHELL_H_
#define FAIRWAY_CONTROLLER_DAEMON_CONTROLLER_SHELL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "async/blocking_pool.h"
#include "async/event_loop.h"
#include "base/status.h"
#include "controller/callbacks/router.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/status.h"
#include "controller/compile/compile_service.h"
#include "controller/daemon/program_packer.h"
#include "controller/daemon/running_clock.h"
#include "controller/daemon/snapshot.h"
#include "controller/daemon/worker_hub.h"
#include "controller/events/event_ring.h"
#include "transport/data_plane.h"
#include "transport/link.h"

namespace fairway {

struct ControllerOptions {
  std::string bind = "127.0.0.1";
  int link_port = 0;  // 0: any free one
  int data_port = 0;
  std::chrono::milliseconds executor_deadline{60000};
  std::chrono::milliseconds link_grace{3000};
  int relay_fan_out = 0;  // 0: no relays
  std::chrono::milliseconds island_timeout{60000};
  std::chrono::milliseconds forget_after{3600000};  // 0: never
  std::string log_dir;
  int64_t launcher_pid = 0;
  Spool spool;  // for bytes that clients fetch
  ClusterOptions cluster;
  std::shared_ptr<TlsIdentity> tls;  // of links and the data port; nullptr: without TLS
  decltype(WorkerHubOptions::renew) renew;
  NoteEvent note;  // hears of islands and workers; empty: nobody does
};

// Loop-confined.
class ControllerShell final : public ClusterActions,
                              public CompileBackend,
                              private WorkerHubEvents {
 public:
  // Listens for workers. ALREADY_EXISTS: a port is taken; the text names flag and port.
  static absl::StatusOr<std::unique_ptr<ControllerShell>> Start(EventLoop& loop,
                                                                ControllerOptions options);
  ~ControllerShell() override;

  Cluster& cluster() { return *cluster_; }
  CompileService& compiler() { return *compiler_; }
  // `changed` is called with the number of islands that are up, whenever it has changed.
  void set_on_islands(std::function<void(size_t up)> changed) { on_islands_ = std::move(changed); }
  // Takes the calls of running programs, and is told the time; nullptr: such calls fail.
  void set_callbacks(CallbackRouter* callbacks) { callbacks_ = callbacks; }
  // As in CallbackActions. Results too large for the link are served on the data port.
  void AnswerCallback(ExecutorId executor, CallbackAnswer answer);
  void FetchArguments(ExecutorId executor, const CallbackCall& call);
  // As in ControllerOptions, from the next tick on.
  void set_timeouts(std::chrono::milliseconds island_timeout,
                    std::chrono::milliseconds forget_after) {
    options_.island_timeout = island_timeout;
    options_.forget_after = forget_after;
  }
  void set_http_address(std::string address) { http_address_ = std::move(address); }

  // As WorkerHub::RestartExecutor.
  absl::StatusOr<Incarnation> RestartExecutor(const std::string& worker,
                                              const std::string& reason) {
    return hub_->RestartExecutor(worker, reason);
  }
  // As of WorkerHub.
  std::set<std::string> Workers() const { return hub_->Workers(); }
  void AskRecentLines(const std::string& worker, WorkerTailDone done) {
    hub_->AskRecentLines(worker, std::move(done));
  }
  // Ends all connections of a worker whose certificates were revoked. Its executor is lost.
  void EndWorker(const std::string& worker, const std::string& why);
  // Tells all workers to stop.
  void StopWorkers(const std::string& reason) { hub_->StopWorkers(reason); }

  int link_port() const { return link_server_->port(); }
  int data_port() const { return data_port_; }
  size_t islands_up() const { return islands_up_; }
  ControllerSnapshot Snapshot() const;

  // ClusterActions
  void Send(ExecutorId executor, Command command, std::shared_ptr<MemoryBudget> payer) override;
  void SendAll(ExecutorId first, ExecutorId last, Command command,
               std::shared_ptr<MemoryBudget> payer) override;
  void OfferUpload(TransferId transfer, std::vector<BytesRef> blobs) override;
  void WithdrawUpload(TransferId transfer) override;
  void PullToHost(TransferId transfer, ExecutorId executor, int32_t index, int64_t bytes) override;
  void WantTurn() override;
  void Discard(std::shared_ptr<const void> garbage) override;

  // CompileBackend
  void Compile(SessionId session, IslandId island, std::shared_ptr<const std::string> program,
               v1::CompileOptions options,
               std::function<void(absl::StatusOr<CompiledCode>)> done) override;

 private:
  using Clock = std::chrono::steady_clock;

  ControllerShell(EventLoop& loop, ControllerOptions options);
  absl::Status Listen();
  // Asks the executor's data port, as this controller.
  void Pull(const ExecutorSpec& from, TransferId transfer, int32_t index, int64_t bytes,
            DataPlane::PullDone done);

  // WorkerHubEvents
  absl::StatusOr<ExecutorId> OnExecutorUp(const ExecutorSpec& spec) override;
  void OnExecutorLost(ExecutorId executor, const absl::Status& cause) override;
  void OnCrowded(ExecutorId executor) override;
  void OnReport(ExecutorId executor, Incarnation incarnation, Report report) override;
  void OnLaunchesEnded(std::vector<NodeId> nodes) override;

  void OnCallback(ExecutorId executor, CallbackCall call) override;
  void OnCallbackGivenUp(ExecutorId executor, uint64_t call) override;
  void ServeResult(PullRequest request, DataPlane::Answer answer);

  int64_t UptimeMs() const;
  // Milliseconds during which this process ran.
  int64_t NowMs() const;
  std::chrono::milliseconds TickInterval() const;
  void Tick();
  void AskRelaysLater();
  void WatchIslands();
  // Tells of executors that have become silent, or go on.
  void WatchStalled();
  void Note(NewEvent event) const;
  void NoteExecutor(ExecutorId executor, std::string reason, std::string text,
                    bool warning = false) const;
  // Forgets islands that no worker has come back to and no session knows.
  void ForgetGone();
  void Forget(const IslandStatus& island, const std::string& why);
  // If all places of the executor's island are taken, and one belongs to a worker that has been
  // gone for forget_after, forgets the island so that it begins anew.
  void MakePlaceFor(const ExecutorSpec& spec);
  void Serve(PullRequest request, DataPlane::Answer answer);

  EventLoop& loop_;
  BlockingPool discards_{"fairway-discard", 1};
  BlockingPool packing_{"fairway-pack", 1};
  ProgramPacker packer_{loop_, packing_};
  ControllerOptions options_;
  const Incarnation incarnation_;
  const Clock::time_point started_;
  RunningClock clock_;
  uint64_t relays_asked_ = 0;  // how often AskRelaysLater ran
  std::shared_ptr<bool> alive_;
  std::string host_;
  std::string http_address_;
  int data_port_ = 0;

  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<WorkerHub> hub_;
  std::unique_ptr<CompileService> compiler_;
  std::unique_ptr<DataPlane> data_plane_;
  std::unique_ptr<LinkServer> link_server_;
  std::function<void(size_t)> on_islands_;
  CallbackRouter* callbacks_ = nullptr;
  // Results of callbacks for executors to pull, each once.
  struct OfferedResults {
    ExecutorId executor;
    uint64_t call = 0;
    std::vector<BytesRef> results;
  };
  std::map<TransferId, OfferedResults> results_;
  uint64_t next_results_ = 1;

  std::map<TransferId, std::vector<BytesRef>> uploads_;
  // What the shell remembers of islands and executors, until they are forgotten.
  struct IslandRecord {
    std::optional<Clock::time_point> down_since;
    std::optional<Clock::time_point> empty_since;  // without any executor
    bool given_up = false;                         // since it went down
    bool was_up = false;                           // at some time
    bool is_up = false;                            // when it was last looked at
  };
  struct ExecutorRecord {
    std::optional<Clock::time_point> gone_since;
    uint64_t fetches = 0;
  };
  std::map<IslandId, IslandRecord> islands_;
  std::map<ExecutorId, ExecutorRecord> executors_;
  std::set<ExecutorId> stalled_;                 // as was told
  std::map<IslandId, absl::Status> forgetting_;  // forgotten islands of which something is left
  size_t islands_up_ = 0;
  uint64_t inline_uploaded_bytes_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_CONTROLLER_SHELL_H_
