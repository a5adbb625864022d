// SPDX-License-Identifier: Apache-2.0
// GangExchanges: small blocks, which members push to each other
// (docs/design/0063-push-exchange.md).
#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "worker/executor/gang_exchanges.h"
#include "worker/executor/one_cpu.h"

namespace fairway {

using Clock = std::chrono::steady_clock;

namespace {

// A receiver that makes room in a lane does not say so. Rare: see GangExchanges::kSlots.
constexpr std::chrono::milliseconds kLookForRoom{1};

std::string_view HostOf(std::string_view endpoint) {
  return endpoint.substr(0, endpoint.rfind(':'));
}

}  // namespace

bool GangExchanges::AreNeighbours(const InstallExecutable::Member& a,
                                  const InstallExecutable::Member& b) {
  return HostOf(a.endpoint) == HostOf(b.endpoint);
}

std::vector<GangExchanges::PeerPtr> GangExchanges::PeersOf(const Members& members, size_t self) {
  std::vector<PeerPtr> peers;
  std::lock_guard lock(mutex_);
  for (size_t m = 0; m < members.size(); ++m) {
    if (m == self) {
      peers.emplace_back();
      continue;
    }
    PeerPtr& peer = peers_[members[m].incarnation];
    const bool fresh = peer == nullptr;
    if (fresh) peer = std::make_shared<Peer>(members[m]);
    if (fresh && AreNeighbours(members[m], members[self])) AskForLane(peer);
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

std::shared_ptr<GangExchanges::Audience> GangExchanges::AudienceOf(
    std::vector<Incarnation> neighbours) {
  std::lock_guard lock(mutex_);
  std::erase_if(audiences_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Audience>& known = audiences_[std::move(neighbours)];
  auto audience = known.lock();
  if (audience == nullptr) known = audience = std::make_shared<Audience>();
  return audience;
}

bool GangExchanges::Broadcast(Neighbours& to, const PushName& name, std::string_view bytes) {
  if (bytes.size() > kMaxBroadcastBytes || !closed_.ok() || FailureOf(name.launch) != nullptr)
    return false;
  to.listen = to.listen || std::ranges::all_of(to.peers, [&](const PeerPtr& peer) {
                const LaneReader* const lane = LaneFrom(*peer);
                return lane != nullptr && lane->SenderListens();
              });
  if (!to.listen) return false;
  for (size_t i = 1; i <= broadcasts_.size(); ++i) {
    const size_t slot = (broadcast_ + i) % broadcasts_.size();
    Broadcasted& before = broadcasts_[slot];
    if (before.to != nullptr && before.to->read <= before.swap) {
      const auto now = Clock::now();
      if (before.in_the_way == Clock::time_point()) before.in_the_way = now;
      if (now - before.in_the_way < kGivenUp) continue;
    }
    if (before.to != to.audience) before.to = to.audience;
    before.swap = swaps_;
    before.in_the_way = {};
    broadcast_ = slot;
    lanes_->Broadcast(slot, name, bytes);
    return true;
  }
  return false;
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
  if (asleep_ != nullptr) asleep_->WakeAll();
  bell_->Ring();
  return true;
}

void GangExchanges::SlotsAreFree() {
  if (plane_ != nullptr && std::exchange(held_, false)) plane_->RetryPushes();
}

void GangExchanges::TellLane(const PullRequest& request, DataPlane::Answer& answer) {
  if (lanes_ == nullptr) return answer(absl::UnimplementedError("no shared memory here"));
  auto address = lanes_->AddressFor(request.from);
  if (!address.ok()) {
    // Of senders that are members of nothing here, as those are that have gone.
    lanes_->TakeBack([this](Incarnation sender, LaneReader& lane) {
      if (peers_.contains(sender)) return false;
      DropBefore(ended_through_ + 1, lane);
      return true;
    });
    address = lanes_->AddressFor(request.from);
  }
  if (!address.ok()) return answer(address.status());
  const auto bytes = Blob::Copy(*address);
  if (bytes == nullptr) return answer(absl::ResourceExhaustedError("no memory"));
  answer(DataView{bytes->view(), bytes});
}

void GangExchanges::AskForLane(const PeerPtr& peer) {
  if (plane_ == nullptr || lanes_ == nullptr) return;
  plane_->Pull(peer->member.endpoint, peer->member.incarnation,
               {TransferId(), 0, Incarnation(), 1, peer->member.ticket}, SharedLanes::kAddressBytes,
               [self = shared_from_this(), peer](absl::StatusOr<std::shared_ptr<Blob>> address) {
                 // Without a lane it gets frames; a launch will tell if it is not there at all.
                 if (!address.ok()) return;
                 auto lane = LaneWriter::Open((*address)->view());
                 if (!lane.ok()) {
                   spdlog::debug("{}: {}", peer->member.endpoint, Text(lane.status()));
                   return;
                 }
                 std::lock_guard lock(self->mutex_);
                 // Nothing else does this, so what was read of an earlier one is not in use.
                 peer->out = *std::move(lane);
               });
}

LaneReader* GangExchanges::LaneFrom(Peer& peer) {
  if (peer.in == nullptr && lanes_ != nullptr) peer.in = lanes_->LaneOf(peer.member.incarnation);
  return peer.in;
}

bool GangExchanges::FindInLane(Peer& peer, const PushName& name) {
  LaneReader* const lane = LaneFrom(peer);
  if (lane == nullptr) return false;
  auto first = lane->Peek();
  if (first.ok() && first->has_value() && (*first)->name.launch < name.launch) {
    DropBefore(name.launch, *lane);
    first = lane->Peek();
  }
  if (!first.ok()) {
    peer.got = Got{{}, nullptr, first.status()};
    return true;
  }
  if (!first->has_value()) return false;
  const auto& [there, bytes, rings_for_all] = **first;
  if (there.launch != name.launch || there.round != name.round || there.part != name.part)
    return false;
  peer.got = Got{bytes, nullptr, {}, rings_for_all};
  return true;
}

void GangExchanges::DropBefore(uint64_t launch) {
  for (const auto& [_, peer] : peers_) {
    if (LaneReader* const lane = LaneFrom(*peer)) DropBefore(launch, *lane);
  }
}

void GangExchanges::DropBefore(uint64_t launch, LaneReader& lane) {
  // A neighbour that goes on writing must not keep this thread here.
  for (uint64_t looked = 0; looked < kLaneSlots; ++looked) {
    const auto first = lane.Peek();
    if (!first.ok() || !first->has_value() || (*first)->name.launch >= launch) return;
    lane.Pop();
  }
}

bool GangExchanges::Find(Peer& peer, const PushName& name) {
  if (peer.got.has_value()) return true;
  if (peer.out != nullptr) {
    if (const auto bytes = peer.out->Heard(name, peer.heard)) {
      peer.got = Got{*bytes, nullptr, {}, true, true};
      return true;
    }
  }
  if (FindInLane(peer, name)) return true;
  while (!peer.slots.empty()) {
    Pushed& first = peer.slots.front();
    const bool stale = first.name.launch < name.launch;
    if (!stale && (first.name.launch != name.launch || first.name.round != name.round ||
                   first.name.part != name.part))
      return false;  // it was pushed ahead
    if (!stale) peer.got = Got{first.bytes->view(), first.bytes, {}};
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
  return Push(lock, to, name, bytes, LaneWriter::Rings::kReceiver);
}

absl::Status GangExchanges::Push(std::unique_lock<std::mutex>& lock, const PeerPtr& to,
                                 const PushName& name, std::string_view bytes,
                                 LaneWriter::Rings rings) {
  while (true) {
    if (!closed_.ok() || !failed_.empty() || !HasRoom(*to)) {
      FAIRWAY_RETURN_IF_ERROR(WaitFor(
          lock, name.launch, {&to, 1},
          [&](Peer& peer) {
            if (HasRoom(peer)) return true;
            // What nobody wants here could, by way of others, keep that one from making room.
            DropBefore(name.launch);
            return false;
          },
          kLookForRoom));
    }
    if (to->out == nullptr) break;
    if (to->out->Write(name, bytes, rings)) return absl::OkStatus();
    to->out = nullptr;  // taken back there
    AskForLane(to);
  }
  to->unsent->fetch_add(1);
  // Its end comes on a thread of the plane, also after this object is closed.
  const std::shared_ptr<void> pending(nullptr, [unsent = to->unsent, bell = bell_](void*) {
    if (unsent->fetch_sub(1) == kMaxUnsent) bell->Ring();
  });
  plane_->Push(to->member.endpoint, to->member.incarnation, to->member.ticket, name, bytes,
               pending);
  return absl::OkStatus();
}

absl::Status GangExchanges::Receive(const std::vector<PeerPtr>& from,
                                    const std::vector<size_t>& members, const PushName& name,
                                    size_t bytes, Exchange::Use use) {
  std::unique_lock lock(mutex_);
  return Receive(lock, from, members, name, bytes, nullptr, use);
}

absl::Status GangExchanges::Swap(Neighbours& with, const PushName& name, std::string_view bytes,
                                 Exchange::Use use) {
  std::unique_lock lock(mutex_);
  // It stays mapped also if the lane is taken back meanwhile.
  const auto to_first = with.first == nullptr ? nullptr : with.first->out;
  Bell* const all = to_first != nullptr                          ? &to_first->all()
                    : with.first == nullptr && lanes_ != nullptr ? &lanes_->all()
                                                                 : nullptr;
  ShareCpu(with, to_first.get());
  using Rings = LaneWriter::Rings;
  const Rings rings = all == nullptr  ? Rings::kReceiver
                      : with.all_ring ? Rings::kAll
                                      : Rings::kBoth;
  ++swaps_;
  if (rings != Rings::kAll || !Broadcast(with, name, bytes)) {
    for (const PeerPtr& peer : with.peers)
      FAIRWAY_RETURN_IF_ERROR(Push(lock, peer, name, bytes, rings));
  }
  // All operations on the lanes' counts are in one order. Whoever is the last of all to have
  // written all its pushes finds those of all others here, and when it rings everybody finds
  // everything.
  if (all != nullptr && std::all_of(with.peers.begin(), with.peers.end(),
                                    [&](const PeerPtr& peer) { return Find(*peer, name); }))
    all->WakeAll();
  with.all_ring = false;
  FAIRWAY_RETURN_IF_ERROR(Receive(lock, with.peers, with.members, name, bytes.size(),
                                  rings == Rings::kAll ? all : nullptr, use));
  with.audience->read = swaps_;
  with.all_ring = std::all_of(with.peers.begin(), with.peers.end(),
                              [](const PeerPtr& peer) { return peer->rang_for_all; });
  return absl::OkStatus();
}

void GangExchanges::ShareCpu(const Neighbours& with, const LaneWriter* to_first) {
  OneCpu& thread = OneCpu::OfThisThread();
  uint32_t cpu = 0;
  if (to_first != nullptr) {
    cpu = to_first->cpu().load(std::memory_order_relaxed);
  } else if (with.first == nullptr && lanes_ != nullptr && !with.peers.empty()) {
    cpu = thread.Decide(Clock::now());
    std::atomic<uint32_t>& told = lanes_->cpu();
    if (told.load(std::memory_order_relaxed) != cpu) told.store(cpu, std::memory_order_relaxed);
  }
  thread.OnSwap(with.first_number.value, cpu);
}

absl::Status GangExchanges::Receive(std::unique_lock<std::mutex>& lock,
                                    std::span<const PeerPtr> from, std::span<const size_t> members,
                                    const PushName& name, size_t bytes, Bell* all,
                                    Exchange::Use use) {
  receiving_ = std::max(receiving_, name.launch);
  absl::Status status = WaitFor(
      lock, name.launch, from, [&](Peer& peer) { return Find(peer, name); }, kQuiet, all);
  for (size_t i = 0; i < from.size() && status.ok(); ++i) {
    Peer& peer = *from[i];
    status = peer.got->broken;
    if (!status.ok()) break;
    peer.suspect = false;
    if (peer.got->bytes.size() != bytes) {
      status = Error(absl::StatusCode::kDataLoss, "{} pushed {} bytes, expected {}",
                     peer.member.endpoint, peer.got->bytes.size(), bytes);
      break;
    }
  }
  if (status.ok()) {
    const bool unlocks = bytes > kMaxBroadcastBytes;  // only this thread takes pushes
    if (unlocks) lock.unlock();
    for (size_t i = 0; i < from.size(); ++i) use(members[i], from[i]->got->bytes);
    std::atomic_thread_fence(std::memory_order_acquire);  // before the last look at broadcasts
    if (unlocks) lock.lock();
  }
  for (const PeerPtr& peer : from) {
    const bool there = peer->got.has_value();
    const bool broadcast = there && peer->got->broadcast;
    const bool in_lane =
        there && !broadcast && peer->got->block == nullptr && peer->got->broken.ok();
    peer->rang_for_all = there && peer->got->rings_for_all;
    peer->got.reset();
    if (in_lane) peer->in->Pop();
    if (!broadcast) continue;
    // It may have given up that somebody reads it; see kGivenUp.
    uint32_t slot = peer->heard;
    if (status.ok() && !peer->out->Heard(name, slot)) {
      status = Error(absl::StatusCode::kDataLoss, "{} has taken back what it broadcast",
                     peer->member.endpoint);
    }
    peer->heard = (slot + 1) % lanes::kBroadcasts;
  }
  return status;
}

absl::Status GangExchanges::WaitFor(std::unique_lock<std::mutex>& lock, uint64_t launch,
                                    std::span<const PeerPtr> peers,
                                    absl::FunctionRef<bool(Peer&)> there,
                                    std::chrono::milliseconds longest, Bell* all) {
  Bell& bell = all != nullptr ? *all : *bell_;
  // Mostly the first sleep is the only one. If not, it counts as a whole one.
  Clock::time_point begun;
  Clock::duration slept{}, waited{};
  bool is_long = false;
  while (true) {
    const uint32_t seen = bell.rung();
    if (!closed_.ok()) return closed_;
    if (const absl::Status* failure = FailureOf(launch)) return *failure;
    // Its own bell counts them; that of all rings when none is missing.
    uint32_t missing = 0;
    for (size_t i = 0; i < peers.size() && (all == nullptr || missing == 0); ++i)
      missing += there(*peers[i]) ? 0 : 1;
    if (missing == 0) return absl::OkStatus();
    if (slept.count() > 0) {
      const Clock::time_point now = Clock::now();
      if (begun == Clock::time_point()) begun = now - slept;
      waited = now - begun;
    }
    const bool suspect =
        std::any_of(peers.begin(), peers.end(), [](const PeerPtr& p) { return p->suspect; });
    if (suspect || waited >= kQuiet) {
      for (const PeerPtr& peer : peers) {
        if (!there(*peer)) FAIRWAY_RETURN_IF_ERROR(Ask(peer, launch));
      }
    }
    asleep_ = all;
    lock.unlock();
    if (!is_long && waited >= kLong) {
      is_long = true;
      before_long_wait_();
    }
    const auto time = is_long ? longest : std::min(longest, kLong);
    if (all != nullptr) {
      all->Sleep(seen, time);
    } else {
      bell.Wait(seen, missing, time);
    }
    lock.lock();
    asleep_ = nullptr;
    slept = time;
  }
}

void GangExchanges::Wake() {
  if (asleep_ != nullptr) asleep_->WakeAll();
  bell_->Wake();
}

absl::Status GangExchanges::Ask(const PeerPtr& peer, uint64_t launch) {
  if (peer->watch != nullptr && peer->watch->launch == launch) {
    const Watch& watch = *peer->watch;
    if (watch.ended.has_value() && Clock::now() - *watch.ended >= kLost) {
      return Error(absl::StatusCode::kUnavailable,
                   "{} has ended launch {}, but its bytes were lost", peer->member.endpoint,
                   launch);
    }
    return watch.failure;
  }
  peer->watch = std::make_shared<Watch>(launch);
  plane_->Pull(peer->member.endpoint, peer->member.incarnation,
               {TransferId(launch), kWatch, Incarnation(), 1, peer->member.ticket}, 0,
               [self = shared_from_this(), peer,
                watch = peer->watch](absl::StatusOr<std::shared_ptr<Blob>> end) {
                 std::lock_guard lock(self->mutex_);
                 if (end.ok()) {
                   watch->ended = Clock::now();
                   return;
                 }
                 peer->suspect = true;
                 watch->failure = end.status();
                 self->Wake();
               });
  return absl::OkStatus();
}

}  // namespace fairway
