// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/relay_host.h"

#include "tests/sim/host.h"
#include "tests/sim/world.h"
#include "wire/link_codec.h"

namespace fairway::sim {
namespace {

constexpr int64_t kRelayTick = kSecond / 10;
constexpr int64_t kRelayRedial = 20 * kMillisecond;
// A late relay has another one in its place by then.
constexpr int64_t kLateStays = 8 * kSecond;

}  // namespace

// The link to the controller.
class RelayHost::ToController final : public Link {
 public:
  explicit ToController(RelayHost& relay) : relay_(relay) {}
  void Send(Frame frame) override {
    if (relay_.wire_ != nullptr) relay_.wire_->Send(std::move(frame));
  }
  size_t queued_bytes() const override { return 0; }
  void Close() override {}
  std::string peer() const override { return "the controller"; }

 private:
  RelayHost& relay_;
};

RelayHost::RelayHost(World& world, Host& host)
    : world_(world), host_(host), controller_(std::make_unique<ToController>(*this)) {}
RelayHost::~RelayHost() = default;

void RelayHost::Start() {
  if (world_.config.fanout == 0) return;
  pid_ = world_.next_pid++;
  RelayOptions options;
  options.self = Incarnation((uint64_t{1} << 40) + static_cast<uint64_t>(pid_));  // no executor's
  options.patience = world_.config.relay_patience;
  options.soon = world_.RelaySoon();
  options.link_bytes = world_.config.relay_link_bytes;
  options.limits.child_bytes = world_.config.relay_child_bytes;
  options.limits.frame_bytes = world_.config.relay_link_bytes;
  core_.emplace(options, this);
  link_life_.emplace();
  Tick(++life_);
  Dial();
}

void RelayHost::Die() {
  ++life_;
  if (wire_ != nullptr) std::exchange(wire_, nullptr)->HangUp();
  core_.reset();
  children_.clear();
  parent_.reset();
  waiting_.clear();
  stopped_ = false;
}

void RelayHost::Kill() {
  if (!core_) return;
  world_.Count("relay killed");
  world_.Trace("the relay of {} is killed", host_.worker());
  Die();
  world_.queue.After(world_.random.Between(kSecond / 10, 5 * kSecond), [this, life = life_] {
    if (life == life_ && host_.alive()) Start();
  });
}

void RelayHost::CutLink(bool hub_first, int64_t later) {
  if (wire_ != nullptr) wire_->Cut(hub_first, later);
}

void RelayHost::Dial() {
  const int64_t pause = kMillisecond * link_life_->NextPause().count();
  world_.InBackground(pause + world_.LinkDelay(), [this, life = life_] {
    if (life != life_) return;
    Do([this, life] {
      if (life != life_ || wire_ != nullptr) return;
      if (world_.controller == nullptr || host_.silent()) return Dial();
      wire_ = std::make_shared<Wire>(world_, host_, this);
      wire_->Open();
      v1::ToController message;
      v1::RegisterRelay* const registration = message.mutable_register_relay();
      SayLinkProtocols(registration);
      registration->set_worker(host_.worker());
      registration->set_incarnation((uint64_t{1} << 40) + static_cast<uint64_t>(pid_));
      registration->set_endpoint(host_.worker() + ":1");
      registration->set_host("host of " + host_.worker());
      registration->set_pid(pid_);
      wire_->Send(message);
    });
  });
}

void RelayHost::Beat(const std::shared_ptr<Wire>& wire) {
  Do([this, wire] {
    if (wire != wire_) return;
    const LinkLife::Beat beat = link_life_->NextBeat(world_.Time());
    wire->CheckPatience(beat.give_up, *link_life_, went_on_at_);
    if (beat.give_up) {
      wire->HangUp();
      return OnEnd(*wire);
    }
    v1::ToController message;
    message.mutable_heartbeat()->set_sequence(beat.sequence);
    wire->Send(message);
    world_.InBackground(kMillisecond * link_life_->interval().count(),
                        [this, wire] { Beat(wire); });
  });
}

void RelayHost::OnFrame(Wire& wire, const Frame& frame) {
  Do([this, of = wire.shared_from_this(), frame] { OnController(of, frame); });
}

void RelayHost::OnController(const std::shared_ptr<Wire>& wire, const Frame& frame) {
  if (wire != wire_) return;
  link_life_->Heard(world_.Time());
  if (frame.type == kLogFrame) return OnControllerFrame(frame);
  v1::FromController message;
  if (const absl::Status status = UnpackFrame(frame, &message); !status.ok())
    return world_.Broken("codec", "the relay of {}: {}", host_.worker(), Describe(status));
  switch (message.message_case()) {
    case v1::FromController::kHeartbeatAck:
      return;
    case v1::FromController::kWorkerRegistered:
      link_life_->Registered(message.worker_registered().heartbeat_interval_ms(),
                             message.worker_registered().deadline_ms());
      return Beat(wire);
    case v1::FromController::kRelayTask:
      return OnTask(message.relay_task());
    default:
      world_.Broken("link", "the relay of {} gets {}", host_.worker(), message.ShortDebugString());
  }
}

void RelayHost::OnEnd(Wire& wire) {
  Do([this, of = wire.shared_from_this()] {
    if (of != wire_) return;
    wire_ = nullptr;
    ++task_;
    if (core_->version() > 0) world_.Count("relay lost");
    core_->Stop();
    Bury(std::move(parent_));
    Dial();
  });
}

void RelayHost::Stop(int64_t time) {
  if (!core_ || stopped_) return;
  world_.Count("relay stopped");
  world_.Trace("the relay of {} stops for {} us", host_.worker(), time);
  Pause(time);
}

void RelayHost::BeLate(int64_t time, bool rule) {
  if (!core_) return;
  world_.Count("relay late");
  world_.Trace("the relay of {} is late for {} us", host_.worker(), time);
  const int64_t now = world_.queue.now();
  LateUntil(now + time, now, rule);
}

void RelayHost::LateUntil(int64_t end, int64_t begun, bool rule) {
  const int64_t now = world_.queue.now();
  if (now >= end) {
    if (rule && core_->version() > 0 && now - std::max(begun, task_since_) > kLateStays)
      world_.Broken("link", "the relay of {} is late and stays in the tree", host_.worker());
    return;
  }
  const int64_t pause = world_.random.Between(150, 190) * kMillisecond;
  Pause(pause);
  const int64_t run = world_.random.Between(5, 15) * kMillisecond;
  world_.queue.After(pause + run, [this, end, begun, rule, life = life_] {
    if (life == life_) LateUntil(end, begun, rule);
  });
}

void RelayHost::Pause(int64_t time) {
  if (!core_ || std::exchange(stopped_, true)) return;
  world_.queue.After(time, [this, life = life_] {
    if (life != life_) return;
    stopped_ = false;
    went_on_at_ = world_.queue.now();
    world_.Trace("the relay of {} goes on", host_.worker());
    while (!waiting_.empty() && !stopped_) {
      Event run = std::move(waiting_.front());
      waiting_.pop_front();
      run();
    }
  });
}

void RelayHost::Do(Event run) {
  if (!core_) return;
  if (stopped_) return void(waiting_.push_back(std::move(run)));
  run();
}

void RelayHost::Check() {
  if (!core_) return;
  if (const absl::Status status = core_->CheckInvariants(); !status.ok())
    world_.Broken("invariant", "the relay of {}: {}", host_.worker(), Describe(status));
}

void RelayHost::Tick(uint64_t life) {
  if (life != life_) return;
  Do([this, life, due = world_.Time()] {
    if (life != life_) return;
    core_->Tick(world_.Time());
    core_->Ask(world_.Time(), world_.Time() - due);
    Check();
    world_.InBackground(kRelayTick, [this, life] { Tick(life); });
  });
}

void RelayHost::Bury(std::unique_ptr<Link> link) {
  if (link == nullptr) return;
  link->on_frame = nullptr;
  link->on_closed = nullptr;
  world_.InBackground(1, [link = std::move(link)] {});
}

void RelayHost::OnTask(const v1::RelayTask& task) {
  ++task_;
  task_since_ = world_.queue.now();
  world_.Trace("{} relays to {} children in version {}, below {}", host_.worker(),
               task.children_size(), task.version(),
               task.parent().empty() ? "the controller" : task.parent());
  if (!task.children().empty())
    world_.Count(task.parent().empty() ? "relay of the controller" : "relay below a relay");
  const absl::Status status = core_->OnTask(task, controller_.get(), world_.Time());
  if (core_->parent().empty()) Bury(std::move(parent_));
  if (!status.ok()) world_.Broken("link", "a task of {}: {}", host_.worker(), Describe(status));
  Check();
}

void RelayHost::OnControllerFrame(const Frame& frame) {
  if (!core_->parent().empty()) return;
  if (const absl::Status status = core_->FromParent(frame, world_.Time()); !status.ok())
    world_.Broken("link", "a frame to the relay of {}: {}", host_.worker(), Describe(status));
  Check();
}

void RelayHost::Accept(std::unique_ptr<Link> link) {
  Link* const l = link.get();
  children_.push_back(std::move(link));
  l->on_frame = [this, l](const Frame& frame) { Do([this, l, frame] { OnChild(l, frame); }); };
  l->on_closed = [this, l](const absl::Status&) {
    Do([this, l] {
      auto child = TakeChild(l);
      if (child == nullptr) return;
      core_->ChildEnded(l, world_.Time());
      Bury(std::move(child));
    });
  };
}

void RelayHost::OnChild(Link* link, const Frame& frame) {
  if (std::ranges::count(children_, link, &std::unique_ptr<Link>::get) == 0) return;
  const absl::Status status = core_->FromChild(link, frame, world_.Time());
  Check();
  if (status.ok()) return;
  if (status.code() != absl::StatusCode::kFailedPrecondition && world_.config.behind_percent == 0)
    world_.Broken("link", "the relay of {} refuses what {} says: {}", host_.worker(), link->peer(),
                  Describe(status));
  world_.Trace("the relay of {} refuses {}: {}", host_.worker(), link->peer(), Describe(status));
  core_->ChildEnded(link, world_.Time());
  link->Close();
  Bury(TakeChild(link));
}

std::unique_ptr<Link> RelayHost::TakeChild(Link* link) {
  const auto it = std::ranges::find(children_, link, &std::unique_ptr<Link>::get);
  if (it == children_.end()) return nullptr;
  std::unique_ptr<Link> out = std::move(*it);
  children_.erase(it);
  return out;
}

void RelayHost::DialParent(const std::string&) {
  Bury(std::move(parent_));
  world_.InBackground(world_.LinkDelay(), [this, task = task_] { Retry(task); });
}

void RelayHost::Retry(uint64_t task) {
  Do([this, task] {
    if (task != task_ || core_->parent().empty()) return;
    parent_ = world_.pipes->Dial(host_, core_->parent());
    if (parent_ == nullptr)
      return world_.InBackground(kRelayRedial + world_.LinkDelay(), [this, task] { Retry(task); });
    Link* const l = parent_.get();
    l->on_frame = [this, l](const Frame& frame) { Do([this, l, frame] { OnParent(l, frame); }); };
    l->on_closed = [this, l, task](const absl::Status&) {
      Do([this, l, task] {
        if (parent_.get() != l) return;
        core_->ParentEnded(l);
        Bury(std::move(parent_));
        world_.InBackground(kRelayRedial + world_.LinkDelay(), [this, task] { Retry(task); });
      });
    };
    core_->ParentUp(l);
  });
}

void RelayHost::OnParent(Link* link, const Frame& frame) {
  if (parent_.get() != link || core_->version() == 0) return;
  if (const absl::Status status = core_->FromParent(frame, world_.Time()); !status.ok())
    world_.Broken("link", "a frame to the relay of {}: {}", host_.worker(), Describe(status));
  Check();
}

void RelayHost::Tell(v1::RelayTrouble trouble) {
  world_.Count("child given up by its relay");
  world_.Trace("the relay of {} gives up {}: {}", host_.worker(), trouble.incarnation(),
               trouble.reason());
  v1::ToController message;
  *message.mutable_relay_trouble() = std::move(trouble);
  controller_->Send(PackFrame(message));
}

}  // namespace fairway::sim
