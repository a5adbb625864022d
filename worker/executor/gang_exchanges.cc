// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/gang_exchanges.h"

#include <algorithm>

namespace fairway {
namespace {

// Ended launches that are remembered for slower members.
constexpr size_t kRemembered = 256;

std::vector<std::vector<size_t>> ByHost(const GangExchanges::Members& members) {
  std::vector<std::vector<size_t>> hosts;
  for (size_t m = 0; m < members.size(); ++m) {
    const auto same = std::find_if(hosts.begin(), hosts.end(), [&](const auto& host) {
      return GangExchanges::AreNeighbours(members[host[0]], members[m]);
    });
    (same == hosts.end() ? hosts.emplace_back() : *same).push_back(m);
  }
  return hosts;
}

}  // namespace

class GangExchanges::Member final : public Exchange {
 public:
  Member(std::shared_ptr<GangExchanges> all, Members members, std::vector<PeerPtr> peers,
         size_t self)
      : all_(std::move(all)),
        members_(std::move(members)),
        peers_(std::move(peers)),
        hosts_(ByHost(members_)),
        self_(self) {
    for (const std::vector<size_t>& host : hosts_) {
      if (std::find(host.begin(), host.end(), self) == host.end()) continue;
      std::vector<Incarnation> incarnations;
      neighbours_.first = peers_[host.front()];
      neighbours_.first_number = members_[host.front()].incarnation;
      for (const size_t member : host) {
        if (member == self) continue;
        neighbours_.members.push_back(member);
        neighbours_.peers.push_back(peers_[member]);
        incarnations.push_back(members_[member].incarnation);
      }
      neighbours_.audience = all_->AudienceOf(std::move(incarnations));
    }
  }

  size_t members() const override { return members_.size(); }
  size_t self() const override { return self_; }
  const std::vector<std::vector<size_t>>& hosts() const override { return hosts_; }
  absl::Status Push(uint64_t launch, uint32_t round, int32_t part, size_t to,
                    std::string_view bytes) override {
    return all_->Push(peers_.at(to), {launch, round, part, {}}, bytes);
  }
  absl::Status Receive(uint64_t launch, uint32_t round, int32_t part,
                       const std::vector<size_t>& from, size_t bytes, Use use) override {
    std::vector<PeerPtr> peers;
    peers.reserve(from.size());
    for (const size_t member : from) peers.push_back(peers_.at(member));
    return all_->Receive(peers, from, {launch, round, part, {}}, bytes, use);
  }
  absl::Status Swap(uint64_t launch, uint32_t round, int32_t part, std::string_view bytes,
                    Use use) override {
    return all_->Swap(neighbours_, {launch, round, part, {}}, bytes, use);
  }
  void Offer(uint64_t launch, uint32_t round, int32_t part, HostView bytes,
             const std::vector<size_t>& readers) override {
    std::vector<Incarnation> incarnations;
    for (const size_t reader : readers) incarnations.push_back(members_.at(reader).incarnation);
    all_->Offer(launch, {round, part}, std::move(bytes), std::move(incarnations));
  }
  absl::StatusOr<std::vector<std::shared_ptr<Blob>>> Take(
      uint64_t launch, uint32_t round, const std::vector<Wanted>& wanted) override {
    return all_->Take(members_, launch, round, wanted);
  }
  void End(uint64_t launch, const absl::Status& status) override { all_->End(launch, status); }

 private:
  const std::shared_ptr<GangExchanges> all_;
  const Members members_;
  const std::vector<PeerPtr> peers_;  // by member
  const std::vector<std::vector<size_t>> hosts_;
  const size_t self_;
  Neighbours neighbours_;  // of the thread that runs gangs
};

void GangExchanges::Open(DataPlane* plane) {
  std::lock_guard lock(mutex_);
  plane_ = plane;
}

void GangExchanges::Close(const absl::Status& why) {
  std::lock_guard lock(mutex_);
  closed_ = why;
  plane_ = nullptr;
  for (auto& [id, launch] : launches_) {
    for (Waiting& waiting : launch.waiting) waiting.answer(why);
  }
  num_waiting_ = 0;
  launches_.clear();
  failed_.clear();
  peers_.clear();
  changed_.notify_all();
  Wake();
}

std::shared_ptr<Exchange> GangExchanges::Make(Members members, size_t self) {
  std::vector<PeerPtr> peers = PeersOf(members, self);
  return std::make_shared<Member>(shared_from_this(), std::move(members), std::move(peers), self);
}

void GangExchanges::OnPull(const PullRequest& request, DataPlane::Answer answer) {
  std::lock_guard lock(mutex_);
  if (!closed_.ok()) return answer(closed_);
  const uint64_t id = request.transfer.value;
  if (id == 0) return TellLane(request, answer);
  ForgetBefore(id, request.from);
  const auto known = launches_.find(id);
  if (TryAnswer(known == launches_.end() ? nullptr : &known->second, request, answer)) {
    if (known != launches_.end() && Over(known->second)) launches_.erase(known);
    return;
  }
  if (num_waiting_ >= kMaxWaitingPulls) {
    return answer(Error(absl::StatusCode::kResourceExhausted, "{} pulls wait for launches here",
                        num_waiting_));
  }
  launches_[id].waiting.push_back({request, std::move(answer)});
  ++num_waiting_;
}

bool GangExchanges::TryAnswer(Launch* launch, const PullRequest& request,
                              DataPlane::Answer& answer) {
  const uint64_t id = request.transfer.value;
  const auto found = launch == nullptr ? std::map<Name, Offered>::iterator()
                                       : launch->offered.find({request.round, request.index});
  if (launch == nullptr || found == launch->offered.end()) {
    if (const absl::Status* failure = FailureOf(id)) {
      answer(*failure);
    } else if (launch == nullptr ? id <= ended_through_ : launch->ended) {
      if (request.index == kWatch) {
        answer(DataView());
        return true;
      }
      answer(Error(absl::StatusCode::kCancelled, "launch {} has ended here", id));
    } else {
      return false;
    }
    return true;
  }
  Offered& offered = found->second;
  if (std::erase(offered.readers, request.from) == 0) {
    answer(Error(absl::StatusCode::kPermissionDenied, "part {} of launch {} is for others",
                 request.index, request.transfer));
    return true;
  }
  answer(DataView{offered.bytes.bytes, offered.bytes.owner});
  if (offered.readers.empty()) launch->offered.erase(found);
  return true;
}

void GangExchanges::AnswerWaiting(Launch& launch) {
  num_waiting_ -= std::erase_if(launch.waiting, [&](Waiting& waiting) {
    return TryAnswer(&launch, waiting.request, waiting.answer);
  });
}

void GangExchanges::ForgetBefore(uint64_t id, Incarnation reader) {
  for (auto it = launches_.begin(); it != launches_.end() && it->first < id;) {
    Launch& launch = it->second;
    for (auto offered = launch.offered.begin(); offered != launch.offered.end();) {
      std::vector<Incarnation>& readers = offered->second.readers;
      std::erase(readers, reader);
      offered = readers.empty() ? launch.offered.erase(offered) : std::next(offered);
    }
    it = Over(launch) ? launches_.erase(it) : std::next(it);
  }
}

void GangExchanges::Offer(uint64_t id, Name name, HostView bytes,
                          std::vector<Incarnation> readers) {
  std::lock_guard lock(mutex_);
  if (!closed_.ok() || FailureOf(id) != nullptr) return;
  Launch& launch = launches_[id];
  launch.offered[name] = Offered{std::move(bytes), std::move(readers)};
  AnswerWaiting(launch);
}

absl::StatusOr<std::vector<std::shared_ptr<Blob>>> GangExchanges::Take(
    const Members& members, uint64_t id, uint32_t round,
    const std::vector<Exchange::Wanted>& wanted) {
  before_long_wait_();  // it may be one
  auto taking = std::make_shared<Taking>();
  taking->open = wanted.size();
  taking->blobs.resize(wanted.size());
  std::unique_lock lock(mutex_);
  if (!closed_.ok()) return closed_;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& from = members.at(wanted[i].member);
    plane_->Pull(
        from.endpoint, from.incarnation,
        {TransferId(id), wanted[i].part, Incarnation(), round, from.ticket}, wanted[i].bytes,
        [self = shared_from_this(), taking, i](absl::StatusOr<std::shared_ptr<Blob>> blob) {
          std::lock_guard held(self->mutex_);
          --taking->open;
          if (blob.ok()) {
            taking->blobs[i] = *std::move(blob);
          } else if (taking->failure.ok()) {
            taking->failure = blob.status();
          }
          if (taking->open == 0 || !blob.ok()) self->changed_.notify_all();
        });
  }
  while (true) {
    if (!closed_.ok()) return closed_;
    if (const absl::Status* failure = FailureOf(id)) return *failure;
    if (!taking->failure.ok()) return taking->failure;
    if (taking->open == 0) return std::move(taking->blobs);
    changed_.wait(lock);
  }
}

const absl::Status* GangExchanges::FailureOf(uint64_t launch) const {
  auto it = failed_.upper_bound(launch);
  if (it == failed_.begin()) return nullptr;
  --it;
  return it->second.last >= launch ? &it->second.cause : nullptr;
}

void GangExchanges::Fail(uint64_t first, uint64_t last, const absl::Status& why) {
  for (uint64_t at = first; at <= last;) {
    auto next = failed_.upper_bound(at);
    if (next != failed_.begin()) {
      const auto before = std::prev(next);
      if (before->second.last >= at) {
        at = before->second.last + 1;
        continue;
      }
      if (before->second.last + 1 == at && before->second.cause == why) at = before->first;
    }
    failed_[at] = {next == failed_.end() ? last : std::min(last, next->first - 1), why};
    at = failed_[at].last + 1;
  }
  for (auto it = launches_.lower_bound(first); it != launches_.end() && it->first <= last;) {
    Launch& launch = it->second;
    launch.offered.clear();
    AnswerWaiting(launch);
    it = Over(launch) ? launches_.erase(it) : std::next(it);
  }
  for (const auto& [_, peer] : peers_) {
    std::erase_if(peer->slots, [&](const Pushed& pushed) {
      return pushed.name.launch >= first && pushed.name.launch <= last;
    });
  }
  SlotsAreFree();
  while (failed_.size() > kMaxFailed) {
    const auto second = std::next(failed_.begin());
    failed_.begin()->second.last = second->second.last;
    failed_.erase(second);
  }
  changed_.notify_all();
  Wake();
}

void GangExchanges::Abandon(uint64_t first, uint64_t last, const absl::Status& cause) {
  std::lock_guard lock(mutex_);
  if (!closed_.ok() || last <= ended_through_) return;
  Fail(std::max(first, ended_through_ + 1), last, cause);
}

void GangExchanges::LeaveOut(uint64_t first, uint64_t last, const absl::Status& cause) {
  std::lock_guard lock(mutex_);
  if (closed_.ok()) Fail(first, last, cause);
}

void GangExchanges::End(uint64_t id, const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (!closed_.ok()) return;
  ended_through_ = std::max(ended_through_, id);
  // Mostly nobody has pulled of any launch, or offers anything.
  if (status.ok() && launches_.empty()) return SlotsAreFree();
  Launch& launch = launches_[id];
  launch.ended = true;
  if (!status.ok()) return Fail(id, id, status);
  AnswerWaiting(launch);
  if (Over(launch)) launches_.erase(id);
  SlotsAreFree();
  while (launches_.size() > kRemembered && launches_.begin()->first < ended_through_) {
    AnswerWaiting(launches_.begin()->second);
    num_waiting_ -= launches_.begin()->second.waiting.size();
    launches_.erase(launches_.begin());
  }
}

}  // namespace fairway
