// SPDX-License-Identifier: Apache-2.0
// Where a machine's island's log comes from: the controller or a relay.
#include <algorithm>
#include <utility>

#include "tests/sim/controller.h"
#include "tests/sim/host.h"
#include "tests/sim/machine.h"
#include "tests/sim/world.h"
#include "wire/link_codec.h"

namespace fairway::sim {
namespace {

constexpr int64_t kDialAgain = 20 * kMillisecond;
// A relay that does not pass entries on is replaced long before.
constexpr int64_t kMostOnTheWay = 20 * kSecond;

}  // namespace

void Machine::LetRelayGo() {
  if (relay_link_ == nullptr) return;
  relay_link_->on_frame = nullptr;
  relay_link_->on_closed = nullptr;
  world_.InBackground(1, [link = std::move(relay_link_)] {});
}

LogNumber Machine::Claim(LogNumber applied) {
  behind_ = false;
  if (applied == 0 || !world_.random.Percent(world_.config.behind_percent)) return applied;
  const auto claim = static_cast<LogNumber>(world_.random.Below(static_cast<int64_t>(applied)));
  behind_ = claim < concluded_;
  world_.Count(behind_ ? "says that it lacks concluded entries" : "says that it lacks entries");
  world_.Trace("{} says that it has entries up to {} of {}", worker_, claim, applied);
  world_.MayBeLost(session_, -1);
  return claim;
}

v1::LogAsk Machine::AskLog() {
  v1::LogAsk ask = registration_->AskLog(incarnation_);
  ask.set_applied(Claim(ask.applied()));
  return ask;
}

void Machine::OnParent(const v1::LogParent& parent) {
  if (!registration_->Follow(parent)) return;
  world_.Trace("{} has {} as parent in version {}", worker_,
               parent.endpoint().empty() ? "the controller" : parent.endpoint(), parent.version());
  LetRelayGo();
  pace_->Below(registration_->relay_children());
  if (!registration_->relay().empty()) {
    world_.Count("log from a relay");
    return DialRelay();
  }
  world_.Count("log from the controller again");
  v1::ToController message;
  *message.mutable_log_ask() = AskLog();
  Frame frame = registration_->Keep(PackFrame(message));
  if (registration_->held()) SendFrame(std::move(frame));
}

void Machine::DialRelay() {
  After(world_.LinkDelay(), [this, relay = registration_->relay()] {
    if (!registration_ || registration_->ending() || registration_->relay() != relay ||
        relay_link_ != nullptr)
      return;
    relay_link_ = world_.pipes->Dial(*host_, relay);
    if (relay_link_ == nullptr) {
      world_.InBackground(kDialAgain, [this, life = life_] {
        if (life == life_ && registration_ && !registration_->relay().empty()) DialRelay();
      });
      return;
    }
    Link* const link = relay_link_.get();
    link->on_frame = [this, link](const Frame& frame) { OnRelayFrame(link, frame.payload); };
    link->on_closed = [this, link](const absl::Status&) { OnRelayEnd(link); };
    v1::ToController message;
    *message.mutable_log_ask() = AskLog();
    link->Send(PackFrame(message));
  });
}

void Machine::OnRelayFrame(Link* link, const std::string& frame) {
  if (link != relay_link_.get()) return;
  if (asleep_)
    return void(waiting_.emplace_back(life_, [this, link, frame] { OnRelayFrame(link, frame); }));
  if (behind_) world_.Broken("link", "a relay serves {}, which lacks concluded entries", worker_);
  OnLogFrame(frame, true);
}

void Machine::OnRelayEnd(Link* link) {
  if (link != relay_link_.get()) return;
  if (asleep_) return void(waiting_.emplace_back(life_, [this, link] { OnRelayEnd(link); }));
  LetRelayGo();
  world_.InBackground(kDialAgain, [this, life = life_] {
    if (life == life_ && registration_ && !registration_->relay().empty()) DialRelay();
  });
}

void Machine::NoteLogFrame(const std::string& bytes) {
  if (world_.config.behind_percent == 0) return;
  const absl::StatusOr<LogFrame> frame = DecodeLogFrame(bytes);
  for (const LogRange& range : frame->concluded) {
    auto it = known_.lower_bound(range.first);
    while (it != known_.end() && *it <= range.last) {
      concluded_ = std::max(concluded_, *it);
      it = known_.erase(it);
    }
  }
  for (const LogFrame::Received& entry : frame->entries) {
    if (entry.header.number > concluded_) known_.insert(entry.header.number);
  }
}

void Machine::SendLogReport(CommandInbox::With with) {
  const bool relayed = !registration_->relay().empty();
  if (relayed && relay_link_ == nullptr) return;
  Frame frame;
  frame.type = kLogReportFrame;
  frame.payload = registration_->LogReport(with);
  if (frame.payload.empty()) return;
  relayed ? relay_link_->Send(std::move(frame)) : SendFrame(std::move(frame));
}

void Machine::CheckOnTheWay() {
  const int64_t now = world_.queue.now();
  if (!Fine() || world_.config.stops > 0) fine_since_ = now;
  if (on_the_way_.empty() || world_.config.fanout == 0) return;
  const int64_t since = std::max(on_the_way_.front().second, fine_since_);
  if (now - since > kMostOnTheWay)
    world_.Broken("link", "a command has been on its way to {} since {} us", worker_, since);
}

}  // namespace fairway::sim
