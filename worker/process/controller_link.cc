// SPDX-License-Identifier: Apache-2.0
#include "worker/process/controller_link.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "wire/link_codec.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kConnectTimeout{5000};
constexpr milliseconds kFirstPause{20};
constexpr milliseconds kLastPause{1000};

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

ControllerLink::ControllerLink(EventLoop& loop, std::string controller, Handler handler,
                               milliseconds stalled_after)
    : loop_(loop),
      controller_(std::move(controller)),
      handler_(std::move(handler)),
      stalled_after_(stalled_after) {}

void ControllerLink::Connect() {
  loop_.PostAfter(pause_, "connect", [this] { Dial(); });
  pause_ = std::clamp(2 * pause_, kFirstPause, kLastPause);
}

void ControllerLink::Dial() {
  ConnectTcp(loop_, controller_, kConnectTimeout,
             [this](absl::StatusOr<std::unique_ptr<Link>> link) { OnConnected(std::move(link)); });
}

void ControllerLink::OnConnected(absl::StatusOr<std::unique_ptr<Link>> link) {
  if (!link.ok()) {
    if (!failure_logged_) spdlog::warn("{}; trying again until it works", Text(link.status()));
    failure_logged_ = true;
    return Connect();
  }
  failure_logged_ = false;
  link_ = *std::move(link);
  ++connection_;
  link_->on_frame = [this](Frame frame) { OnFrame(frame); };
  link_->on_closed = [this](absl::Status status) {
    End(status.ok() ? "the controller closed the link" : Text(status));
  };
  handler_.on_open();
}

void ControllerLink::OnFrame(const Frame& frame) {
  if (link_ == nullptr) return;  // a frame that was read together with the one that ended the link
  if (frame.type == kLogFrame && handler_.on_log_frame != nullptr) {
    heard_ = Clock::now();
    return handler_.on_log_frame(frame.payload);
  }
  v1::FromController message;
  if (absl::Status status = UnpackFrame(frame, &message); !status.ok()) return End(Text(status));
  heard_ = Clock::now();
  if (message.has_heartbeat_ack()) return;
  handler_.on_message(std::move(message));
}

void ControllerLink::StartHeartbeats(int64_t interval_ms, int64_t deadline_ms) {
  pause_ = kFirstPause;
  interval_ = milliseconds(std::clamp<int64_t>(interval_ms, 1, 3600000));
  deadline_ = milliseconds(std::clamp<int64_t>(deadline_ms, 10, 24 * 3600000));
  beats_ = 0;
  Beat(connection_);
}

void ControllerLink::Beat(uint64_t connection) {
  if (connection != connection_) return;
  const auto now = Clock::now();
  // If this process itself was stopped, messages of the controller are still to be read: perhaps a
  // fence.
  if (beats_ > 0 && now - beat_ > interval_ + deadline_ / 2) heard_ = now;
  beat_ = now;
  if (now - heard_ > deadline_)
    return End(fmt::format("the controller was silent for {} ms", deadline_.count()));
  if (!std::exchange(stalled_, now - heard_ > stalled_after_) && stalled_)
    spdlog::warn(
        "the controller at {} is stalled: it was silent for {:.1f} s. It is given up after {:.1f} "
        "s",
        controller_, Seconds(now - heard_), Seconds(deadline_));
  v1::ToController message;
  v1::Heartbeat* to = message.mutable_heartbeat();
  to->set_sequence(++beats_);
  handler_.fill_heartbeat(*to);
  Send(message);
  loop_.PostAfter(interval_, "heartbeat", [this, connection] { Beat(connection); });
}

void ControllerLink::Send(const v1::ToController& message) {
  if (link_ != nullptr) link_->Send(PackFrame(message));
}

void ControllerLink::Send(Frame frame) {
  if (link_ != nullptr) link_->Send(std::move(frame));
}

void ControllerLink::End(const std::string& why) {
  if (link_ == nullptr) return;
  // Posted, because this may be a callback of the link itself.
  loop_.Post("drop link", [link = std::shared_ptr<Link>(std::move(link_))] {});
  ++connection_;
  handler_.on_end(why);
}

void ControllerLink::Close() {
  if (link_ != nullptr) link_->Close();
}

}  // namespace fairway
