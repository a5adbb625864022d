// SPDX-License-Identifier: Apache-2.0
// One registration of an executor at a controller: its core, buffers, executables and data plane.
// It ends with the link. The next registration is a new session over the same runtime.
#ifndef FAIRWAY_WORKER_EXECUTOR_EXECUTOR_SESSION_H_
#define FAIRWAY_WORKER_EXECUTOR_EXECUTOR_SESSION_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "async/blocking_pool.h"
#include "async/event_loop.h"
#include "transport/data_plane.h"
#include "worker/executor/assembly.h"
#include "worker/executor/buffer_table.h"
#include "worker/executor/client_calls.h"
#include "worker/executor/executor_core.h"
#include "worker/executor/gang_exchanges.h"
#include "worker/executor/launch_queues.h"
#include "worker/executor/posted.h"
#include "worker/executor/report_pace.h"
#include "worker/executor/runtime/runtime.h"

namespace fairway {

// Does what the core decides. Owned by ExecutorProcess. Loop-confined: other threads get closures
// and post their results to the loop. Bytes come in five steps: StartReceive, CopyPiece for each
// piece, MakeBuffer, BufferMade, TellReceiveDone.
class ExecutorSession final : public ExecutorActions {
 public:
  struct Context {
    EventLoop* loop = nullptr;
    Runtime* runtime = nullptr;
    BlockingPool* blocking = nullptr;  // loads and copies
    LaunchQueues* launches = nullptr;
    int island_workers = 1;                               // executors that own the island
    std::shared_ptr<ClientCalls> client_calls = nullptr;  // for programs with callbacks
    // By device: the pool that makes its buffers, if that may wait for memory
    // (RuntimeInfo::memory_waits); else empty and `blocking` makes them.
    std::vector<BlockingPool*> buffer_makers = {};
    std::shared_ptr<TlsIdentity> tls = nullptr;  // of the data port; nullptr: without TLS
  };
  // Totals of this registration, for heartbeats.
  struct Counters {
    std::vector<std::pair<std::string, uint64_t>> pulled;
    uint64_t served_bytes = 0;
    uint64_t fetches_served = 0;
    std::vector<int64_t> device_bytes;
    uint64_t gangs_launched = 0;
    uint64_t launches = 0;
    size_t buffers = 0;
    size_t executables = 0;
    uint64_t turn_units_max = 0;  // of the core
  };

  // Opens the data port at `data_bind`. Passes reports to `send`, at most one in a turn of the
  // loop. Errors: those of the data plane (ALREADY_EXISTS: the port is taken).
  static absl::StatusOr<std::unique_ptr<ExecutorSession>> Open(Context context,
                                                               Incarnation incarnation,
                                                               const std::string& data_bind,
                                                               const std::string& advertise_host,
                                                               std::function<void(Report)> send);
  ~ExecutorSession() override;

  Incarnation incarnation() const { return incarnation_; }
  std::string data_endpoint() const { return plane_->endpoint(); }
  const PortKey& data_key() const { return data_key_; }  // of that port; for the controller alone
  // Sets where shards of the controller are pulled from.
  void SetController(std::string data_endpoint, Incarnation incarnation);

  // As ReportPace::Below.
  void ReportsBelow(int children) { report_pace_.Below(children); }

  void OnCommand(Command&& command) {
    if (const auto* launch = std::get_if<Launch>(&command))
      context_.runtime->NoteLaunch(launch->launch_id.value);
    core_.OnCommand(std::move(command));
  }

  // Pulls a result of a callback from the controller. Calls `done` in the loop.
  void PullResult(const CallbackAnswer& answer, int32_t index, int64_t bytes,
                  DataPlane::PullDone done) {
    plane_->Pull(controller_endpoint_, controller_,
                 {answer.transfer, index, Incarnation(), 0, answer.ticket}, bytes, std::move(done));
  }

  // Counts launches that have not ended, including those that wait for inputs or their turn. At 0
  // the session may be destroyed.
  size_t launches_in_flight() const { return std::max(in_flight_, core_.num_launched()); }
  // The controller is gone. Its launches still run, because other executors may have begun the same
  // gangs. Nothing is reported any more.
  void Drain();
  // Ends what waits for other executors.
  void EndReceives();
  // Closes the data port and frees all buffers that no launch in flight uses. Nothing is reported
  // any more.
  void End();

  Counters counters() const;
  uint64_t highest_launch_id() const { return core_.highest_launch_id(); }

 private:
  struct Executable {
    std::shared_ptr<LoadedExecutable> loaded;  // nullptr: it is being loaded, or could not be
    // Gangs of it may be launched after the gangs that compute their inputs, before these end.
    bool follows = false;
    bool shared = false;    // other executors run it, too
    size_t launch_ids = 1;  // that a launch takes: more for a block
  };
  // The record of a launch that its end needs.
  struct Launched {
    struct Output {
      ShardRef shard;
      LaunchJob::Output from;
    };
    NodeId node;
    size_t num_outputs = 0;  // of one device
    std::vector<Output> outputs;
    std::vector<ShardRef> inline_shards;
    std::shared_ptr<LaunchOutputs> made;
    LaunchId gang;          // 0: no gang
    size_t launch_ids = 1;  // of a gang
    size_t ended = 0;       // of `outputs`: those that LaunchEnded is done with
  };
  // What ReadyLaunch has made ready for StartLaunch.
  struct Starting {
    LaunchJob job;  // its inputs, its outputs, and the arguments that several shards are
    std::vector<Launched::Output> outputs;
    bool followed = false;  // later launches may begin before this one has ended
    absl::Status problem;
  };
  // Shards that are being read for their bytes.
  struct Reading {
    std::atomic<size_t> open{1};  // reads that have not ended, and one more until all were begun
    std::vector<Report::Inlined> inlined;
    absl::AnyInvocable<void(std::vector<Report::Inlined>)> done;
    // Calls ReadEnded in the loop. The read that ends last, on any thread, calls it.
    absl::AnyInvocable<void(std::shared_ptr<Reading>)> last;
  };
  // A shard that is being received, or a piece of it.
  struct Receiving {
    NodeId node;
    size_t position = 0;
    ShardRef ref;
    DType dtype = DType::kInvalid;
    Shape shape;
    int device = 0;
    std::string memory_kind;
    int64_t bytes = 0;
  };
  // Shards that are being put together from pieces, in host memory.
  using Shards = Assemblies<std::shared_ptr<Blob>>;
  struct WaitingPull {
    DataPlane::Answer answer;
    Incarnation from;
  };

  ExecutorSession(Context context, Incarnation incarnation, std::function<void(Report)> send);

  // The methods of ExecutorActions.
  void Load(const InstallExecutable& install) override;
  void Unload(ExecutableId executable) override;
  bool LinkSteps(ExecutableId block, const StepBlock& calls) override;
  void LoadSequence(const InstallSequence& install) override;
  size_t ReadyLaunch(const PrepareLaunch& node, size_t from) override;
  void StartLaunch(const PrepareLaunch& node, const Launch& launch) override;
  void StartReceive(const PrepareReceive& node, size_t position) override;
  void TakeBackPulls(const PrepareReceive& node) override;
  void Share(ShardRef from, ShardRef to) override { buffers_.Share(from, to); }
  void Read(NodeId node, const std::vector<ShardRef>& shards) override;
  void WantTurn() override;
  void Serve(uint64_t pull, const PrepareSend::Item& item) override;
  void RefusePull(uint64_t pull, absl::Status why) override;
  void Drop(const std::vector<ShardRef>& shards) override;
  void Abandon(const AbandonLaunch& command) override;
  void LeftOut(LaunchId first, LaunchId last, const absl::Status& cause) override;
  void ReportWanted(bool may_wait, bool news) override;

  // Posts `f` to the loop. It is dropped if the session is destroyed before it runs.
  template <typename F>
  void PostHere(std::string_view name, F f) {
    Poster(name, std::move(f))();
  }
  // Returns a function that does the same from any thread.
  template <typename F>
  Posted<F> Poster(std::string_view name, F f) {
    return Posted<F>(context_.loop, name, alive_, std::move(f));
  }

  void OnPull(PullRequest request, DataPlane::Answer answer);
  void OnTakenBack(PullRequest request);
  void ServeArgument(PullRequest request, DataPlane::Answer answer) const;
  // Does what report_pace_ says.
  void Follow(ReportPace::Next next);
  // Returns where the launch makes each of `shards`, in their order.
  static std::vector<LaunchJob::Output> OutputsOf(const std::vector<Launched::Output>& outputs,
                                                  const std::vector<ShardRef>& shards);
  // Each makes one value ready for the launch of starting_.
  void FindArgument(const PrepareLaunch& node, size_t argument);
  void ExpectOutput(const PrepareLaunch& node, size_t output);
  // Returns the result of each output of a block that has ended.
  static std::vector<absl::Status> ResultsOf(const LaunchOutputs& made);
  // Takes over some of its outputs, then calls itself in a later turn of the loop for the others.
  void LaunchEnded(Launched launched, absl::Status status);
  // Reads these shards and passes the bytes of those that can be read to `done`. `done` runs in the
  // loop, within this call if all bytes are there.
  void ReadShards(const std::vector<ShardRef>& shards,
                  absl::AnyInvocable<void(std::vector<Report::Inlined>)> done);
  // Reads those from `from` on: some at once, the others in later turns of the loop.
  void GoOnReading(const std::shared_ptr<Reading>& reading, size_t from);
  void ReadEnded(Reading& reading);
  Receiving ReceivingOf(const PrepareReceive& node, size_t position) const;
  // Asks a peer or the controller for the bytes of this source.
  void Pull(const PrepareReceive& node, const ShardSource& source, int64_t bytes,
            DataPlane::PullDone done);
  void StartPiece(const PrepareReceive& node, size_t position);
  // Copies box `from` of the bytes that came to box `to` of the shard.
  void CopyPiece(Receiving receiving, const Shards::Ref& assembly, const Box& from, const Box& to,
                 absl::StatusOr<HostView> view);
  void PieceEnded(Receiving receiving, const Shards::Ref& assembly, absl::Status status);
  // Makes a device buffer of received bytes, or lets a pool do it; then comes BufferMade.
  void MakeBuffer(Receiving receiving, std::shared_ptr<Blob> bytes);
  BlockingPool& MakerPool(int device) const;
  void BufferMade(Receiving receiving, absl::StatusOr<std::shared_ptr<DeviceBuffer>> buffer);
  void TellReceiveDone(const Receiving& receiving, const std::shared_ptr<DeviceBuffer>& buffer,
                       const absl::Status& status);

  const Context context_;
  const Incarnation incarnation_;
  const PortKey data_key_ = RandomPortKey();
  const std::function<void(Report)> send_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  bool ended_ = false;
  ExecutorCore core_;
  BufferTable buffers_;
  Shards assemblies_;
  const std::shared_ptr<GangExchanges> exchanges_ = std::make_shared<GangExchanges>();
  std::unique_ptr<DataPlane> plane_;
  std::string controller_endpoint_;
  Incarnation controller_;
  std::map<ExecutableId, std::shared_ptr<Executable>> executables_;
  uint64_t next_pull_ = 1;
  std::map<uint64_t, WaitingPull> pulls_;
  ReportPace report_pace_{context_.island_workers};
  Starting starting_;
  size_t in_flight_ = 0;
  uint64_t launches_ = 0;
  uint64_t gangs_launched_ = 0;
  uint64_t fetches_served_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_EXECUTOR_SESSION_H_
