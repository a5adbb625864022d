// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/host.h"

#include <algorithm>
#include <utility>

#include "tests/sim/controller.h"
#include "tests/sim/machine.h"
#include "wire/link_codec.h"

namespace fairway::sim {
namespace {

constexpr int64_t kSilence = 1000 * kHostSilence / std::chrono::milliseconds(1);

}  // namespace

Host::Host(World& world, Machine& machine)
    : world_(world), machine_(machine), compiles_(world.random.Percent(70)), relay_(world, *this) {}

const std::string& Host::worker() const { return machine_.worker(); }
const std::string& Host::island() const { return machine_.island(); }

bool Host::Fine() const {
  return alive_ && registered_ && !asleep_ && !silent_ && cuts_ == 0 && pulse_ != nullptr &&
         pulse_->watched() && link_->epoch() == world_.epoch;
}

// ---- processes

void Host::Start() {
  alive_ = true;
  ++life_;
  pid_ = world_.next_pid++;
  world_.Trace("{}: its supervisor starts", worker());
  link_life_.emplace();
  account_.emplace(ExecutorAccount::Options());
  relay_.Start();
  Dial();
  StartExecutor(world_.random.Between(1, 1000));
}

void Host::StartExecutor(int64_t delay) {
  After(delay, [this] {
    if (!machine_.alive()) machine_.Start();
  });
}

void Host::Die(int64_t back) {
  if (!alive_) return;
  alive_ = registered_ = asleep_ = false;
  ++life_;
  waiting_.clear();
  for (const std::shared_ptr<Wire>& pulse : Pulses()) pulse->HangUp();
  pulse_.reset();
  old_pulses_.clear();
  if (link_ != nullptr) std::exchange(link_, nullptr)->HangUp();
  relay_.Die();
  machine_.Die();
  world_.queue.After(back, [this] { Start(); });
}

void Host::ExecutorEnded(const ProcessEnd& end) {
  if (!alive_) return;  // nobody reports it
  if (asleep_) return waiting_.push_back([this, end] { ExecutorEnded(end); });
  const ExecutorAccount::Verdict verdict = account_->Ended(end, world_.Time(), false);
  const std::string reason = std::exchange(kill_reason_, "");
  const bool late = world_.random.Percent(20);
  const int64_t told = world_.random.Between(0, (late ? 1500 : 5) * kMillisecond);
  const bool slow = world_.random.Percent(20);
  const int64_t back =
      kMillisecond * verdict.restart_in.count() +
      (slow ? world_.random.Between(5 * kSecond, 20 * kSecond) : world_.random.Between(1, kSecond));
  // The report comes while the hub waits for it, and before there is a successor.
  const int64_t most = told + 2 * world_.config.link_delay + 100 * kMillisecond;
  if (registered_ && cuts_ == 0 && most < std::min(back, kSecond))
    world_.Accounted(end.incarnation, end.signal != 0 && !reason.empty() ? reason : Cause(end));
  After(told, [this] { TellDeaths(); });
  StartExecutor(back);
}

void Host::TellDeaths() {
  if (!registered_) return;
  for (v1::ExecutorDied& died : account_->TakeDeaths()) {
    v1::ToController message;
    *message.mutable_executor_died() = std::move(died);
    link_->Send(message);
  }
}

void Host::Kill(const v1::KillExecutor& kill) {
  const uint64_t present = machine_.alive() ? machine_.incarnation().value : 0;
  if (!account_->Kill(kill.incarnation(), present, kill.reason(), kill.asked())) return;
  world_.Trace("{}: its supervisor kills the executor: {}", worker(), kill.reason());
  kill_reason_ = kill.reason();
  world_.queue.After(world_.random.Between(1, 1000), [this, incarnation = kill.incarnation()] {
    if (machine_.alive() && machine_.incarnation().value == incarnation) machine_.Killed();
  });
}

// ---- links

void Host::Dial() {
  const int64_t pause = kMillisecond * link_life_->NextPause().count();
  After(pause + world_.LinkDelay(), [this] {
    if (link_ != nullptr) return;
    if (world_.controller == nullptr || silent_) return Dial();
    link_ = std::make_shared<Wire>(world_, *this, this);
    link_->Open();
    v1::ToController message;
    v1::RegisterWorker* const registration = message.mutable_register_worker();
    SayLinkProtocols(registration);
    registration->set_worker(worker());
    registration->set_island(island());
    registration->set_incarnation(static_cast<uint64_t>(pid_));
    registration->set_host("host of " + worker());
    registration->set_pid(pid_);
    registration->set_has_compiler(compiles_);
    link_->Send(message);
  });
}

void Host::DialPulse() {
  After(world_.LinkDelay(), [this] {
    if (!registered_) return;
    if (world_.controller == nullptr || silent_) return DialPulse();
    if (pulse_ != nullptr) old_pulses_.push_back(std::move(pulse_));
    pulse_ = std::make_shared<Wire>(world_, *this, this);
    pulse_->Open();
    v1::ToController message;
    message.mutable_pulse()->set_worker(worker());
    message.mutable_pulse()->set_host("host of " + worker());
    message.mutable_pulse()->set_pid(pid_);
    pulse_->Send(message);
  });
}

std::vector<std::shared_ptr<Wire>> Host::Pulses() const {
  std::vector<std::shared_ptr<Wire>> all = old_pulses_;
  if (pulse_ != nullptr) all.push_back(pulse_);
  return all;
}

void Host::Beat(const std::shared_ptr<Wire>& wire) {
  if (wire != link_) return;
  if (asleep_) return waiting_.push_back([this, wire] { Beat(wire); });
  const LinkLife::Beat beat = link_life_->NextBeat(world_.Time());
  wire->CheckPatience(beat.give_up, *link_life_, woke_at_);
  if (beat.give_up) {
    wire->HangUp();
    return OnEnd(*wire);
  }
  v1::ToController message;
  message.mutable_heartbeat()->set_sequence(beat.sequence);
  wire->Send(message);
  world_.InBackground(kMillisecond * link_life_->interval().count(), [this, wire] { Beat(wire); });
}

void Host::OnFrame(Wire& wire, const Frame& frame) {
  if (asleep_)
    return waiting_.push_back([this, w = wire.shared_from_this(), frame] { OnFrame(*w, frame); });
  v1::FromController message;
  if (const absl::Status status = UnpackFrame(frame, &message); !status.ok())
    return world_.Broken("codec", "{}: {}", worker(), Describe(status));
  if (&wire != link_.get()) {
    // A pulse is fenced if the link was cut meanwhile.
    const bool pulse = std::ranges::count(Pulses(), &wire, &std::shared_ptr<Wire>::get) > 0;
    if (pulse && !message.has_fence())
      world_.Broken("F1", "{}: its pulse gets {}", worker(), message.ShortDebugString());
    return;  // of a link that it has given up
  }
  link_life_->Heard(world_.Time());
  switch (message.message_case()) {
    case v1::FromController::kHeartbeatAck:
      return;
    case v1::FromController::kWorkerRegistered:
      registered_ = true;
      TellDeaths();
      DialPulse();
      link_life_->Registered(message.worker_registered().heartbeat_interval_ms(),
                             message.worker_registered().deadline_ms());
      return Beat(link_);
    case v1::FromController::kKillExecutor:
      return Kill(message.kill_executor());
    case v1::FromController::kCompileRequest:
      return Compile(link_, message.compile_request());
    default:
      world_.Broken("F1", "the supervisor of {} gets {}", worker(), message.ShortDebugString());
  }
}

void Host::Compile(const std::shared_ptr<Wire>& wire, const v1::LinkCompileRequest& request) {
  v1::ToController answer;
  answer.mutable_compile_response()->set_id(request.id());
  answer.mutable_compile_response()->set_code("code of " + request.program());
  const auto time = world_.random.Between(1, kSecond);
  After(time, [this, wire, answer = std::move(answer)] {
    if (wire == link_) wire->Send(answer);
  });
}

void Host::OnEnd(Wire& wire) {
  if (asleep_) return waiting_.push_back([this, w = wire.shared_from_this()] { OnEnd(*w); });
  if (&wire == pulse_.get()) {
    pulse_ = nullptr;
    if (registered_) DialPulse();
  } else if (&wire == link_.get()) {
    link_ = nullptr;
    registered_ = false;  // the pulse stays
    account_->LinkEnded();
    Dial();
  } else {
    std::erase_if(old_pulses_, [&](const auto& old) { return old.get() == &wire; });
  }
}

// ---- faults

void Host::Wake() {
  if (!asleep_) return;
  world_.Trace("{}: its supervisor goes on", worker());
  asleep_ = false;
  woke_at_ = world_.queue.now();
  for (std::deque<Event> waited = std::exchange(waiting_, {}); !waited.empty();) {
    Event run = std::move(waited.front());
    waited.pop_front();
    run();
  }
}

void Host::CutLink(bool hub_first, int64_t later) {
  if (link_ == nullptr) return;
  ++cuts_;
  last_cut_ = world_.queue.now() + later;
  world_.queue.After(later, [this] { --cuts_; });
  link_->Cut(hub_first, later);
  if (pulse_ == nullptr || !world_.random.Percent(30)) return;
  for (const std::shared_ptr<Wire>& pulse : Pulses()) pulse->Cut(hub_first, later);
}

bool Host::CutLately() const {
  return last_cut_ >= 0 && world_.queue.now() < last_cut_ + 10 * kSecond;
}

void Host::Silence(int64_t time) {
  silent_ = true;
  machine_.Sleep();
  const auto tell = [this, life = life_, pulses = Pulses()] {
    if (!silent_ || life != life_ || pulses.empty()) return;
    world_.Count("host silent for long");
    for (const std::shared_ptr<Wire>& pulse : pulses) pulse->HostSilent();
  };
  if (time >= kSilence) world_.queue.After(kSilence, tell);
  world_.queue.After(time, [this] {
    silent_ = false;
    heard_at_ = world_.queue.now();
    world_.Trace("{}: its host is heard again", worker());
    while (!held_.empty()) {
      Event run = std::move(held_.front());
      held_.pop_front();
      run();
    }
    machine_.Wake();
  });
}

}  // namespace fairway::sim
