// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/host.h"

#include <algorithm>

#include "wire/link_codec.h"
#include "wire/link_protocol.h"
#include "wire/sequence_codec.h"

namespace fairway::scale {

Host::Host(int index, ExecutorSpec spec, LinkCost cost, Timeline* timeline, HostWorld* world)
    : index_(index),
      spec_(std::move(spec)),
      cost_(cost),
      timeline_(timeline),
      world_(world),
      core_(this) {}

template <typename F>
void Host::Handle(Nanos more, F work) {
  const Nanos begin = std::max(timeline_->now(), busy_until_);
  const Nanos used = MeasureCpu([&] {
    work();
    EndInstantly();
  });
  cpu_ += used;
  busy_until_ = begin + used + more;
  for (const Launch& launch : std::exchange(launched_, {}))
    world_->Launched(index_, busy_until_, launch);
  if (!std::exchange(step_wanted_, false)) return;
  timeline_->At(busy_until_,
                [this] { Follow(pace_.Step(in_flight_, ReportPace::Time(timeline_->now()))); });
}

void Host::Start() {
  registration_.Ask();
  v1::ToController message;
  v1::RegisterExecutor* registration = message.mutable_register_executor();
  SayLinkProtocols(registration);
  registration->set_host(spec_.worker);
  registration->set_pid(1);
  ToProto(spec_, registration->mutable_spec());
  world_->FromHost(index_, timeline_->now(), PackFrame(message));
}

void Host::OnFrame(const Frame& frame) { Take(frame, false); }

void Host::Take(const Frame& frame, bool relay) {
  ++frames_;
  std::string log_report;
  Handle(cost_.receive, [&] {
    DoFrame(frame, relay);
    log_report = LogReport(CommandInbox::With::kNothing);
  });
  if (asked_) world_->FromHost(index_, busy_until_, *std::exchange(asked_, std::nullopt));
  SendLogReport(std::move(log_report));
}

void Host::DoFrame(const Frame& frame, bool relay) {
  if (frame.type == kLogFrame && registration_.held()) return DoCommands(frame.payload, relay);
  v1::FromController message;
  failure_ = UnpackFrame(frame, &message);
  if (failure_.ok() && message.has_fence())
    failure_ = absl::FailedPreconditionError(message.fence().reason());
  if (failure_.ok()) failure_ = registration_.Taken(frame).status();
  if (!failure_.ok()) return;
  if (message.has_registered()) failure_ = registration_.Accepted(message.registered());
  if (message.has_log_parent()) DoParent(message.log_parent());
}

v1::ToController Host::Ask() {
  v1::ToController message;
  *message.mutable_log_ask() = registration_.AskLog(spec_.incarnation);
  return message;
}

void Host::DoParent(const v1::LogParent& parent) {
  if (!registration_.Follow(parent)) return;
  relay_.reset();
  pace_.Below(registration_.relay_children());
  if (parent.endpoint().empty()) {
    asked_ = registration_.Keep(PackFrame(Ask()));
  } else {
    relay_ = std::make_unique<RelayLink>(timeline_, world_, parent.endpoint(), this);
  }
}

void Host::RelayUp() {
  Frame frame;
  Handle(cost_.send, [&] { frame = PackFrame(Ask()); });
  relay_->Send(busy_until_, std::move(frame));
}

std::string Host::LogReport(CommandInbox::With with) {
  return relay_ != nullptr && !relay_->up() ? std::string() : registration_.LogReport(with);
}

void Host::DoCommands(const std::string& frame, bool relay) {
  absl::StatusOr<std::vector<Command>> commands = registration_.Take(frame, relay);
  failure_ = commands.status();
  if (!failure_.ok()) return;
  for (Command& command : *commands) core_.OnCommand(std::move(command));
}

void Host::StartLaunch(const PrepareLaunch&, const Launch& launch) {
  if (launch.ahead) pace_.LaunchedAhead();
  ++in_flight_;
  launched_.push_back(launch);
}

void Host::EndInstantly() {
  while (turn_wanted_ || !loaded_.empty() || !sequences_.empty() || !received_.empty() ||
         !read_.empty()) {
    for (const InstallSequence& install : std::exchange(sequences_, {}))
      core_.SequenceLoaded(install.executable, SequenceCode::Make(*DecodeSequence(*install.bytes)));
    for (const ExecutableId id : std::exchange(loaded_, {}))
      core_.InstallDone(id, absl::OkStatus(), spec_.gang_inputs == ArrivalRule::kExternal);
    for (const auto& [node, position] : std::exchange(received_, {}))
      core_.ReceiveDone(node, position, absl::OkStatus());
    for (const NodeId node : std::exchange(read_, {})) core_.ReadDone(node, {});
    if (std::exchange(turn_wanted_, false)) core_.Turn();
  }
}

void Host::OnLaunchEnd(NodeId node) {
  --in_flight_;
  Handle(0, [&] {
    pace_.LaunchEnded();
    core_.LaunchDone(node, absl::OkStatus(), {});
  });
}

void Host::ReportWanted(bool may_wait, bool news) {
  step_wanted_ = pace_.Wanted(may_wait, news) || step_wanted_;
}

void Host::Follow(ReportPace::Next next) {
  if (next == ReportPace::Next::kSend) return SendReport();
  if (next == ReportPace::Next::kNothing) return;
  timeline_->At(timeline_->now() + Nanos{pace_.pause().count()}, [this] {
    Follow(pace_.TimerEnded(in_flight_, ReportPace::Time(timeline_->now())));
  });
}

void Host::SendReport() {
  std::optional<Frame> frame;
  std::string log_report;
  Handle(cost_.send, [&] {
    const Report report = core_.TakeReport();
    if (failure_.ok()) failure_ = registration_.Ended(report.ended);
    if (report.news) {
      v1::ToController message;
      ToProto(report, spec_.incarnation, message.mutable_report());
      frame = PackFrame(message);
      registration_.Stamp(*frame);
    }
    log_report = LogReport(CommandInbox::With::kReport);
  });
  if (frame) world_->FromHost(index_, busy_until_, *std::move(frame));
  SendLogReport(std::move(log_report));  // in the same write
}

void Host::SendLogReport(std::string report) {
  if (report.empty()) return;
  Frame frame;
  frame.type = kLogReportFrame;
  frame.payload = std::move(report);
  if (relay_ != nullptr) {
    if (relay_->up()) relay_->Send(busy_until_, std::move(frame));
    return;
  }
  world_->FromHost(index_, busy_until_, std::move(frame));
}

}  // namespace fairway::scale
