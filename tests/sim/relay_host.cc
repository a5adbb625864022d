// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/relay_host.h"

#include "tests/sim/host.h"
#include "tests/sim/world.h"
#include "wire/link_codec.h"

namespace fairway::sim {
namespace {

constexpr int64_t kRelayTick = kSecond / 10;
constexpr int64_t kRelayRedial = 20 * kMillisecond;

}  // namespace

// The supervisor's link, as its relay uses it.
class RelayHost::ToController final : public Link {
 public:
  explicit ToController(Host& host) : host_(host) {}
  void Send(Frame frame) override { host_.SendToController(std::move(frame)); }
  size_t queued_bytes() const override { return 0; }
  void Close() override {}
  std::string peer() const override { return "the controller"; }

 private:
  Host& host_;
};

RelayHost::RelayHost(World& world, Host& host)
    : world_(world), host_(host), controller_(std::make_unique<ToController>(host)) {}
RelayHost::~RelayHost() = default;

void RelayHost::Start(uint64_t incarnation) {
  if (world_.config.fanout == 0) return;
  RelayOptions options;
  options.self = Incarnation(incarnation);
  options.patience = world_.config.relay_patience;
  options.link_bytes = world_.config.relay_link_bytes;
  options.limits.child_bytes = world_.config.relay_child_bytes;
  options.limits.frame_bytes = world_.config.relay_link_bytes;
  core_.emplace(options, this);
  Tick(++life_);
}

void RelayHost::Die() {
  ++life_;
  core_.reset();
  children_.clear();
  parent_.reset();
  waiting_.clear();
  stopped_ = false;
}

void RelayHost::Stop(int64_t time) {
  if (!core_ || std::exchange(stopped_, true)) return;
  world_.Count("relay stopped");
  world_.Trace("the relay of {} stops for {} us", host_.worker(), time);
  world_.queue.After(time, [this, life = life_] {
    if (life != life_) return;
    stopped_ = false;
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
  Do([this, life] {
    if (life != life_) return;
    core_->Tick(world_.Time());
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
  Do([this, task] {
    ++task_;
    world_.Trace("{} relays to {} children in version {}, below {}", host_.worker(),
                 task.children_size(), task.version(),
                 task.parent().empty() ? "the controller" : task.parent());
    if (!task.children().empty()) {
      world_.Count(task.parent().empty() ? "relay of the controller" : "relay below a relay");
    }
    const absl::Status status = core_->OnTask(task, controller_.get(), world_.Time());
    if (!status.ok()) world_.Broken("link", "a task of {}: {}", host_.worker(), Describe(status));
    Check();
  });
}

void RelayHost::OnControllerFrame(const std::string& frame) {
  Do([this, frame] {
    if (!core_->parent().empty()) return;
    if (const absl::Status status = core_->FromParent(frame, world_.Time()); !status.ok())
      world_.Broken("link", "a frame to the relay of {}: {}", host_.worker(), Describe(status));
    Check();
  });
}

void RelayHost::ControllerEnded() {
  Do([this] {
    ++task_;
    if (core_->version() > 0) world_.Count("relay lost");
    core_->Stop();
  });
}

void RelayHost::Accept(std::unique_ptr<Link> link) {
  Link* const l = link.get();
  children_[l] = std::move(link);
  l->on_frame = [this, l](const Frame& frame) { Do([this, l, frame] { OnChild(l, frame); }); };
  l->on_closed = [this, l](const absl::Status&) {
    Do([this, l] {
      const auto it = children_.find(l);
      if (it == children_.end()) return;
      core_->ChildEnded(l);
      Bury(std::move(it->second));
      children_.erase(it);
    });
  };
}

void RelayHost::OnChild(Link* link, const Frame& frame) {
  const auto it = children_.find(link);
  if (it == children_.end()) return;
  const absl::Status status = core_->FromChild(link, frame, world_.Time());
  Check();
  if (status.ok()) return;
  if (status.code() != absl::StatusCode::kFailedPrecondition && world_.config.behind_percent == 0)
    world_.Broken("link", "the relay of {} refuses what {} says: {}", host_.worker(), link->peer(),
                  Describe(status));
  world_.Trace("the relay of {} refuses {}: {}", host_.worker(), link->peer(), Describe(status));
  core_->ChildEnded(link);
  link->Close();
  Bury(std::move(it->second));
  children_.erase(it);
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
    l->on_frame = [this, l](const Frame& frame) {
      Do([this, l, frame] { OnParent(l, frame.payload); });
    };
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

void RelayHost::OnParent(Link* link, const std::string& frame) {
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
  host_.SendToController(PackFrame(message));
}

}  // namespace fairway::sim
