// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/registration.h"

#include <algorithm>

#include "base/planted.h"

namespace fairway {

uint64_t Registration::Ask() {
  phase_ = Phase::kAsked;
  inbox_.reset();
  return Planted(Bug::kForgetLaunchIds) ? 0 : highest_launch_id_;
}

absl::Status Registration::Accepted(ExecutorId self) {
  if (phase_ != Phase::kAsked)
    return absl::FailedPreconditionError("the controller registered this executor twice");
  phase_ = Phase::kHeld;
  inbox_.emplace(self);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Command>> Registration::Take(std::string_view frame) {
  if (!held())
    return absl::FailedPreconditionError("a frame of the log came before the registration");
  return inbox_->Take(frame);
}

std::string Registration::LogReport(CommandInbox::With with) {
  return held() ? inbox_->Report(with) : std::string();
}

bool Registration::Over(size_t in_flight, uint64_t highest) {
  highest_launch_id_ = std::max(highest_launch_id_, highest);
  if (!ending() || (in_flight > 0 && !Planted(Bug::kRegisterTooSoon))) return false;
  phase_ = Phase::kNone;
  return true;
}

}  // namespace fairway
