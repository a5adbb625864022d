// SPDX-License-Identifier: Apache-2.0
#include "worker/process/controller_link.h"

#include <utility>

#include <spdlog/spdlog.h>

#include "base/host.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kConnectTimeout{5000};

LinkLife::Time Now() { return std::chrono::steady_clock::now().time_since_epoch(); }

double Seconds(LinkLife::Time duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

ControllerLink::ControllerLink(EventLoop& loop, std::string controller,
                               std::shared_ptr<TlsIdentity> tls, Handler handler,
                               milliseconds stalled_after)
    : loop_(loop),
      controller_(std::move(controller)),
      tls_{std::move(tls), Role::kController},
      handler_(std::move(handler)),
      life_(stalled_after) {}

void ControllerLink::Connect() {
  loop_.PostAfter(life_.NextPause(), "connect", [this, dial = ++dial_] { Dial(dial); });
}

void ControllerLink::Dial(uint64_t dial) {
  if (dial != dial_) return;
  ConnectTcp(
      loop_, controller_, kConnectTimeout,
      [this, dial](absl::StatusOr<std::unique_ptr<Link>> link) {
        if (dial == dial_) OnConnected(std::move(link));
      },
      tls_);
}

void ControllerLink::OnConnected(absl::StatusOr<std::unique_ptr<Link>> link) {
  if (!link.ok()) {
    if (!failure_logged_) spdlog::warn("{}; trying again until it works", Text(link.status()));
    failure_logged_ = true;
    if (handler_.on_unreachable != nullptr) handler_.on_unreachable();
    return Connect();
  }
  failure_logged_ = false;
  link_ = *std::move(link);
  ++connection_;
  link_->on_frame = [this](Frame frame) { OnFrame(frame); };
  link_->on_closed = [this](absl::Status status) {
    End(status.ok() ? "the controller closed the link" : Text(status), /*cut=*/true);
  };
  handler_.on_open();
}

void ControllerLink::OnFrame(const Frame& frame) {
  if (link_ == nullptr) return;  // a frame that was read together with the one that ended the link
  if (frame.type == kLogFrame && handler_.on_log_frame != nullptr) {
    life_.Heard(Now());
    return handler_.on_log_frame(frame);
  }
  v1::FromController message;
  if (absl::Status status = UnpackFrame(frame, &message); !status.ok()) return End(Text(status));
  life_.Heard(Now());
  if (handler_.taken != nullptr) {
    const absl::StatusOr<bool> fresh = handler_.taken(frame);
    if (!fresh.ok()) return End(Text(fresh.status()));
    if (!*fresh) return;
  }
  if (message.has_heartbeat_ack())
    return life_.Acknowledged(message.heartbeat_ack().sequence(), Now());
  handler_.on_message(std::move(message));
}

void ControllerLink::StartHeartbeats(int64_t interval_ms, int64_t deadline_ms) {
  life_.Registered(interval_ms, deadline_ms);
  last_end_.clear();
  Beat(connection_);
}

void ControllerLink::Beat(uint64_t connection) {
  if (connection != connection_) return;
  const LinkLife::Beat beat = life_.NextBeat(Now());
  if (beat.give_up)
    return End(fmt::format("the controller was silent for {} ms", life_.deadline().count()));
  if (beat.stalled)
    spdlog::warn(
        "the controller at {} is stalled: it was silent for {:.1f} s. It is given up after {:.1f} "
        "s",
        controller_, Seconds(beat.silence), Seconds(life_.deadline()));
  v1::ToController message;
  v1::Heartbeat* to = message.mutable_heartbeat();
  to->set_sequence(beat.sequence);
  to->set_round_trip_ns(static_cast<uint64_t>(life_.round_trip().count()));
  handler_.fill_heartbeat(*to);
  Send(message);
  loop_.PostAfter(life_.interval(), "heartbeat", [this, connection] { Beat(connection); });
}

void ControllerLink::Send(const v1::ToController& message) { Send(PackFrame(message)); }

void ControllerLink::Send(Frame frame) {
  if (link_ == nullptr) return;
  if (handler_.stamp != nullptr) handler_.stamp(frame);
  link_->Send(std::move(frame));
}

void ControllerLink::End(const std::string& why, bool cut) {
  if (link_ == nullptr) return;
  // Posted, because this may be a callback of the link itself.
  loop_.Post("drop link", [link = std::shared_ptr<Link>(std::move(link_))] {});
  ++connection_;
  life_.Ended();
  end_is_news_ = why != last_end_;
  last_end_ = why;
  handler_.on_end(why, cut);
}

void ControllerLink::Close() {
  if (link_ != nullptr) link_->Close();
}

void FillOwnLoad(v1::Heartbeat& to) {
  const ProcessUse use = UseOfThisProcess();
  to.set_cpu_ns(static_cast<uint64_t>(use.cpu.count()));
  to.set_resident_bytes(static_cast<uint64_t>(use.resident_bytes));
}

}  // namespace fairway
