// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/relay.h"

#include <algorithm>

#include <fmt/format.h>

#include "wire/link_codec.h"
#include "wire/link_protocol.h"

namespace fairway::scale {
namespace {

constexpr Nanos kTick = 100'000'000;  // as RelayProcess ticks
constexpr Nanos kRedial = 20'000'000;
constexpr uint64_t kIncarnations = uint64_t{1} << 40;  // above those of executors

RelayOptions OptionsOf(int index) {
  RelayOptions out;
  out.self = Incarnation(kIncarnations + static_cast<uint64_t>(index));
  out.patience = std::chrono::hours(1);  // nobody fails here
  return out;
}

RelayCore::Time TimeAt(Nanos now) { return RelayCore::Time(now); }

}  // namespace

// A link between a relay and its child. The relay's end is a Link for its RelayCore.
struct RelayLink::Pipe final : public Link, public std::enable_shared_from_this<Pipe> {
  Pipe(Relay* of, RelayLink* to) : relay(of), child(to->self_) {}
  void Send(Frame frame) override {
    frame.Join();
    relay->out_.push_back([pipe = shared_from_this(), frame = std::move(frame)](Nanos at) {
      Relay& from = *pipe->relay;
      from.timeline_->At(at + from.world_->network(), [pipe, frame] {
        RelayLink* const to = *pipe->child;
        if (to != nullptr && to->pipe_ == pipe) to->child_->FromRelay(frame);
      });
    });
  }
  size_t queued_bytes() const override { return 0; }
  void Close() override {
    relay->timeline_->At(relay->timeline_->now() + relay->world_->network(),
                         [pipe = shared_from_this()] {
                           RelayLink* const to = *pipe->child;
                           if (to == nullptr || to->pipe_ != pipe) return;
                           to->pipe_ = nullptr;
                           to->timeline_->At(to->timeline_->now() + kRedial, [pipe] {
                             if (*pipe->child != nullptr) (*pipe->child)->Dial();
                           });
                         });
  }
  std::string peer() const override { return "a child"; }

  Relay* const relay;
  const std::shared_ptr<RelayLink*> child;  // nullptr: it has closed the link
};

RelayLink::RelayLink(Timeline* timeline, RelayWorld* world, std::string endpoint, RelayChild* child)
    : timeline_(timeline),
      world_(world),
      endpoint_(std::move(endpoint)),
      child_(child),
      self_(std::make_shared<RelayLink*>(this)) {
  Dial();
}

RelayLink::~RelayLink() {
  *self_ = nullptr;
  if (pipe_ == nullptr) return;
  timeline_->At(timeline_->now() + world_->network(),
                [pipe = pipe_] { pipe->relay->ChildEnded(pipe); });
}

void RelayLink::Dial() {
  timeline_->At(timeline_->now() + 2 * world_->network(), [self = self_] {
    if (*self == nullptr) return;
    RelayLink& link = **self;
    link.pipe_ = link.world_->RelayAt(link.endpoint_).Accept(&link);
    link.child_->RelayUp();
  });
}

void RelayLink::Send(Nanos at, Frame frame) {
  timeline_->At(at + world_->network(),
                [pipe = pipe_, frame = std::move(frame)] { pipe->relay->OnChild(pipe, frame); });
}

// What the core sends to the controller, or to the relay above it.
class Relay::Up final : public Link {
 public:
  Up(Relay* relay, bool controller) : relay_(relay), controller_(controller) {}
  void Send(Frame frame) override {
    frame.Join();
    relay_->out_.push_back([this, frame = std::move(frame)](Nanos at) {
      if (controller_) return relay_->world_->FromRelay(relay_->index_, at, frame);
      if (relay_->link_ != nullptr && relay_->link_->up()) relay_->link_->Send(at, frame);
    });
  }
  size_t queued_bytes() const override { return 0; }
  void Close() override {}  // the next task closes it
  std::string peer() const override { return controller_ ? "the controller" : "a relay"; }

 private:
  Relay* const relay_;
  const bool controller_;
};

Relay::Relay(int index, std::string worker, std::string endpoint, LinkCost cost, Timeline* timeline,
             RelayWorld* world)
    : index_(index),
      worker_(std::move(worker)),
      endpoint_(std::move(endpoint)),
      cost_(cost),
      timeline_(timeline),
      world_(world),
      core_(OptionsOf(index), this),
      controller_(std::make_unique<Up>(this, true)),
      parent_(std::make_unique<Up>(this, false)) {}

Relay::~Relay() = default;

void Relay::Handle(Nanos more, const std::function<void()>& work) {
  const Nanos begin = std::max(timeline_->now(), busy_until_);
  const Nanos used = MeasureCpu(work);
  const Nanos sockets = more + cost_.send * static_cast<Nanos>(out_.size());
  cpu_ += used;
  busy_ += used + sockets;
  busy_until_ = begin + used + sockets;
  for (const auto& send : std::exchange(out_, {})) send(busy_until_);
}

void Relay::Take(absl::Status status) {
  if (failure_.ok() && !status.ok()) failure_ = Annotate(status, "the relay of " + worker_);
}

void Relay::Start() {
  v1::ToController message;
  v1::RegisterRelay* const registration = message.mutable_register_relay();
  SayLinkProtocols(registration);
  registration->set_worker(worker_);
  registration->set_incarnation(OptionsOf(index_).self.value);
  registration->set_endpoint(endpoint_);
  registration->set_host(worker_);
  registration->set_pid(1);
  world_->FromRelay(index_, timeline_->now(), PackFrame(message));
}

void Relay::OnFrame(const Frame& frame) {
  Handle(cost_.receive, [&] {
    if (frame.type == kLogFrame) {
      if (core_.parent().empty()) Take(core_.FromParent(frame, TimeAt(timeline_->now())));
      return;
    }
    v1::FromController message;
    Take(UnpackFrame(frame, &message));
    if (message.has_fence()) Take(absl::FailedPreconditionError(message.fence().reason()));
    if (!message.has_relay_task()) return;
    link_.reset();
    Take(core_.OnTask(message.relay_task(), controller_.get(), TimeAt(timeline_->now())));
  });
  WantTick();
}

void Relay::DialParent(const std::string& endpoint) {
  link_ = std::make_unique<RelayLink>(timeline_, world_, endpoint, this);
}

void Relay::RelayUp() {
  Handle(0, [&] { core_.ParentUp(parent_.get()); });
}

void Relay::FromRelay(const Frame& frame) {
  Handle(cost_.receive, [&] { Take(core_.FromParent(frame, TimeAt(timeline_->now()))); });
  WantTick();
}

std::shared_ptr<RelayLink::Pipe> Relay::Accept(RelayLink* child) {
  return pipes_.emplace_back(std::make_shared<Pipe>(this, child));
}

void Relay::OnChild(const std::shared_ptr<Pipe>& pipe, const Frame& frame) {
  if (std::ranges::count(pipes_, pipe) == 0) return;
  Handle(cost_.receive, [&] {
    const absl::Status status = core_.FromChild(pipe.get(), frame, TimeAt(timeline_->now()));
    if (status.ok()) return;
    // It has yet to hear of this version, or the other way round.
    if (status.code() != absl::StatusCode::kFailedPrecondition) Take(status);
    core_.ChildEnded(pipe.get(), TimeAt(timeline_->now()));
    std::erase(pipes_, pipe);
    pipe->Close();
  });
  WantTick();
}

void Relay::ChildEnded(const std::shared_ptr<Pipe>& pipe) {
  if (std::erase(pipes_, pipe) == 0) return;
  Handle(0, [&] { core_.ChildEnded(pipe.get(), TimeAt(timeline_->now())); });
}

void Relay::Tell(v1::RelayTrouble trouble) {
  Take(Error(absl::StatusCode::kInternal, "it gives up a child: {}", trouble.reason()));
}

void Relay::WantTick() {
  if (std::exchange(tick_wanted_, true)) return;
  timeline_->At(timeline_->now() + kTick, [this] {
    tick_wanted_ = false;
    Handle(0, [&] { core_.Tick(TimeAt(timeline_->now())); });
  });
}

}  // namespace fairway::scale
