// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/links.h"

#include <algorithm>
#include <utility>

#include "tests/sim/controller.h"
#include "tests/sim/host.h"
#include "wire/link_codec.h"

namespace fairway::sim {
namespace {

constexpr int64_t kLinger = 2000000;  // transport/frame_stream.cc

// Heartbeats and their acknowledgements are field 3 of both messages. Relays are asked, and report,
// even if there is nothing new.
bool IsBeat(const Frame& frame) {
  if (frame.type == kLogFrame) return frame.id != 0;
  return frame.type == kControlFrame && !frame.payload.empty() && frame.payload[0] == 0x1a;
}

}  // namespace

// The hub's end.
class HubLink final : public Link {
 public:
  explicit HubLink(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) { wire_->hub_ = this; }
  ~HubLink() override { wire_->HubGone(); }
  void Send(Frame frame) override { wire_->Down(std::move(frame)); }
  size_t queued_bytes() const override { return wire_->down_bytes_; }
  void Close() override { wire_->HubCloses(); }
  std::string peer() const override { return wire_->host_.worker(); }
  void WatchHost() override { wire_->watched_ = true; }
  void LimitFrames(size_t bytes) override { wire_->most_ = bytes; }

 private:
  const std::shared_ptr<Wire> wire_;
};

void ControllerLoop::Post(std::string_view, Handler handler) {
  world_.ToController([&world = world_, epoch = epoch_, handler = std::move(handler)]() mutable {
    if (world.controller != nullptr && world.epoch == epoch) handler();
  });
}

Wire::Wire(World& world, Host& host, FarSide* far)
    : world_(world),
      host_(host),
      far_(far),
      up_at_(host.closed_at()),
      heard_at_(world.queue.now()) {}

void Wire::Open() {
  epoch_ = world_.epoch;
  world_.ToController([self = shared_from_this()] {
    World& world = self->world_;
    if (world.controller == nullptr || world.epoch != self->epoch_)
      return self->EndAtFar(world.LinkDelay());
    if (self->far_ != nullptr) world.controller->Accept(std::make_unique<HubLink>(self));
  });
}

void Wire::WhenHeard(bool background, Event run) {
  if (background) --world_.background;
  if (!host_.silent()) return run();
  host_.Hold(std::move(run));
}

void Wire::Up(bool background, Event run) {
  up_at_ = std::max(up_at_, world_.queue.now() + world_.LinkDelay());
  if (background) ++world_.background;
  world_.queue.At(up_at_, [self = shared_from_this(), background, run = std::move(run)]() mutable {
    self->WhenHeard(background, [self, run = std::move(run)]() mutable {
      self->world_.ToController([self, run = std::move(run)]() mutable {
        if (self->hub_ != nullptr && !self->cut_) run();
      });
    });
  });
}

void Wire::Send(const v1::ToController& message) { Send(PackFrame(message)); }

void Wire::Send(Frame frame) {
  if (far_ == nullptr || cut_) return;
  const bool of_relay = far_ == &host_.relay() && frame.type == kLogReportFrame;
  const bool beat = IsBeat(frame) || of_relay;
  Up(beat, [this, frame = std::move(frame)]() mutable {
    if (closing_ || hub_->on_frame == nullptr) return;
    if (frame.payload.size() > most_)
      return world_.Broken("sim", "a frame of {} bytes comes, {} are allowed", frame.payload.size(),
                           most_);
    const std::string bytes = frame.payload;
    world_.received = &bytes;
    auto f = hub_->on_frame;
    f(std::move(frame));
    world_.received = nullptr;
  });
}

void Wire::Down(Frame frame) {
  if (cut_ || closing_ || far_ == nullptr) return;
  frame.Join();
  const bool beat = IsBeat(frame);
  if (beat) ++world_.background;
  down_at_ = std::max(down_at_, world_.queue.now() + world_.LinkDelay());
  down_bytes_ += frame.payload.size();
  world_.queue.At(down_at_, [self = shared_from_this(), beat, frame = std::move(frame)]() mutable {
    self->WhenHeard(beat, [self, frame = std::move(frame)] {
      self->down_bytes_ -= frame.payload.size();
      if (!self->cut_) self->heard_at_ = self->world_.queue.now();
      if (self->far_ != nullptr && !self->cut_) self->far_->OnFrame(*self, frame);
    });
  });
}

void Wire::CheckPatience(bool given_up, const LinkLife& life, int64_t stopped_until) {
  const int64_t deadline = kMillisecond * life.deadline().count();
  const int64_t interval = kMillisecond * life.interval().count();
  const int64_t now = world_.queue.now();
  if (given_up) world_.Count("controller given up");
  if (given_up && now - heard_at_ <= deadline)
    world_.Broken("F1", "{} gives up a controller that it heard {} us ago", host_.worker(),
                  now - heard_at_);
  if (!given_up && now - std::max(heard_at_, stopped_until) > deadline + 2 * interval)
    world_.Broken("F1", "{} does not give up a controller that is silent since {} us",
                  host_.worker(), heard_at_);
}

void Wire::EndAtHub(absl::Status status) {
  if (hub_ == nullptr) return;
  auto f = std::exchange(hub_->on_closed, nullptr);
  hub_->on_frame = nullptr;
  if (f != nullptr) f(std::move(status));
}

void Wire::EndAtFar(int64_t delay) {
  down_at_ = std::max(down_at_, world_.queue.now() + delay);
  world_.queue.At(down_at_, [self = shared_from_this()] {
    self->WhenHeard(false, [self] {
      if (FarSide* far = std::exchange(self->far_, nullptr)) far->OnEnd(*self);
    });
  });
}

void Wire::HangUp() {
  if (std::exchange(far_, nullptr) == nullptr || cut_) return;
  Up(false, [this] { EndAtHub(absl::OkStatus()); });
  host_.ClosedAt(up_at_);
}

void Wire::HubCloses() {
  if (std::exchange(closing_, true)) return;
  EndAtFar(world_.LinkDelay());
  const int64_t back =
      host_.silent() ? kLinger : down_at_ - world_.queue.now() + world_.LinkDelay();
  world_.queue.After(back, [self = shared_from_this()] {
    self->world_.ToController([self] { self->EndAtHub(absl::OkStatus()); });
  });
}

void Wire::HubGone() {
  hub_ = nullptr;
  if (far_ != nullptr && !closing_ && !cut_) EndAtFar(world_.LinkDelay());
}

void Wire::Cut(bool hub_first, int64_t later) {
  if (cut_ || far_ == nullptr) return;
  cut_ = true;
  world_.queue.After(hub_first ? 0 : later, [self = shared_from_this()] {
    self->world_.ToController(
        [self] { self->EndAtHub(absl::UnavailableError("connection reset by peer")); });
  });
  EndAtFar(hub_first ? later : 0);
}

void Wire::HostSilent() {
  if (!watched_ || closing_ || cut_) return;
  cut_ = true;
  world_.ToController([self = shared_from_this()] {
    self->EndAtHub(absl::DeadlineExceededError("connection timed out"));
  });
  EndAtFar(0);  // once the host is heard again
}

}  // namespace fairway::sim
