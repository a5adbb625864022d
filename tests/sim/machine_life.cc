// SPDX-License-Identifier: Apache-2.0
// A machine's processes, its registrations at the controller, and what it reports.
#include <algorithm>
#include <utility>

#include "tests/sim/controller.h"
#include "tests/sim/host.h"
#include "tests/sim/intruder.h"
#include "tests/sim/machine.h"
#include "tests/sim/wire.h"
#include "tests/sim/world.h"
#include "wire/link_codec.h"
#include "worker/process/exit_codes.h"

namespace fairway::sim {
Machine::Machine(World& world, std::string worker, std::string island, int island_workers,
                 int devices, int64_t memory)
    : world_(world),
      worker_(std::move(worker)),
      island_(std::move(island)),
      island_workers_(island_workers),
      devices_(devices),
      memory_(memory),
      host_(std::make_unique<Host>(world, *this)),
      used_(devices, 0),
      queues_(devices) {}

Machine::~Machine() = default;

ExecutorSpec Machine::Spec() {
  ExecutorSpec spec;
  spec.worker = worker_;
  spec.island = island_;
  spec.island_workers = island_workers_;
  spec.incarnation = incarnation_;
  spec.runtime = "sim";
  spec.platform_name = "cpu";
  spec.memory_kinds = {"device", "host"};
  spec.num_devices = devices_;
  spec.device_memory = memory_;
  spec.gang_inputs = world_.config.gang_inputs;
  spec.highest_launch_id = registration_->Ask();
  spec.data_endpoint = worker_;
  spec.data_key = KeyOf(incarnation_.value);
  return spec;
}

// ---- processes

void Machine::Start() {
  core_ =
      std::make_unique<ExecutorCore>(this, world_.config.gangs_at_work,
                                     world_.config.executor_units, world_.config.executor_shards);
  readying_ = {};
  incarnation_ = Incarnation();
  pid_ = world_.next_pid++;
  link_life_.emplace();
  registration_.emplace();
  pace_.emplace(island_workers_);
  gang_watch_.Clear();
  gang_watch_.ForgetIds();
  turn_wanted_ = false;
  ++life_;
  asleep_ = false;
  world_.Trace("{} starts, pid {}", worker_, pid_);
  host_->ExecutorStarted();
  Connect();
}

void Machine::End(int signal, int exit_code) {
  const ProcessEnd end{static_cast<pid_t>(pid_), signal, exit_code, incarnation_.value, {}};
  Die();
  host_->ExecutorEnded(end);
}

void Machine::FailPulls(const char* why) {
  for (auto& [number, pull] : pulls_) {
    if (pull.done == nullptr) continue;
    world_.queue.After(world_.DataDelay(),
                       [done = std::move(pull.done), why] { done(absl::UnavailableError(why)); });
  }
  pulls_.clear();
}

void Machine::Die() {
  if (!alive()) return;
  world_.Trace("{} dies", worker_);
  KeepReport();
  // Without its supervisor's word the controller waits for its connection.
  const int64_t wait = host_->CutLately() ? world_.config.link_grace : 0;
  if (session_ != 0) world_.MayBeLost(session_, wait + 2000 * kMillisecond);
  world_.BreakGangs(this, session_);
  core_.reset();
  ++life_;
  session_ = 0;
  registration_.reset();
  asleep_ = false;
  LetRelayGo();
  if (wire_ != nullptr) wire_->HangUp();
  wire_ = nullptr;
  buffers_.clear();
  failed_.clear();
  used_.assign(devices_, 0);
  for (auto& queue : queues_) queue.clear();
  runs_.clear();
  receives_.clear();
  assemblies_.Clear();
  loaded_.clear();
  follows_.clear();
  blocks_.clear();
  FailPulls("the peer went away");
  // Answers waiting pulls; everything else is of an earlier life and does not run.
  WakeUp();
}

void Machine::Reset() {
  world_.Trace("{} resets", worker_);
  world_.BreakGangs(this, session_);
  KeepReport();
  resetting_ = true;
  core_->Reset();
  readying_ = {};
  gang_watch_.Clear();
  turn_wanted_ = false;
  resetting_ = false;
  pace_.emplace(island_workers_);
  ++life_;
  session_ = 0;
  incarnation_ = Incarnation();
  loaded_.clear();
  follows_.clear();
  blocks_.clear();
  receives_.clear();
  assemblies_.Clear();
  FailPulls("the peer began anew");
  if (core_->num_shards() + core_->num_nodes() + core_->num_sends() != 0)
    world_.Broken("B1", "{}: Reset left {} shards, {} nodes, {} sends", worker_,
                  core_->num_shards(), core_->num_nodes(), core_->num_sends());
  Connect();
}

void Machine::Sleep() {
  if (!alive() || asleep_) return;
  asleep_ = true;
  slept_at_ = world_.queue.now();
}

void Machine::Wake() {
  if (!asleep_) return;
  world_.Trace("{} goes on", worker_);
  woke_at_ = world_.queue.now();
  WakeUp();
}

void Machine::WakeUp() {
  asleep_ = false;
  while (!waiting_.empty() && !asleep_) {
    auto [life, run] = std::move(waiting_.front());
    waiting_.pop_front();
    if (life == life_ || life == 0) run();
  }
}

// ---- the registration

bool Machine::Fine() const {
  return registration_ && registration_->held() && !asleep_ && wire_ != nullptr && !wire_->cut() &&
         wire_->epoch() == world_.epoch && host_->Fine();
}

void Machine::Connect() {
  const int64_t pause = kMillisecond * link_life_->NextPause().count();
  After(pause + world_.LinkDelay(), [this] {
    if (world_.controller == nullptr || host_->silent()) return Connect();
    incarnation_ = Incarnation(world_.next_incarnation++);
    session_ = incarnation_.value;
    epoch_ = world_.epoch;
    was_registered_ = false;
    on_the_way_.clear();
    said_.clear();
    known_.clear();
    concluded_ = 0;
    behind_ = false;
    wire_ = std::make_shared<Wire>(world_, *host_, this);
    wire_->Open();
    v1::ToController message;
    v1::RegisterExecutor* const registration = message.mutable_register_executor();
    SayLinkProtocols(registration);
    registration->set_host("host of " + worker_);
    registration->set_pid(pid_);
    ToProto(Spec(), registration->mutable_spec());
    wire_->Send(message);
  });
}

void Machine::Redial() {
  const int64_t pause = kMillisecond * link_life_->NextPause().count();
  After(pause + world_.LinkDelay(), [this] {
    if (!registration_->cut()) return;
    if (world_.controller == nullptr || host_->silent()) return Redial();
    wire_ = std::make_shared<Wire>(world_, *host_, this);
    wire_->Open();
    v1::ToController message;
    *message.mutable_resume_executor() = registration_->Resume(incarnation_);
    const LogNumber applied = message.resume_executor().applied();
    const bool was_behind = behind_;
    message.mutable_resume_executor()->set_applied(Claim(applied));
    // While its log comes from a relay, the controller does not look at what it says here.
    if (!registration_->relay().empty()) behind_ = was_behind;
    wire_->Send(message);
  });
}

void Machine::OnResumed(const v1::Resumed& resumed) {
  world_.Trace("{} goes on, {} was taken", worker_, resumed.taken());
  world_.Count("link resumed");
  world_.WentOn(session_);
  absl::StatusOr<std::vector<Frame>> again = registration_->Resumed(resumed);
  if (!again.ok()) return world_.Broken("link", "{}: {}", worker_, Describe(again.status()));
  for (Frame& frame : *again) SendFrame(std::move(frame));
  SendLogReport(CommandInbox::With::kNothing);
  link_life_->Registered(link_life_->interval().count(), link_life_->deadline().count());
  Beat(wire_);
}

void Machine::OnFrame(Wire& wire, const Frame& frame) {
  if (&wire != wire_.get()) return;
  if (asleep_) {
    waiting_.emplace_back(life_, [this, w = wire_, frame] { OnFrame(*w, frame); });
    return;
  }
  link_life_->Heard(world_.Time());
  if (frame.type == kLogFrame) {
    if (behind_) world_.Broken("link", "{} lacks concluded entries and goes on", worker_);
    return OnLogFrame(frame.payload, false);
  }
  v1::FromController message;
  if (const absl::Status status = UnpackFrame(frame, &message); !status.ok())
    return world_.Broken("codec", "{}: {}", worker_, Describe(status));
  const absl::StatusOr<bool> fresh = registration_->Taken(frame);
  if (!fresh.ok()) return world_.Broken("link", "{}: {}", worker_, Describe(fresh.status()));
  if (!*fresh) return;
  switch (message.message_case()) {
    case v1::FromController::kHeartbeatAck:
      return;
    case v1::FromController::kRegistered:
      id_ = ExecutorId(message.registered().executor());
      if (const absl::Status status = registration_->Accepted(message.registered()); !status.ok())
        return world_.Broken("F1", "{}: {}", worker_, Describe(status));
      link_life_->Registered(message.registered().heartbeat_interval_ms(),
                             message.registered().deadline_ms());
      Beat(wire_);
      return TellLate();
    case v1::FromController::kLogParent:
      return OnParent(message.log_parent());
    case v1::FromController::kResumed:
      return OnResumed(message.resumed());
    case v1::FromController::kNotResumed:
      world_.Trace("{} cannot go on: {}", worker_, message.not_resumed().reason());
      world_.Count("link not resumed");
      wire_->HangUp();
      return LinkEnded(false);
    case v1::FromController::kFence:
      world_.Trace("{} is fenced: {}", worker_, message.fence().reason());
      if (!message.fence().asked()) world_.Count("executor fenced");
      return End(0, message.fence().asked() ? kExitAsked : kExitFenced);
    default:
      world_.Broken("F1", "the executor of {} gets {}", worker_, message.ShortDebugString());
  }
}

void Machine::OnLogFrame(const std::string& frame, bool relay) {
  const absl::StatusOr<std::vector<Command>> commands = registration_->Take(frame, relay);
  if (!commands.ok())
    return world_.Broken("codec", "a frame to {}: {}", worker_, Describe(commands.status()));
  NoteLogFrame(frame);
  for (const Command& command : *commands) {
    CheckNext(command);
    Deliver(command);
    if (!alive()) return;
  }
  CheckTurns();
  SendLogReport(CommandInbox::With::kNothing);
}

void Machine::Expect(uint64_t session, const Command& command) {
  if (session != session_) return;
  std::string sent = EncodeCommand(command).value();
  const absl::StatusOr<Command> decoded = DecodeCommand(sent);
  if (!decoded.ok() || EncodeCommand(*decoded).value() != sent)
    world_.Broken("codec", "a command of kind {} to {} is another one when it is decoded: {}",
                  command.index(), worker_, Describe(decoded.status()));
  on_the_way_.emplace_back(std::move(sent), world_.queue.now());
}

void Machine::CheckNext(const Command& command) {
  const std::string sent = EncodeCommand(command).value();
  if (on_the_way_.empty() || on_the_way_.front().first != sent)
    return world_.Broken("link", "{} gets a command of kind {}, which was not sent next", worker_,
                         command.index());
  on_the_way_.pop_front();
}

void Machine::OnEnd(Wire& wire) {
  if (&wire != wire_.get()) return;
  const std::shared_ptr<Wire> kept = wire_;
  if (asleep_) {
    waiting_.emplace_back(life_, [this, kept] { OnEnd(*kept); });
    return;
  }
  LinkEnded(true);
}

void Machine::LinkEnded(bool cut) {
  world_.Trace("the link of {} ends", worker_);
  wire_ = nullptr;
  const bool held = registration_->held();
  if (!cut || !registration_->Cut(world_.Time())) return EndRegistration();
  if (held) {
    cut_at_ = world_.queue.now();
    After(kMillisecond * registration_->grace().count(), [this] { CheckGrace(); });
  }
  Redial();
}

void Machine::CheckGrace() {
  if (!registration_->GraceOver(world_.Time())) return;
  world_.Count("link not back in time");
  const bool hindered = world_.controller == nullptr || epoch_ != world_.epoch ||
                        world_.config.stops > 0 || host_->silent() ||
                        host_->heard_at() >= cut_at_ || woke_at_ >= cut_at_;
  if (!hindered)
    world_.Broken("link", "{} gives up its connection, though nothing was in its way", worker_);
  world_.GivenUpBy(session_);
  EndRegistration();
}

void Machine::EndRegistration() {
  registration_->End();
  LetRelayGo();
  pace_->Stop();
  // Other executors may never get the launches that wait for them (ExecutorSession::Drain).
  world_.BreakGangs(this, session_);
  AfterLaunch();
}

void Machine::Beat(const std::shared_ptr<Wire>& wire) {
  if (wire != wire_) return;
  if (asleep_) return void(waiting_.emplace_back(life_, [this, wire] { Beat(wire); }));
  const LinkLife::Beat beat = link_life_->NextBeat(world_.Time());
  wire->CheckPatience(beat.give_up, *link_life_, woke_at_);
  if (beat.give_up) {
    world_.Trace("{} gives the controller up", worker_);
    world_.GivenUpBy(session_);
    wire->HangUp();
    return LinkEnded(false);
  }
  SendLogReport(CommandInbox::With::kHeartbeat);
  v1::ToController message;
  message.mutable_heartbeat()->set_sequence(beat.sequence);
  SendFrame(PackFrame(message));
  world_.InBackground(kMillisecond * link_life_->interval().count(), [this, wire] { Beat(wire); });
}

// ---- reports

void Machine::ReportWanted(bool may_wait, bool news) {
  if (!pace_->Wanted(may_wait, news)) return;
  After(world_.random.Between(0, 300),
        [this] { Follow(pace_->Step(runs_.size(), world_.Time())); });
}

void Machine::Follow(ReportPace::Next next) {
  if (next == ReportPace::Next::kSend) SendReport();
  if (next != ReportPace::Next::kTimer) return;
  world_.Count("report waits for more ends");
  After(pace_->pause() / std::chrono::microseconds(1),
        [this] { Follow(pace_->TimerEnded(runs_.size(), world_.Time())); });
}

void Machine::SendReport() {
  const Report report = core_->TakeReport();
  if (const absl::Status ended = registration_->Ended(report.ended); !ended.ok())
    world_.Broken("link", "{}: {}", worker_, Describe(ended));
  if (report.news) {
    v1::ToController message;
    ToProto(report, incarnation_, message.mutable_report());
    SendKept(message);
  } else {
    world_.Count("report of the log alone");
  }
  SendLogReport(CommandInbox::With::kReport);
}

void Machine::SendFrame(Frame frame) {
  if (wire_ == nullptr) return;
  registration_->Stamp(frame);
  wire_->Send(std::move(frame));
}

void Machine::SendKept(const v1::ToController& message) {
  Frame frame = registration_->Keep(PackFrame(message));
  said_.push_back(frame.payload);
  if (registration_->held()) SendFrame(std::move(frame));
}

void Machine::Heard(uint64_t session, const std::string& report) {
  if (session != session_) return;
  if (said_.empty() || said_.front() != report)
    return world_.Broken("link", "a report of {} comes that was not sent next", worker_);
  said_.pop_front();
}

// Keeps its last report, which it may send, wrongly, once it has registered anew.
void Machine::KeepReport() {
  if (session_ == 0 || core_ == nullptr || !was_registered_) return;
  late_ = v1::ToController();
  ToProto(core_->TakeReport(), incarnation_, late_.mutable_report());
}

void Machine::TellLate() {
  was_registered_ = true;
  if (!late_.has_report() || !world_.random.Percent(50)) return;
  const int64_t delay = world_.random.Between(0, 3000 * kMillisecond);
  After(delay, [this, late = std::exchange(late_, {})] {
    if (wire_ == nullptr || !registration_->held()) return;
    world_.Count("late report");
    SendKept(late);
  });
}

}  // namespace fairway::sim
