// SPDX-License-Identifier: Apache-2.0
// ExecutorSession: when ends of launches are reported.
#include <utility>

#include "worker/executor/executor_session.h"

namespace fairway {
namespace {

// Half of what the controller launches ahead, so that it need not stop.
constexpr size_t kEndsPerReport = 8;
constexpr std::chrono::milliseconds kReportPause{1};

}  // namespace

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
