// SPDX-License-Identifier: Apache-2.0
#include "worker/relay/relay_core.h"

#include <utility>

#include "base/planted.h"
#include "transport/frame.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

// Bytes of frames after which a report leaves at once. A full link holds more
// (RelayOptions::link_bytes), so the parent hears of them before the link runs dry.
constexpr size_t kAtOnce = 256 << 10;
constexpr std::string_view kCrowded = "it does not take its entries";

}  // namespace

void RelayCore::Send(Link* link, std::string payload, uint8_t type, uint64_t id) {
  Frame frame;
  frame.id = id;
  frame.type = type;
  frame.payload = std::move(payload);
  ++sent_messages_;
  sent_bytes_ += kFrameHeaderBytes + frame.payload.size();
  link->Send(std::move(frame));
}

void RelayCore::Stop() {
  for (const Child& child : children_) {
    if (child.link != nullptr) child.link->Close();
  }
  children_.clear();
  if (parent_link_ != nullptr && !parent_.empty()) parent_link_->Close();
  parent_link_ = nullptr;
  parent_.clear();
  log_.reset();
}

absl::Status RelayCore::OnTask(const v1::RelayTask& task, Link* controller, Time now) {
  Stop();
  if (task.children().empty()) return absl::OkStatus();
  std::vector<LogRelayChild> below;
  for (const v1::RelayTask::Child& child : task.children()) {
    LogRelayChild& one = below.emplace_back();
    one.floor = child.floor();
    for (const v1::RelayTask::Member& member : child.below())
      one.below.live.push_back({member.executor(), member.joined()});
  }
  FAIRWAY_ASSIGN_OR_RETURN(LogRelay log,
                           LogRelay::Make(task.version(), std::move(below), options_.limits));
  log_.emplace(std::move(log));
  for (const v1::RelayTask::Child& child : task.children())
    children_.push_back({Incarnation(child.incarnation()),
                         child.secret(),
                         child.worker(),
                         child.relay(),
                         nullptr,
                         now,
                         now,
                         0,
                         false,
                         {}});
  unreported_ = question_ = 0;
  parent_ = task.parent();
  secret_ = task.secret();
  controller_incarnation_ = task.controller_incarnation();
  if (parent_.empty()) {
    parent_link_ = controller;
  } else {
    actions_->DialParent(parent_);
  }
  return absl::OkStatus();
}

void RelayCore::ParentUp(Link* parent) {
  if (!log_) return parent->Close();  // it was dialed for a task that is over
  parent_link_ = parent;
  question_ = 0;
  v1::ToController message;
  v1::LogAsk* const ask = message.mutable_log_ask();
  ask->set_version(log_->version());
  ask->set_controller_incarnation(controller_incarnation_);
  ask->set_incarnation(options_.self.value);
  ask->set_applied(log_->Ask());
  ask->set_secret(secret_);
  parent->Send(PackFrame(message));
}

void RelayCore::ParentEnded(const Link* parent) {
  if (parent_link_ == parent) parent_link_ = nullptr;
}

absl::Status RelayCore::FromParent(const Frame& bytes, Time) {
  if (!log_) return absl::OkStatus();  // it came before the task was over
  FAIRWAY_ASSIGN_OR_RETURN(const LogFrame frame, DecodeLogFrame(bytes.payload));
  if (frame.version < log_->version()) return absl::OkStatus();  // R3
  FAIRWAY_RETURN_IF_ERROR(log_->TakeFrame(frame));
  unreported_ += bytes.payload.size();
  if (bytes.id != 0) question_ = bytes.id;
  if (unreported_ >= kAtOnce || log_->Urgent() || question_ != 0) ReportUp();
  PumpAll();
  return absl::OkStatus();
}

std::optional<uint32_t> RelayCore::ChildOf(const Link* link) const {
  for (uint32_t child = 0; child < children_.size(); ++child) {
    if (children_[child].link == link) return child;
  }
  return std::nullopt;
}

absl::Status RelayCore::FromChild(Link* link, const Frame& frame, Time now) {
  const std::optional<uint32_t> child = ChildOf(link);
  if (frame.type == kLogReportFrame) {
    if (!child) return absl::FailedPreconditionError("it reports to a relay that it has not asked");
    const absl::StatusOr<LogReport> report = DecodeLogReport(frame.payload);
    const absl::Status taken = report.ok() ? log_->TakeReport(*child, *report) : report.status();
    if (!taken.ok()) {
      GiveUp(*child, Text(taken));
      return taken;
    }
    children_[*child].heard = now;
    children_[*child].trips.Answer(frame.id, now);
    Pump(*child);
    if (log_->Urgent()) ReportUp();
    return absl::OkStatus();
  }
  v1::ToController message;
  FAIRWAY_RETURN_IF_ERROR(UnpackFrame(frame, &message));
  if (!message.has_log_ask()) return InvalidArgument("a child of a relay sent another message");
  return OnAsk(link, message.log_ask(), now);
}

absl::Status RelayCore::OnAsk(Link* link, const v1::LogAsk& ask, Time now) {
  if (ask.version() != version())
    return Error(absl::StatusCode::kFailedPrecondition, "it asks for version {}, this is {}",
                 ask.version(), version());
  if (ask.controller_incarnation() != controller_incarnation_)
    return absl::FailedPreconditionError("it asks for this version of another controller");
  uint32_t child = 0;
  while (child < children_.size() && children_[child].incarnation.value != ask.incarnation())
    ++child;
  if (child == children_.size())
    return Error(absl::StatusCode::kPermissionDenied,
                 "it says that it is incarnation {}, which is no child of this relay",
                 ask.incarnation());
  Child& asked = children_[child];
  const std::optional<Subject> proved = link->subject();
  if (ask.secret() != asked.secret || (proved && proved->name != asked.worker))
    return Error(absl::StatusCode::kPermissionDenied,
                 "it says that it is the {} of worker {}, but its proof is wrong",
                 asked.relay ? "relay" : "executor", asked.worker);
  if (asked.told) return absl::FailedPreconditionError("it was given up");
  if (const absl::Status attached = log_->Attach(child, ask.applied()); !attached.ok()) {
    GiveUp(child, Text(attached));
    return attached;
  }
  if (asked.link != nullptr && asked.link != link) asked.link->Close();
  asked.link = link;
  asked.heard = now;
  asked.trips.Clear();
  Pump(child);
  return absl::OkStatus();
}

void RelayCore::ChildEnded(const Link* link, Time now) {
  const std::optional<uint32_t> child = link == nullptr ? std::nullopt : ChildOf(link);
  if (!child) return;
  children_[*child].link = nullptr;
  children_[*child].heard = now;
  log_->Detach(*child);
}

void RelayCore::Pump(uint32_t child) {
  const LogOutbox& outbox = log_->outbox(child);
  Link* const link = children_[child].link;
  while (link != nullptr && outbox.connected() && link->queued_bytes() < options_.link_bytes &&
         (outbox.Urgent() || outbox.unsent_bytes() > 0))
    Send(link, log_->Next(child), kLogFrame);
}

void RelayCore::PumpAll() {
  for (uint32_t child = 0; child < children_.size(); ++child) Pump(child);
}

void RelayCore::ForgetTrips() {
  own_.Clear();
  for (Child& child : children_) child.trips.Clear();
}

void RelayCore::Judge(uint32_t child, bool stalled, LateRelays& late, Time now) {
  Child& one = children_[child];
  const LogOutbox& outbox = log_->outbox(child);
  if (stalled) one.heard = now;
  if (stalled || !log_->Crowded(child) || outbox.applied() != one.taken_to) {
    one.taken = now;
    one.taken_to = outbox.applied();
  }
  if (one.told) return;
  const bool awaited = one.link == nullptr || (one.relay && !Planted(Bug::kDeafRelay));
  if (awaited && now - one.heard > options_.patience)
    return GiveUp(child, one.link == nullptr ? "it has no connection" : "it is silent");
  if (now - one.taken > options_.patience) return GiveUp(child, std::string(kCrowded));
  if (late.IsLate(one.trips)) GiveUp(child, one.trips.LateText());
}

void RelayCore::GiveUp(uint32_t child, std::string reason) {
  Child& given_up = children_[child];
  log_->GiveUp(child);
  if (given_up.link != nullptr) std::exchange(given_up.link, nullptr)->Close();
  given_up.told = true;
  if (Planted(Bug::kCrowdedInSilence) && reason == kCrowded) return;
  v1::RelayTrouble trouble;
  trouble.set_version(log_->version());
  trouble.set_incarnation(given_up.incarnation.value);
  trouble.set_reason(std::move(reason));
  actions_->Tell(std::move(trouble));
}

void RelayCore::ReportUp() {
  if (parent_link_ == nullptr || parent_link_->queued_bytes() >= options_.link_bytes) return;
  unreported_ = 0;
  do {
    Send(parent_link_, EncodeLogReport(log_->Next()), kLogReportFrame, std::exchange(question_, 0));
  } while (log_->HasNews());
}

void RelayCore::Tick(Time now) {
  const bool stalled = now - std::exchange(ticked_, now) > options_.patience / 2;
  if (!log_) return;
  PumpAll();
  if (stalled) ForgetTrips();
  LateRelays late(options_.soon, own_);
  for (const Child& child : children_) {
    if (child.relay) late.Add(child.trips);
  }
  for (uint32_t child = 0; child < children_.size(); ++child) Judge(child, stalled, late, now);
  for (uint32_t child = 0; child < children_.size(); ++child) {
    if (children_[child].link != nullptr && log_->outbox(child).HasNews() &&
        children_[child].link->queued_bytes() == 0)
      Send(children_[child].link, log_->Next(child), kLogFrame);
  }
  ReportUp();
}

void RelayCore::Ask(Time now, Time late) {
  own_.Add(late);
  for (uint32_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    const LogOutbox& outbox = log_->outbox(i);
    if (!child.relay || child.link == nullptr || child.link->queued_bytes() > 0 ||
        outbox.bytes() > kMostWhenAsked)
      continue;
    const uint64_t question = child.trips.Ask(now);
    if (question == 0) continue;
    Send(child.link, LogFrameWriter(log_->version(), {}).Take(), kLogFrame, question);
  }
}

absl::Status RelayCore::CheckInvariants() const {
  if (!log_) return absl::OkStatus();
  FAIRWAY_RETURN_IF_ERROR(log_->CheckInvariants());
  for (uint32_t child = 0; child < children_.size(); ++child) {
    if (log_->outbox(child).connected() && children_[child].link == nullptr)
      return absl::InternalError(fmt::format("child {} has a link on one side only", child));
  }
  return absl::OkStatus();
}

}  // namespace fairway
