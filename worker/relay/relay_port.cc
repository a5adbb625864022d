// SPDX-License-Identifier: Apache-2.0
#include "worker/relay/relay_port.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "log/codec.h"

namespace fairway {

size_t RelayPort::strangers() const {
  return static_cast<size_t>(
      std::ranges::count_if(guests_, [](const auto& entry) { return !entry.second.child; }));
}

void RelayPort::MakeRoom() {
  std::map<std::string, size_t> by_host;
  for (const auto& [number, guest] : guests_) {
    if (!guest.child) ++by_host[guest.host];
  }
  const auto most =
      std::ranges::max_element(by_host, {}, [](const auto& entry) { return entry.second; });
  for (const auto& [number, guest] : guests_) {
    if (guest.child || guest.host != most->first) continue;
    return Drop(number, fmt::format("{} links of strangers are open, most of them from this host",
                                    kMaxStrangers));
  }
}

void RelayPort::Accept(std::unique_ptr<Link> link) {
  if (strangers() >= kMaxStrangers) MakeRoom();
  link->LimitFrames(kMaxAskBytes);
  const uint64_t number = next_++;
  Guest& guest = guests_[number];
  const std::string peer = link->peer();
  guest.host = peer.substr(0, peer.rfind(':'));
  guest.came = now_();
  guest.link = std::move(link);
  guest.link->on_frame = [this, number](const Frame& frame) { OnFrame(number, frame); };
  guest.link->on_closed = [this, number](const absl::Status& status) {
    Drop(number, status.ok() ? std::string() : Text(status));
  };
}

void RelayPort::OnFrame(uint64_t number, const Frame& frame) {
  const auto it = guests_.find(number);
  if (it == guests_.end()) return;  // it came with one that ended the link
  Guest& guest = it->second;
  const absl::Status status = core_->FromChild(guest.link.get(), frame, now_());
  // A child of another version will hear of its parent in this one.
  if (!status.ok())
    return Drop(number, absl::IsFailedPrecondition(status) ? std::string() : Text(status));
  if (std::exchange(guest.child, true)) return;
  guest.link->LimitFrames(kMaxLogReportBytes);
  guest.link->WatchHost();
}

void RelayPort::Drop(uint64_t number, const std::string& why) {
  const auto it = guests_.find(number);
  if (it == guests_.end()) return;
  Guest guest = std::move(it->second);
  guests_.erase(it);
  core_->ChildEnded(guest.link.get(), now_());
  guest.link->on_frame = nullptr;
  guest.link->on_closed = nullptr;
  if (!guest.child) ++refused_;
  if (!why.empty()) {
    const RelayCore::Time now = now_();
    if (now - period_ >= kLogPeriod) {
      if (lines_ > kMaxLines) spdlog::warn("the relay refused {} more links", lines_ - kMaxLines);
      period_ = now;
      lines_ = 0;
    }
    if (++lines_ <= kMaxLines)
      spdlog::warn("the relay refuses a link from {}: {}", guest.link->peer(), why);
  }
  // Posted, because this may be a callback of the link itself.
  loop_.Post("drop link", [link = std::shared_ptr<Link>(std::move(guest.link))] {});
}

void RelayPort::Tick() {
  const RelayCore::Time now = now_();
  std::vector<uint64_t> late;
  for (const auto& [number, guest] : guests_) {
    if (!guest.child && now - guest.came > kPatience) late.push_back(number);
  }
  for (const uint64_t number : late)
    Drop(number, fmt::format("it did not say who it is within {} ms", kPatience.count()));
}

}  // namespace fairway
