// SPDX-License-Identifier: Apache-2.0
#include "transport/in_process.h"

namespace fairway {
namespace {

class InProcessLink;

// Both ends; nullptr: that end is gone or closed.
struct Joint {
  InProcessLink* ends[2] = {nullptr, nullptr};
};

// One end of a pair.
class InProcessLink final : public Link {
 public:
  InProcessLink(EventLoop& loop, std::shared_ptr<Joint> joint, int side, std::string peer)
      : loop_(loop), joint_(std::move(joint)), side_(side), peer_(std::move(peer)) {
    joint_->ends[side_] = this;
  }
  ~InProcessLink() override { HangUp(); }

  void Send(Frame frame) override {
    if (joint_->ends[side_] != this) return;
    frame.Join();
    const size_t bytes = frame.payload.size();
    queued_ += bytes;
    loop_.Post("in-process frame",
               [joint = joint_, side = side_, bytes, frame = std::move(frame)]() mutable {
                 if (InProcessLink* self = joint->ends[side]) self->queued_ -= bytes;
                 InProcessLink* other = joint->ends[1 - side];
                 if (other == nullptr || other->on_frame == nullptr) return;
                 auto f = other->on_frame;  // a copy, because the callback may destroy the link
                 f(std::move(frame));
               });
  }
  size_t queued_bytes() const override { return queued_; }
  void Close() override {
    if (joint_->ends[side_] != this) return;
    loop_.Post("in-process close", [joint = joint_, side = side_] { End(*joint, side); });
    HangUp();
    // The own on_closed comes as well, unless this end is destroyed first.
    joint_->ends[side_] = this;
  }
  std::string peer() const override { return peer_; }

 private:
  void HangUp() {
    if (joint_->ends[side_] != this) return;
    joint_->ends[side_] = nullptr;
    loop_.Post("in-process close", [joint = joint_, side = side_] { End(*joint, 1 - side); });
  }
  static void End(Joint& joint, int side) {
    InProcessLink* end = std::exchange(joint.ends[side], nullptr);
    if (end == nullptr || end->on_closed == nullptr) return;
    auto f = end->on_closed;
    f(absl::OkStatus());
  }

  EventLoop& loop_;
  const std::shared_ptr<Joint> joint_;
  const int side_;
  const std::string peer_;
  size_t queued_ = 0;
};

}  // namespace

std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> MakeLinkPair(
    EventLoop& loop, std::pair<std::string, std::string> peers) {
  auto joint = std::make_shared<Joint>();
  auto first = std::make_unique<InProcessLink>(loop, joint, 0, std::move(peers.first));
  auto second = std::make_unique<InProcessLink>(loop, joint, 1, std::move(peers.second));
  return {std::move(first), std::move(second)};
}

}  // namespace fairway
