// SPDX-License-Identifier: Apache-2.0
// ExecutorSession: what it reports to the controller, and when.
#include <utility>

#include "worker/executor/executor_session.h"

namespace fairway {
namespace {

ReportPace::Time Now() { return std::chrono::steady_clock::now().time_since_epoch(); }

}  // namespace

void ExecutorSession::Drain() {
  report_pace_.Stop();
  // The other executors may never have got the launches that wait for them.
  exchanges_->Close(absl::UnavailableError("the executor lost its controller"));
  EndReceives();
}

void ExecutorSession::EndReceives() {
  if (!ended_) core_.EndReceives(absl::UnavailableError("the executor ends its registration"));
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

void ExecutorSession::ReportWanted(bool may_wait, bool news) {
  if (!report_pace_.Wanted(may_wait, news)) return;
  context_.loop->Post("report", [this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.lock() != nullptr) Follow(report_pace_.Step(in_flight_, Now()));
  });
}

void ExecutorSession::Follow(ReportPace::Next next) {
  if (next == ReportPace::Next::kSend) send_(core_.TakeReport());
  if (next != ReportPace::Next::kTimer) return;
  const auto pause = std::chrono::ceil<std::chrono::milliseconds>(report_pace_.pause());
  context_.loop->PostAfter(pause, "late report", [this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.lock() != nullptr) Follow(report_pace_.TimerEnded(in_flight_, Now()));
  });
}

}  // namespace fairway
