// SPDX-License-Identifier: Apache-2.0
#include "worker/process/parent_link.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "wire/link_codec.h"

namespace fairway {
namespace {

constexpr std::chrono::milliseconds kRelayConnectTimeout{3000};

}  // namespace

void ParentLink::Drop() {
  ++dial_;
  if (link_ == nullptr) return;
  link_->on_frame = nullptr;
  link_->on_closed = nullptr;
  // Posted, because this may be a callback of the link itself.
  loop_.Post("drop relay", [link = std::shared_ptr<Link>(std::move(link_))] {});
}

void ParentLink::Follow(const std::string& endpoint) {
  Drop();
  endpoint_ = endpoint;
  pause_ = kFirstPause;
  if (endpoint_.empty()) return;
  // Posted, so that the link before it is closed first.
  loop_.Post("dial relay", [this, dial = dial_] {
    if (dial == dial_) Dial();
  });
}

void ParentLink::Dial() {
  ConnectTcp(
      loop_, endpoint_, kRelayConnectTimeout,
      [this, dial = dial_](absl::StatusOr<std::unique_ptr<Link>> link) {
        if (dial == dial_) OnConnected(std::move(link));
      },
      tls_);
}

void ParentLink::Again() {
  loop_.PostAfter(pause_, "dial relay again", [this, dial = dial_] {
    if (dial == dial_) Dial();
  });
  pause_ = std::min(2 * pause_, kMostPause);
}

void ParentLink::OnConnected(absl::StatusOr<std::unique_ptr<Link>> link) {
  if (!link.ok()) {
    spdlog::info("{}; trying again", Text(link.status()));
    return Again();
  }
  link_ = *std::move(link);
  link_->WatchHost();
  link_->on_frame = [this, dial = dial_](const Frame& frame) {
    if (dial != dial_) return;  // it was read together with one that ended the link
    if (frame.type != kLogFrame) return End("it sent what is no frame of the log");
    pause_ = kFirstPause;
    handler_.on_frame(frame);
  };
  link_->on_closed = [this, dial = dial_](const absl::Status& status) {
    if (dial == dial_) End(status.ok() ? "it closed the link" : Text(status));
  };
  handler_.on_open(link_.get());
}

void ParentLink::End(const std::string& why) {
  if (link_ == nullptr) return;
  spdlog::info("the link to the relay at {} ended: {}", endpoint_, why);
  Link* const ended = link_.get();
  Drop();
  handler_.on_end(ended);
  Again();
}

}  // namespace fairway
