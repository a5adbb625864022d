// SPDX-License-Identifier: Apache-2.0
// GangExchanges: small blocks, which members push to each other
// (docs/design/0063-push-exchange.md).
#include <algorithm>

#include "worker/executor/gang_exchanges.h"

namespace fairway {

using Clock = std::chrono::steady_clock;

std::vector<GangExchanges::PeerPtr> GangExchanges::PeersOf(const Members& members, size_t self) {
  std::vector<PeerPtr> peers;
  std::lock_guard lock(mutex_);
  for (size_t m = 0; m < members.size(); ++m) {
    if (m == self) {
      peers.emplace_back();
      continue;
    }
    PeerPtr& peer = peers_[members[m].incarnation];
    if (peer == nullptr) peer = std::make_shared<Peer>(members[m]);
    peers.push_back(peer);
  }
  // Forgets executors with which nothing is run any more, unless they run ahead.
  std::erase_if(peers_, [this](const auto& entry) {
    std::erase_if(entry.second->slots,
                  [this](const Pushed& p) { return p.name.launch <= ended_through_; });
    return entry.second.use_count() == 1 && entry.second->slots.empty();
  });
  SlotsAreFree();
  return peers;
}

bool GangExchanges::OnPush(const PushName& name, std::shared_ptr<Blob>& bytes) {
  std::lock_guard lock(mutex_);
  if (!closed_.ok() || name.launch < receiving_ || FailureOf(name.launch) != nullptr) return true;
  const auto peer = peers_.find(name.from);
  if (peer == peers_.end() && name.launch <= ended_through_) return true;
  if (peer == peers_.end() || peer->second->slots.size() >= kSlots) {
    held_ = true;
    return false;
  }
  peer->second->slots.push_back({name, std::move(bytes)});
  bell_->Ring();
  return true;
}

void GangExchanges::SlotsAreFree() {
  if (plane_ != nullptr && std::exchange(held_, false)) plane_->RetryPushes();
}

bool GangExchanges::TakeSlot(Peer& peer, const PushName& name) {
  if (peer.got != nullptr) return true;
  while (!peer.slots.empty()) {
    Pushed& first = peer.slots.front();
    const bool stale = first.name.launch < name.launch;
    if (!stale && (first.name.launch != name.launch || first.name.round != name.round ||
                   first.name.part != name.part))
      return false;  // it was pushed ahead
    if (!stale) peer.got = std::move(first.bytes);
    peer.slots.pop_front();
    SlotsAreFree();
    if (!stale) return true;
  }
  return false;
}

absl::Status GangExchanges::Push(const PeerPtr& to, const PushName& name, std::string_view bytes) {
  if (bytes.size() > kMaxPushBytes) {
    return Error(absl::StatusCode::kInternal, "a push of {} bytes; {} are possible", bytes.size(),
                 kMaxPushBytes);
  }
  std::unique_lock lock(mutex_);
  FAIRWAY_RETURN_IF_ERROR(WaitFor(lock, name.launch, {&to, 1},
                                  [](Peer& peer) { return peer.unsent->load() < kMaxUnsent; }));
  to->unsent->fetch_add(1);
  // Its end comes on a thread of the plane, also after this object is closed.
  const std::shared_ptr<void> pending(nullptr, [unsent = to->unsent, bell = bell_](void*) {
    if (unsent->fetch_sub(1) == kMaxUnsent) bell->Ring();
  });
  plane_->Push(to->member.endpoint, to->member.incarnation, name, bytes, pending);
  return absl::OkStatus();
}

absl::Status GangExchanges::Receive(const std::vector<PeerPtr>& from, const PushName& name,
                                    size_t bytes,
                                    absl::FunctionRef<void(size_t, std::string_view)> use) {
  std::unique_lock lock(mutex_);
  receiving_ = std::max(receiving_, name.launch);
  const absl::Status status =
      WaitFor(lock, name.launch, from, [&](Peer& peer) { return TakeSlot(peer, name); });
  lock.unlock();
  absl::Status wrong;
  for (size_t i = 0; i < from.size(); ++i) {
    const std::shared_ptr<Blob> got = std::exchange(from[i]->got, nullptr);
    if (!status.ok() || !wrong.ok()) continue;
    from[i]->suspect = false;
    if (got->size() == bytes) {
      use(i, got->view());
    } else {
      wrong = Error(absl::StatusCode::kDataLoss, "{} pushed {} bytes, expected {}",
                    from[i]->member.endpoint, got->size(), bytes);
    }
  }
  return status.ok() ? wrong : status;
}

absl::Status GangExchanges::WaitFor(std::unique_lock<std::mutex>& lock, uint64_t launch,
                                    std::span<const PeerPtr> peers,
                                    absl::FunctionRef<bool(Peer&)> there) {
  const auto missing = [&] {
    return std::count_if(peers.begin(), peers.end(), [&](const PeerPtr& p) { return !there(*p); });
  };
  std::shared_ptr<Watch> watch;
  Clock::time_point begun;
  while (true) {
    const uint32_t seen = bell_->rung();
    if (!closed_.ok()) return closed_;
    if (const absl::Status* failure = FailureOf(launch)) return *failure;
    const auto count = missing();
    if (count == 0) return absl::OkStatus();
    const Clock::time_point now = Clock::now();
    if (begun == Clock::time_point()) begun = now;
    const bool suspect =
        std::any_of(peers.begin(), peers.end(), [](const PeerPtr& p) { return p->suspect; });
    if (watch == nullptr && (suspect || now - begun >= kQuiet)) {
      watch = std::make_shared<Watch>();
      for (const PeerPtr& peer : peers) {
        if (!there(*peer)) Ask(peer, launch, watch);
      }
    }
    if (watch != nullptr && !watch->failure.ok()) return watch->failure;
    if (watch != nullptr && watch->ended && now - watch->ended_at >= kLost) {
      return Error(absl::StatusCode::kUnavailable,
                   "another executor has ended launch {}, but its bytes were lost", launch);
    }
    lock.unlock();
    bell_->Wait(seen, static_cast<uint32_t>(count), kQuiet);
    lock.lock();
  }
}

void GangExchanges::Ask(const PeerPtr& peer, uint64_t launch, const std::shared_ptr<Watch>& watch) {
  plane_->Pull(peer->member.endpoint, peer->member.incarnation,
               {TransferId(launch), kWatch, Incarnation(), 1}, 0,
               [self = shared_from_this(), peer, watch](absl::StatusOr<std::shared_ptr<Blob>> end) {
                 std::lock_guard lock(self->mutex_);
                 if (end.ok()) {
                   if (!std::exchange(watch->ended, true)) watch->ended_at = Clock::now();
                   return;
                 }
                 peer->suspect = true;
                 if (watch->failure.ok()) watch->failure = end.status();
                 self->bell_->Wake();
               });
}

}  // namespace fairway
