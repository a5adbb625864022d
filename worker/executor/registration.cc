// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/registration.h"

#include <algorithm>

#include "base/planted.h"
#include "wire/link_protocol.h"

namespace fairway {
namespace {

constexpr int64_t kMostGrace = 3600000;  // milliseconds

}  // namespace

uint64_t Registration::Ask() {
  phase_ = Phase::kAsked;
  inbox_.reset();
  kept_ = {};
  return Planted(Bug::kForgetLaunchIds) ? 0 : highest_launch_id_;
}

absl::Status Registration::Accepted(const v1::Registered& terms) {
  if (phase_ != Phase::kAsked)
    return absl::FailedPreconditionError("the controller registered this executor twice");
  FAIRWAY_ASSIGN_OR_RETURN(protocol_, TakenLinkProtocol(terms.protocol()));
  phase_ = Phase::kHeld;
  self_ = terms.executor();
  controller_ = terms.controller_incarnation();
  grace_ = std::chrono::milliseconds(std::clamp<int64_t>(terms.link_grace_ms(), 0, kMostGrace));
  inbox_.emplace(ExecutorId(self_));
  relay_.clear();
  relay_children_ = 0;
  tree_ = 0;
  return absl::OkStatus();
}

bool Registration::Cut(Time now) {
  if (held()) cut_at_ = now;
  const bool outlives = (held() || phase_ == Phase::kResuming) && now - cut_at_ < grace_;
  phase_ = outlives ? Phase::kCut : Phase::kEnding;
  return outlives;
}

bool Registration::GraceOver(Time now) {
  if (!cut() || now - cut_at_ < grace_) return false;
  phase_ = Phase::kEnding;
  return true;
}

v1::ResumeExecutor Registration::Resume(Incarnation incarnation) {
  phase_ = Phase::kResuming;
  v1::ResumeExecutor out;
  out.set_protocol(protocol_);
  out.set_controller_incarnation(controller_);
  out.set_executor(self_);
  out.set_incarnation(incarnation.value);
  out.set_version(inbox_->version());
  out.set_applied(inbox_->applied());
  out.set_taken(kept_.taken());
  return out;
}

absl::StatusOr<std::vector<Frame>> Registration::Resumed(const v1::Resumed& resumed) {
  if (phase_ != Phase::kResuming)
    return absl::FailedPreconditionError("the controller resumed what was not cut");
  FAIRWAY_ASSIGN_OR_RETURN(std::vector<Frame> again, kept_.Resume(resumed.taken()));
  phase_ = Phase::kHeld;
  inbox_->Resend();
  return again;
}

absl::StatusOr<std::vector<Command>> Registration::Take(std::string_view frame, bool relay) {
  const bool cut = phase_ == Phase::kCut || phase_ == Phase::kResuming;
  if (!held() && !(relay && cut))
    return absl::FailedPreconditionError("a frame of the log came before the registration");
  if (relay == relay_.empty())
    return Error(absl::StatusCode::kFailedPrecondition,
                 "a frame of the log came from {}, which is not the parent",
                 relay ? "a relay" : "the controller");
  return inbox_->Take(frame);
}

absl::Status Registration::Ended(const std::vector<uint64_t>& entries) {
  return inbox_ ? inbox_->Ended(entries) : absl::OkStatus();
}

std::string Registration::LogReport(CommandInbox::With with) {
  const bool cut = phase_ == Phase::kCut || phase_ == Phase::kResuming;
  return held() || (cut && !relay_.empty()) ? inbox_->Report(with) : std::string();
}

bool Registration::Follow(const v1::LogParent& parent) {
  if (parent.version() <= tree_) return false;
  tree_ = parent.version();
  relay_ = parent.endpoint();
  relay_children_ = relay_.empty() ? 0 : std::max(1, parent.children());
  secret_ = parent.secret();
  return true;
}

v1::LogAsk Registration::AskLog(Incarnation incarnation) {
  if (!Planted(Bug::kAskOnly)) inbox_->Resend();
  v1::LogAsk ask;
  ask.set_version(tree_);
  ask.set_controller_incarnation(controller_);
  ask.set_incarnation(incarnation.value);
  ask.set_applied(inbox_->applied());
  ask.set_secret(secret_);
  return ask;
}

bool Registration::Over(size_t in_flight, uint64_t highest) {
  highest_launch_id_ = std::max(highest_launch_id_, highest);
  if (!ending() || (in_flight > 0 && !Planted(Bug::kRegisterTooSoon))) return false;
  phase_ = Phase::kNone;
  return true;
}

}  // namespace fairway
