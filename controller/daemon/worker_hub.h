// SPDX-License-Identifier: Apache-2.0
// The controller's side of the links to executors and supervisors (proto/fairway/v1/link.proto):
// registration, heartbeats and deadlines, connections that break, fencing, the logs of the islands,
// and the causes of losses.
#ifndef FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_H_
#define FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "async/loop.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "controller/compile/compile_service.h"
#include "controller/daemon/island_links.h"
#include "controller/daemon/link_health.h"
#include "controller/daemon/link_traffic.h"
#include "controller/daemon/worker_counters.h"
#include "controller/daemon/worker_hub_options.h"
#include "controller/daemon/worker_lines.h"
#include "core/device.h"
#include "fairway/v1/link.pb.h"
#include "graph/callback.h"
#include "graph/plan.h"
#include "transport/link.h"
#include "transport/strangers.h"
#include "wire/limits.h"

namespace fairway {

// Loop-confined.
class WorkerHub {
 public:
  using Clock = std::chrono::steady_clock;

  // `now`: a clock that stands still while this process does not run (running_clock.h), so that
  // messages are read before deadlines pass. Tests give a virtual one.
  WorkerHub(Loop& loop, WorkerHubOptions options, WorkerHubEvents* events,
            std::function<Clock::time_point()> now);
  ~WorkerHub();
  WorkerHub(const WorkerHub&) = delete;
  WorkerHub& operator=(const WorkerHub&) = delete;

  // A new connection to the link port.
  void Accept(std::unique_ptr<Link> link);
  // Applies passed deadlines and sends entries that linger. Call it several times per deadline.
  void Tick();
  // As IslandLinks::AskRelays, of all islands.
  void AskRelays(std::chrono::nanoseconds late);

  // Appends the command to its island's log, which is sent when control returns to the loop. A
  // PREPARE of a launch and frees let the executor begin nothing; they leave at the next Tick at
  // the latest. Drops the command if the executor is not registered: its loss is then on its way to
  // OnExecutorLost. The core must refuse (RESOURCE_EXHAUSTED) what would need a command that is too
  // long for a frame. If one comes all the same, neither it nor anything still unsent is sent: the
  // executor's registration ends, and the cause names the sizes. The command's bytes are taken from
  // `payer` until the executor has reported that it has the command, or is lost.
  void Send(ExecutorId executor, Command command, std::shared_ptr<MemoryBudget> payer = nullptr);
  // The same for all executors of an island from `first` to `last`, which take spans
  // (ExecutorSpec): one entry of its log. Of a LaunchAll, OnLaunchesEnded tells the end.
  void SendAll(ExecutorId first, ExecutorId last, Command command,
               std::shared_ptr<MemoryBudget> payer = nullptr);

  // Sends the answer to a callback at once. Drops it if the executor is not registered. If it is
  // too long, the program gets RESOURCE_EXHAUSTED instead.
  void Answer(ExecutorId executor, const CallbackAnswer& answer);

  // Compiles at a worker of `island` that has a compiler and whose executor is up or is coming
  // back. UNAVAILABLE: no such worker is connected, or it went away. RESOURCE_EXHAUSTED: a link
  // cannot carry the program. `request`: made by PackCompileRequest.
  void Compile(const std::string& island, Frame request,
               std::function<void(absl::StatusOr<CompiledCode>)> done);

  // For an operator: ends all executors of the worker's island and declares them lost. Their
  // supervisors start them anew. Returns the incarnation that the worker's executor had. Until all
  // of these have come back, a further call for one of them ends nothing and returns the same.
  // NOT_FOUND: no executor of such a worker has registered. FAILED_PRECONDITION: it is down, and
  // its supervisor is away.
  absl::StatusOr<Incarnation> RestartExecutor(const std::string& worker, const std::string& reason);

  // Ends all executors of the island that are up, as an operator's restart does.
  void EndIsland(const std::string& island, const std::string& reason);
  // Removes the record of an executor. Does nothing while it is up.
  void Forget(ExecutorId executor);

  // Ends all connections of the worker. Its executor is lost, as if its host had died.
  void EndWorker(const std::string& worker, const std::string& why);
  // Something of the worker's revocation has changed: all who take connections of workers hear it.
  void TellRevocation(const std::string& worker);

  // Tells all workers that the cluster ends.
  void StopWorkers(const std::string& reason);

  // Whether the executor is registered. Its connection may have broken just now.
  bool Connected(ExecutorId executor) const;
  // The spec of the latest registration. nullptr: never registered, or forgotten since.
  const ExecutorSpec* Spec(ExecutorId executor) const;
  std::set<std::string> Supervisors() const;
  // Those and the workers of all executors that are not forgotten.
  std::set<std::string> Workers() const;
  // Gives the last lines that the worker's daemon has logged to `done`, once, perhaps within this
  // call. An error has one line that names the worker. FAILED_PRECONDITION: it is not connected, or
  // of an older version. ABORTED: it is silent, or went away.
  void AskRecentLines(const std::string& worker, WorkerTailDone done);
  // Whether a worker of the island is connected, with its executor or without.
  bool HasWorker(const std::string& island) const;
  // Executors that have been silent for some seconds, and for how long.
  std::map<ExecutorId, std::chrono::milliseconds> Stalled() const;
  WorkersSaid Said() const;
  // How executors keep up with the logs of their islands.
  std::map<ExecutorId, LinkHealth> Health() const;
  // Bytes that executors pulled from each other, by island (from, to), as of their last heartbeats.
  // Beyond kMostPairs, what comes from further islands is counted as of kOtherIslands.
  static constexpr size_t kMostPairs = 4096;
  static constexpr char kOtherIslands[] = "(others)";
  const std::map<std::pair<std::string, std::string>, uint64_t>& transferred_bytes() const {
    return transferred_bytes_;
  }
  // Log frames sent; reports and log reports received.
  struct Traffic {
    LinkTraffic sent, received;
  };
  Traffic traffic() const { return {sent_, received_}; }
  uint64_t commands_sent() const { return commands_sent_; }
  // Connections that broke and came back in time.
  uint64_t links_resumed() const { return links_resumed_; }
  // Entries of the logs that are not concluded.
  size_t open_entries() const;
  // Relays of the islands' logs, the deepest tree, and how often an end of one was given another
  // place because of trouble.
  struct Relays {
    size_t count = 0;
    int depth = 0;
    uint64_t troubles = 0;
    uint64_t moves = 0;  // executors that got another parent
  };
  Relays relays() const;
  // The relays that are connected, by worker.
  std::vector<RelayStatus> RelayTree() const;
  // INTERNAL: a log breaks one of its invariants, or others are charged for the logs' entries than
  // `charged` bytes. For tests.
  absl::Status CheckInvariants(std::optional<int64_t> charged = std::nullopt) const;

 private:
  enum class Role : uint8_t { kNew, kExecutor, kSupervisor, kPulse, kRelay, kDone };
  struct Peer;
  struct Executor;
  struct Island;
  struct Supervisor;
  struct RelayRecord;
  struct Compilation;
  struct Early {
    ExecutorId executor;             // or the first one
    std::optional<ExecutorId> last;  // of SendAll
    Command command;
    std::shared_ptr<MemoryBudget> payer;
  };
  struct PulseRecord {
    uint64_t peer = 0;
    std::string host;
    int64_t pid = 0;
  };

  void OnFrame(Peer& peer, Frame frame);
  void OnClosed(Peer& peer, const absl::Status& status);
  // `code_crc`: CRC-32C of a compile response's code, if it is known.
  void OnMessage(Peer& peer, v1::ToController& message, const Frame& frame,
                 std::optional<uint32_t> code_crc);
  void Malformed(Peer& peer, const absl::Status& status);
  // Has another thread parse it. Messages behind it may overtake it.
  void TakeLarge(const Peer& peer, Frame frame);
  // The worker that a first message is about; nullopt: it is none, or its executor is not known.
  std::optional<std::string> WorkerOf(const v1::ToController& message) const;
  void OnFirst(Peer& peer, const v1::ToController& message);
  void OnRegisterExecutor(Peer& peer, const v1::RegisterExecutor& message);
  // An executor whose connection broke has another one.
  void OnResumeExecutor(Peer& peer, const v1::ResumeExecutor& message);
  // Whether it may go on. An error says why not.
  absl::StatusOr<Executor*> ToResume(const v1::ResumeExecutor& message);
  void OnRegisterWorker(Peer& peer, const v1::RegisterWorker& message);
  void OnPulse(Peer& peer, const v1::Pulse& pulse);
  void OnRenewCertificate(Peer& peer, const v1::RenewCertificate& message);
  // All revocations, to a peer that has just registered, or is back.
  void TellRevocations(Peer& peer);
  void OnRegisterRelay(Peer& peer, const v1::RegisterRelay& message);
  void OnRelayMessage(Peer& peer, const v1::ToController& message);
  void RelayEnded(const Peer& peer);
  // The worker's host does not answer: everything that runs there is lost.
  void HostSilent(const std::string& worker, const std::string& how);
  // Workers without a pulse whose processes are silent: nothing else shows that their hosts are.
  std::vector<std::string> SilentWithoutPulse(Clock::time_point now);
  void PulseEnded(Peer& pulse, const absl::Status& status);
  // Whether a process of the worker may still be there. If not, nothing is waited for.
  bool MayReturn(const std::string& worker) const;
  // The executor is lost if its connection has ended and nobody of its worker may be there.
  void LoseIfAlone(const std::string& worker);
  void NoteStalled(Peer& peer, Clock::time_point now);
  void OnHeartbeat(Peer& peer, const v1::Heartbeat& heartbeat);
  void CountTransfer(const std::string& from, const std::string& to, uint64_t bytes);
  void OnReport(Peer& peer, const v1::Report& report);
  // What a new executor is told of its registration.
  v1::FromController Accepted(ExecutorId id, uint32_t protocol) const;
  // The same for a supervisor or a relay.
  void ReplyRegistered(Peer& peer);
  // Takes the version that is spoken on the link. Returns whether there is one; if not, the peer is
  // fenced.
  bool Agree(Peer& peer, uint32_t oldest, uint32_t newest, const std::string& worker);
  // Reports are kept by their executor until it hears that they have come.
  void AcknowledgeReport(Peer& peer, size_t bytes);
  void OnLogReport(Peer& peer, const Frame& frame);
  void OnRelayReport(Peer& peer, const Frame& frame);
  void OnRelayTrouble(Peer& peer, const v1::RelayTrouble& trouble);
  // An executor that had a relay asks for its entries.
  void OnLogAsk(Peer& peer, const v1::LogAsk& ask);
  // Does something once the worker has both a relay and a known executor.
  void OfferRelay(const std::string& worker);
  void DropRelay(const std::string& worker);
  // Tells executors of the island who their parents are.
  void TellParents(Island& island);
  void OnCallback(Peer& peer, const v1::LinkCallback& message);
  void OnExecutorDied(Peer& peer, const v1::ExecutorDied& died);
  void OnRecentLines(const Peer& peer, v1::RecentLines lines);
  void OnCompileResponse(Peer& peer, v1::LinkCompileResponse response,
                         std::optional<uint32_t> code_crc);

  std::chrono::milliseconds HeartbeatInterval() const;
  void Reply(Peer& peer, const v1::FromController& message);
  // Sends the reason, then closes the link. `asked`: by an operator.
  void FencePeer(Peer& peer, const std::string& reason, bool asked = false);
  // Has the executor killed by its supervisor and declares it lost.
  void EndExecutor(Executor& executor, const std::string& why, bool asked = false);
  // Closes the link and ignores what still comes. The peer is removed after the link has closed.
  void Finish(Peer& peer);
  // `cut`: the connection broke, so the executor may come back.
  void ExecutorLinkEnded(Peer& peer, const std::string& how, bool cut = false);
  // The executor sent what it should not have sent.
  void GiveUp(Peer& peer, const std::string& how);
  void SupervisorEnded(Peer& peer);
  // Tells the owner that the executor is lost, once per incarnation.
  void DeclareLost(Executor& executor, const std::string& how, const std::string& log = {},
                   bool asked = false);
  // Whether an executor that the latest restart ended has not come back yet.
  bool Restarting(const Island& island) const;
  // Sends the executor no more entries.
  void LeaveLog(const Executor& executor);
  // Has the island's log sent when control returns to the loop.
  void SendSoon(Island& island);
  void SendEarly(std::vector<Early> early);
  void TellEnded(Island& island);
  // Ends an executor that a command cannot be sent to.
  void RefuseCommand(Executor& executor, const absl::Status& why);
  Executor* FindExecutor(const std::string& worker);
  static bool IsUp(const Executor& executor);

  Loop& loop_;
  const WorkerHubOptions options_;
  WorkerHubEvents* const events_;
  const std::function<Clock::time_point()> now_;
  std::shared_ptr<bool> alive_;
  uint64_t next_peer_ = 1;
  std::map<uint64_t, std::unique_ptr<Peer>> peers_;
  Strangers strangers_;  // those of peers_ that have not registered
  Refusals refusals_;
  std::map<ExecutorId, std::unique_ptr<Executor>> executors_;
  std::map<std::string, ExecutorId> executor_of_worker_;  // invariant: of each of executors_
  std::map<std::string, std::unique_ptr<Supervisor>> supervisors_;  // connected ones, by worker
  // By worker. They outlive the supervisors' links, which may be cut.
  std::map<std::string, PulseRecord> pulses_;
  // Workers whose pulse broke, and until when it may come back.
  std::map<std::string, Clock::time_point> pulse_cut_until_;
  std::map<std::string, std::unique_ptr<RelayRecord>> relays_;  // connected ones, by worker
  uint64_t next_compilation_ = 1;
  std::map<uint64_t, Compilation> compilations_;
  WorkerLines lines_;
  std::map<std::string, std::string> island_of_endpoint_;
  std::map<std::pair<std::string, std::string>, uint64_t> transferred_bytes_;
  std::map<std::string, std::unique_ptr<Island>> islands_;  // by name
  // Islands whose logs have something to send. If there are any, their sending is posted.
  std::vector<Island*> due_;
  EncodedMembers encoded_members_;
  LinkTraffic sent_;
  LinkTraffic received_;
  uint64_t commands_sent_ = 0;
  uint64_t links_resumed_ = 0;
  bool stopping_ = false;  // losses are expected
  // Commands that the owner sends while it registers an executor; nullptr at other times.
  std::vector<Early>* early_ = nullptr;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_WORKER_HUB_H_
