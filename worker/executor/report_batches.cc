// SPDX-License-Identifier: Apache-2.0
// ExecutorSession: what is told to the controller, and when.
#include <utility>

#include "worker/executor/executor_session.h"

namespace fairway {
namespace {

// Half of what the controller launches ahead, so that it need not stop.
constexpr size_t kEndsPerReport = 8;
constexpr std::chrono::milliseconds kReportPause{1};

}  // namespace

void ExecutorSession::Drain() {
  draining_ = true;
  // The others may never have been told of the launches that wait for them.
  exchanges_->Close(absl::UnavailableError("the executor lost its controller"));
}

void ExecutorSession::Abandon(const AbandonLaunch& command) {
  exchanges_->Abandon(command.first.value, command.last.value, command.cause);
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
  return out;
}

void ExecutorSession::ReportWanted() {
  if (!ending_launch_) report_urgent_ = true;
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
  const auto now = std::chrono::steady_clock::now();
  if (report_urgent_ || !launched_ahead_ || in_flight_ == 0 || unreported_ends_ >= kEndsPerReport ||
      now - reported_ >= kReportPause) {
    report_urgent_ = false;
    unreported_ends_ = 0;
    reported_ = now;
    return send_(core_.TakeReport());
  }
  if (std::exchange(report_timer_, true)) return;
  context_.loop->PostAfter(kReportPause, "late report",
                           [this, alive = std::weak_ptr<bool>(alive_)] {
                             if (alive.lock() == nullptr) return;
                             report_timer_ = false;
                             if (unreported_ends_ > 0) MaybeReport();
                           });
}

void ExecutorSession::EndLaunch(NodeId node, const absl::Status& status,
                                std::vector<Report::Inlined> inlined) {
  ++unreported_ends_;
  ending_launch_ = true;
  core_.LaunchDone(node, status, std::move(inlined));
  ending_launch_ = false;
}

}  // namespace fairway
