// SPDX-License-Identifier: Apache-2.0
// ExecutorSession: what it reports to the controller, and when.
#include <utility>

#include "worker/executor/executor_session.h"

namespace fairway {
void ExecutorSession::Drain() {
  draining_ = true;
  // The other executors may never have got the launches that wait for them.
  exchanges_->Close(absl::UnavailableError("the executor lost its controller"));
}

void ExecutorSession::Abandon(const AbandonLaunch& command) {
  exchanges_->Abandon(command.first.value, command.last.value, command.cause);
}

void ExecutorSession::LeftOut(LaunchId first, LaunchId last, const absl::Status& cause) {
  exchanges_->LeaveOut(first.value, last.value, cause);
}

ExecutorSession::Counters ExecutorSession::counters() const {
  Counters out;
  if (plane_ != nullptr) {
    out.pulled = plane_->PulledBytes();
    out.served_bytes = plane_->ServedBytes();
  }
  out.fetches_served = fetches_served_;
  out.device_bytes = buffers_.bytes();
  out.gangs_launched = gangs_launched_;
  out.launches = launches_;
  out.buffers = buffers_.size();
  out.executables = executables_.size();
  out.turn_units_max = core_.work().most();
  return out;
}

void ExecutorSession::ReportWanted() {
  if (!telling_launch_done_) report_pace_.Urgent();
  if (report_posted_ || ended_) return;
  report_posted_ = true;
  context_.loop->Post("report", [this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.lock() == nullptr) return;
    report_posted_ = false;
    MaybeReport();
  });
}

void ExecutorSession::MaybeReport() {
  if (ended_ || draining_) return;
  const ReportPace::Time now = std::chrono::steady_clock::now().time_since_epoch();
  if (report_pace_.Due(in_flight_, now)) {
    report_pace_.Reported(now);
    return send_(core_.TakeReport());
  }
  if (std::exchange(report_timer_, true)) return;
  const auto pause = std::chrono::ceil<std::chrono::milliseconds>(report_pace_.pause());
  context_.loop->PostAfter(pause, "late report", [this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.lock() == nullptr) return;
    report_timer_ = false;
    if (report_pace_.unreported_ends() > 0) MaybeReport();
  });
}

void ExecutorSession::TellLaunchDone(NodeId node, const absl::Status& status,
                                     std::vector<Report::Inlined> inlined) {
  report_pace_.LaunchEnded();
  telling_launch_done_ = true;
  core_.LaunchDone(node, status, std::move(inlined));
  telling_launch_done_ = false;
}

}  // namespace fairway
