// SPDX-License-Identifier: Apache-2.0
#include "worker/process/pulse.h"

#include <algorithm>
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
  const std::shared_ptr<Link>& latest = links_.emplace_back(*std::move(link));
  latest->on_frame = [](const Frame&) {};  // a fence: the link closes
  latest->on_closed = [this, again, ended = latest.get()](const absl::Status&) {
    const auto it = std::ranges::find(links_, ended, &std::shared_ptr<Link>::get);
    loop_.Post("drop pulse", [closed = std::move(*it)] {});
    links_.erase(it);
    again();
  };
  latest->WatchHost();
  v1::ToController message;
  *message.mutable_pulse() = message_;
  latest->Send(PackFrame(message));
}

}  // namespace fairway
