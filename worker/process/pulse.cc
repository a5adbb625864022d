// SPDX-License-Identifier: Apache-2.0
#include "worker/process/pulse.h"

#include <utility>

#include "wire/link_codec.h"

namespace fairway {
namespace {

constexpr std::chrono::milliseconds kPulseConnectTimeout{3000};
constexpr std::chrono::milliseconds kPauseBeforeRedial{1000};

}  // namespace

Pulse::Pulse(EventLoop& loop, std::string controller, std::shared_ptr<TlsIdentity> tls,
             v1::Pulse message)
    : loop_(loop),
      controller_(std::move(controller)),
      tls_{std::move(tls), Role::kController},
      message_(std::move(message)) {}

void Pulse::Start() {
  ConnectTcp(
      loop_, controller_, kPulseConnectTimeout,
      [this, attempt = ++attempt_](absl::StatusOr<std::unique_ptr<Link>> link) {
        if (attempt == attempt_) OnConnected(std::move(link));
      },
      tls_);
}

void Pulse::OnConnected(absl::StatusOr<std::unique_ptr<Link>> link) {
  const auto again = [this, attempt = attempt_] {
    loop_.PostAfter(kPauseBeforeRedial, "pulse", [this, attempt] {
      if (attempt == attempt_) Start();
    });
  };
  if (!link.ok()) return again();
  if (link_ != nullptr) link_->on_closed = nullptr;
  link_ = *std::move(link);
  link_->on_frame = [](const Frame&) {};  // a fence: the link closes
  link_->on_closed = [this, again](const absl::Status&) {
    loop_.Post("drop pulse", [closed = std::move(link_)] {});
    again();
  };
  link_->WatchHost();
  v1::ToController message;
  *message.mutable_pulse() = message_;
  link_->Send(PackFrame(message));
}

}  // namespace fairway
