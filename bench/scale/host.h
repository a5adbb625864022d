// SPDX-License-Identifier: Apache-2.0
// A simulated host of the scale model: a real ExecutorCore that gets and sends real frames. Its CPU
// is measured and passes on its own virtual time; its devices take only the declared time. If it
// has a relay, that is a process with a processor of its own (relay.h).
#ifndef FAIRWAY_BENCH_SCALE_HOST_H_
#define FAIRWAY_BENCH_SCALE_HOST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/scale/link_cost.h"
#include "bench/scale/relay.h"
#include "bench/scale/timeline.h"
#include "core/device.h"
#include "transport/link.h"
#include "worker/executor/executor_core.h"
#include "worker/executor/registration.h"
#include "worker/executor/report_pace.h"

namespace fairway::scale {

// The host's interface to the world around it.
class HostWorld : public RelayWorld {
 public:
  // The host has written this frame to its link at `at`.
  virtual void FromHost(int host, Nanos at, Frame frame) = 0;
  // The host gave its devices this launch at `at`.
  virtual void Launched(int host, Nanos at, const Launch& launch) = 0;
};

class Host final : public ExecutorActions, public RelayChild {
 public:
  Host(int index, ExecutorSpec spec, LinkCost cost, Timeline* timeline, HostWorld* world);

  // Registers at the controller.
  void Start();
  // A frame from the controller comes, now.
  void OnFrame(const Frame& frame);
  // A launch ends on its devices, now.
  void OnLaunchEnd(NodeId node);

  // CPU of the handling so far, and the number of handled frames.
  Nanos cpu() const { return cpu_; }
  uint64_t frames() const { return frames_; }
  bool registered() const { return registration_.held(); }
  // The reason why it stopped, or OK.
  const absl::Status& failure() const { return failure_; }
  const ExecutorCore& core() const { return core_; }

  // RelayChild
  void RelayUp() override;
  void FromRelay(const Frame& frame) override { Take(frame, true); }

  // ExecutorActions
  void Load(const InstallExecutable& install) override { loaded_.push_back(install.executable); }
  void LoadSequence(const InstallSequence& install) override { sequences_.push_back(install); }
  void Unload(ExecutableId) override {}
  void StartLaunch(const PrepareLaunch& node, const Launch& launch) override;
  void StartReceive(const PrepareReceive& node, size_t position) override {
    received_.emplace_back(node.node, position);
  }
  void Share(ShardRef, ShardRef) override {}
  void Read(NodeId node, const std::vector<ShardRef>&) override { read_.push_back(node); }
  void WantTurn() override { turn_wanted_ = true; }
  void Serve(uint64_t, const PrepareSend::Item&) override {}
  void RefusePull(uint64_t, absl::Status) override {}
  void Drop(const std::vector<ShardRef>&) override {}
  void ReportWanted(bool may_wait, bool news) override;

 private:
  // Runs `work` as soon as the host is free. Its CPU time and `more` pass; then the messages that
  // it caused go out.
  template <typename F>
  void Handle(Nanos more, F work);
  void Take(const Frame& frame, bool relay);
  void DoFrame(const Frame& frame, bool relay);
  void DoCommands(const std::string& frame, bool relay);
  // The log comes from somebody else from now on.
  void DoParent(const v1::LogParent& parent);
  v1::ToController Ask();
  // What it says of the log together with such a message; empty: nothing, or there is nobody now.
  std::string LogReport(CommandInbox::With with);
  // Ends at once the operations that take no time here: loading, receiving small shards, reading.
  void EndInstantly();
  // Does what pace_ says.
  void Follow(ReportPace::Next next);
  void SendReport();
  // `report`: of the log; empty: none.
  void SendLogReport(std::string report);

  bool turn_wanted_ = false;
  const int index_;
  const ExecutorSpec spec_;
  const LinkCost cost_;
  Timeline* const timeline_;
  HostWorld* const world_;
  ExecutorCore core_;
  Registration registration_;
  std::unique_ptr<RelayLink> relay_;  // from which the log comes
  ReportPace pace_{spec_.island_workers};
  absl::Status failure_;
  Nanos busy_until_ = 0;
  Nanos cpu_ = 0;
  uint64_t frames_ = 0;
  size_t in_flight_ = 0;
  bool step_wanted_ = false;  // pace_ wants a step once the handling under way has ended
  // set by the handling under way
  std::optional<Frame> asked_;
  std::vector<ExecutableId> loaded_;
  std::vector<InstallSequence> sequences_;
  std::vector<std::pair<NodeId, size_t>> received_;
  std::vector<NodeId> read_;
  std::vector<Launch> launched_;
};

}  // namespace fairway::scale

#endif  // FAIRWAY_BENCH_SCALE_HOST_H_
