// SPDX-License-Identifier: Apache-2.0
// The controller of the scale model: the daemon's code without its sockets and threads, namely the
// hub of the links, the core, the compile service and the native front door. Messages come and go
// as bytes; the CPU of every turn of its loop is measured.
#ifndef FAIRWAY_BENCH_SCALE_CONTROLLER_H_
#define FAIRWAY_BENCH_SCALE_CONTROLLER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "async/blocking_pool.h"
#include "async/event_loop.h"
#include "base/status.h"
#include "bench/scale/timeline.h"
#include "controller/cluster/cluster.h"
#include "controller/compile/compile_service.h"
#include "controller/daemon/worker_hub.h"
#include "controller/native/door.h"
#include "worker/compiler/compiler.h"

namespace fairway::scale {

class Controller final : public ClusterActions,
                         public WorkerHubEvents,
                         public CompileBackend,
                         public NativeShell {
 public:
  // A message that has come: a frame on a link, or a ClientMessage.
  struct Incoming {
    int link = -1;  // that of a host, or `hosts` and that of a host: its relay's; -1: the client
    Frame frame;
    std::string message;
  };
  struct Sent {
    size_t frames = 0, bytes = 0;  // on links, and of their payloads and the answers
    bool operator==(const Sent&) const = default;
  };
  struct Turn {
    Sent sent() const;
    Nanos cpu = 0;
    std::vector<std::pair<int, Frame>> frames;  // on links, in order
    std::string answers;                        // a ServerMessage; empty: none
  };

  // `fanout`: of its islands' trees of relays; 0: there are none.
  Controller(int hosts, int fanout);
  ~Controller() override;

  // One turn of the loop: handles all of `in`, and its consequences. It runs on the last of the
  // processors that this process may use, and from then on the calling thread on all others, so
  // that the simulated hosts do not take the controller's caches; with one processor on that one.
  Turn Run(const std::vector<Incoming>& in);
  // A turn of another controller.
  struct Done {
    Nanos at = 0;  // when it began
    std::vector<Incoming> in;
    Sent sent;
  };
  // Does these turns again, and those from `begin` on with the pauses that were between them, but a
  // millisecond each at most, in real time. So nothing else takes the caches meanwhile. Returns the
  // CPU of those from `begin` on. INTERNAL: a turn did not send what it sent there.
  absl::StatusOr<Nanos> Repeat(std::span<const Done> turns, size_t begin);

  Cluster& cluster() { return cluster_; }
  WorkerHub::Relays relays() const { return hub_.relays(); }
  // Bytes that its objects hold; 0 if the allocator does not tell.
  int64_t allocated() const { return allocated_; }

  // ClusterActions
  void Send(ExecutorId executor, Command command, std::shared_ptr<MemoryBudget> payer) override;
  void SendAll(ExecutorId first, ExecutorId last, Command command,
               std::shared_ptr<MemoryBudget> payer) override;
  void OfferUpload(TransferId, std::vector<BytesRef>) override {}
  void WithdrawUpload(TransferId) override {}
  void PullToHost(TransferId transfer, ExecutorId, int32_t, int64_t) override;
  void WantTurn() override;

  // WorkerHubEvents
  absl::StatusOr<ExecutorId> OnExecutorUp(const ExecutorSpec& spec) override;
  void OnExecutorLost(ExecutorId executor, const absl::Status& cause) override;
  void OnCrowded(ExecutorId) override {}
  void OnReport(ExecutorId executor, Incarnation incarnation, Report report) override;
  void OnLaunchesEnded(std::vector<NodeId> nodes) override;
  void OnCallback(ExecutorId, CallbackCall) override {}
  void OnCallbackGivenUp(ExecutorId, uint64_t) override {}

  // CompileBackend
  void Compile(SessionId session, IslandId island, std::shared_ptr<const std::string> program,
               v1::CompileOptions options,
               std::function<void(absl::StatusOr<CompiledCode>)> done) override;

  // NativeShell
  void Send(v1::Answer answer) override;
  void SendSerialized(std::string message) override { answers_.MergeFromString(message); }
  void SendBytes(uint64_t id, int32_t index, BytesRef bytes) override;
  void RunOffLoop(std::function<void()> work, std::function<void()> then) override;
  void Discard(std::shared_ptr<void> garbage) override { garbage.reset(); }

 private:
  class HostLink;
  Turn RunHere(const std::vector<Incoming>& in);
  void FromClient(const std::string& message);
  void EndTurn(int rounds);

  EventLoop loop_;
  Cluster cluster_;
  WorkerHub hub_;
  CompileService compile_service_;
  NativeDoor door_;
  std::unique_ptr<Compiler> compiler_;
  NativeSession* session_ = nullptr;
  std::vector<HostLink*> links_;  // the hub's ends: those of hosts, then those of their relays
  std::vector<std::pair<int, Frame>> sent_;
  v1::ServerMessage answers_;
  std::string packed_answers_;
  int64_t allocated_ = 0;
  bool turn_wanted_ = false;
  BlockingPool thread_{"scale-control", 1};
};

}  // namespace fairway::scale

#endif  // FAIRWAY_BENCH_SCALE_CONTROLLER_H_
