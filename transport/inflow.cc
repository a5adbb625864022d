// SPDX-License-Identifier: Apache-2.0
#include "transport/inflow.h"

#include <linux/tcp.h>  // glibc's tcp_info lacks what is needed
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "transport/sockets.h"

namespace fairway {
namespace {

// Of what the client has got: what it sends to acknowledge it.
constexpr uint64_t kAcknowledged = 512;
// What it sends by itself: pings.
constexpr int64_t kBytesASecond = 1024;

// So long between two looks while somebody has much, and while nobody has.
constexpr std::chrono::milliseconds kSoon{50};
constexpr std::chrono::milliseconds kLater{200};
constexpr int64_t kMuch = int64_t{8} << 20;

}  // namespace

std::optional<Inflows::Moved> MovedBy(int fd, uint64_t cookie) {
  tcp_info info{};
  socklen_t size = sizeof info;
  // The cookie afterwards: then it was of this socket.
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || CookieOf(fd) != cookie)
    return std::nullopt;
  return Inflows::Moved{.received = info.tcpi_bytes_received, .sent = info.tcpi_bytes_acked};
}

void Inflow::Begin(const std::shared_ptr<Call>& call) {
  expected_ += kCallFraming;
  const std::lock_guard lock(mutex_);
  calls_[call.get()] = call;
}

void Inflow::End(const Call* call) {
  const std::lock_guard lock(mutex_);
  calls_.erase(call);
}

absl::StatusOr<std::shared_ptr<Inflow>> Inflows::Add(const std::string& peer, Whose whose, int fd,
                                                     uint64_t cookie, Time now) {
  const std::lock_guard lock(mutex_);
  FAIRWAY_RETURN_IF_ERROR(MakeRoom(whose.holder));
  Connection& one = all_[peer];
  one = Connection{.inflow = std::make_shared<Inflow>(),
                   .whose = std::move(whose),
                   .number = next_++,
                   .fd = fd,
                   .cookie = cookie,
                   .seen = probe_(fd, cookie).value_or(Moved()),
                   .expected = 0,
                   .looked = now,
                   .under_way = 0,
                   .over = absl::OkStatus(),
                   .told = false};
  return one.inflow;
}

absl::Status Inflows::MakeRoom(const std::string& holder) {
  if (all_.size() < limits_.connections) return absl::OkStatus();
  if (const auto known = refused_.find(holder); known != refused_.end()) return known->second;
  struct Held {
    size_t count = 0;
    Connections::value_type* idle = nullptr;    // the oldest
    Connections::value_type* newest = nullptr;  // of all
  };
  std::map<std::string, Held> holders;
  size_t all = 0;
  for (auto& entry : all_) {
    const Connection& one = entry.second;
    if (!one.over.ok()) continue;
    Held& held = holders[one.whose.holder];
    ++all;
    ++held.count;
    const uint64_t number = one.number;
    if (held.newest == nullptr || number > held.newest->second.number) held.newest = &entry;
    if (held.idle != nullptr && number > held.idle->second.number) continue;
    const std::lock_guard lock(one.inflow->mutex_);
    if (one.inflow->calls_.empty()) held.idle = &entry;
  }
  if (all < limits_.connections) return absl::OkStatus();
  ++holders[holder].count;
  auto& [who, most] = *std::ranges::max_element(holders, {}, [&](const auto& entry) {
    return std::pair(entry.second.count, entry.first == holder);
  });
  const bool own = who == holder;
  const size_t has = most.count - (own ? 1 : 0);
  if (most.idle != nullptr) {
    auto& [peer, one] = *most.idle;
    refusals_.Log(peer, fmt::format("it has no calls and makes room for another: {} has {} of {}",
                                    who, has, limits_.connections));
    shut_(one.fd, one.cookie);
    all_.erase(std::string(peer));
    return absl::OkStatus();
  }
  absl::Status why = Error(
      absl::StatusCode::kResourceExhausted,
      "{} has {} of the {} connections that clients may have, nobody has more, and calls are under "
      "way on all of these: {}. Close some, or bring the calls of many clients by one connection "
      "(fairway gateway); who runs the controller can raise its limit of open files, of which "
      "clients may have half",
      who, has, limits_.connections,
      own ? "this one is refused" : "this one, its newest, ends to make room for another's");
  if (own) return refused_[holder] = why;
  most.newest->second.over = std::move(why);
  return absl::OkStatus();
}

std::shared_ptr<Inflow> Inflows::Find(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(peer);
  return found == all_.end() ? nullptr : found->second.inflow;
}

void Inflows::Forget(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  all_.erase(peer);
}

bool Inflows::Count(Connection& one, Time now) const {
  // Before what the kernel says: what is taken between the two would count as taken and not come.
  const uint64_t expected = one.inflow->expected_;
  const std::optional<Moved> moved = probe_(one.fd, one.cookie);
  if (!moved.has_value()) return false;
  const auto since = std::chrono::floor<std::chrono::milliseconds>(now - one.looked);
  one.under_way += static_cast<int64_t>(moved->received - one.seen.received) -
                   static_cast<int64_t>(expected - one.expected) -
                   static_cast<int64_t>((moved->sent - one.seen.sent) / kAcknowledged) -
                   since.count() * kBytesASecond / 1000;
  one.seen = *moved;
  one.expected = expected;
  one.looked = now;
  const std::lock_guard lock(one.inflow->mutex_);
  // What gRPC had of calls that have ended is gone.
  if (one.inflow->calls_.empty()) one.under_way = 0;
  one.under_way = std::max<int64_t>(one.under_way, 0);
  return true;
}

Inflows::Connections::value_type* Inflows::MostOver(std::map<std::string, int64_t>& owners,
                                                    int64_t all) {
  const auto most = std::ranges::max_element(
      owners, {}, [](const std::pair<const std::string, int64_t>& owner) { return owner.second; });
  if (most == owners.end() || most->second <= limits_.least || most->second <= limits_.all - all)
    return nullptr;
  Connections::value_type* largest = nullptr;
  for (auto& entry : all_) {
    if (entry.second.whose.owner != most->first || !entry.second.over.ok()) continue;
    if (largest == nullptr || entry.second.under_way > largest->second.under_way) largest = &entry;
  }
  return largest;
}

std::map<std::string, int64_t> Inflows::CountAll(Time now, std::vector<Told>& told) {
  std::map<std::string, int64_t> owners;
  for (auto it = all_.begin(); it != all_.end();) {
    Connection& one = it->second;
    if (one.told) shut_(one.fd, one.cookie);
    if (one.told || !Count(one, now)) {
      it = all_.erase(it);
      continue;
    }
    if (one.over.ok()) {
      owners[one.whose.owner] += one.under_way;
    } else {
      refusals_.Log(it->first, Text(one.over));
      one.told = true;
      told.emplace_back(one.inflow, one.over);
    }
    ++it;
  }
  return owners;
}

std::chrono::milliseconds Inflows::Look(Time now) {
  std::vector<Told> told;
  int64_t all = 0;
  {
    const std::lock_guard lock(mutex_);
    refused_.clear();
    std::map<std::string, int64_t> owners = CountAll(now, told);
    for (const auto& [_, bytes] : owners) all += bytes;
    while (auto* const largest = MostOver(owners, all)) {
      auto& [peer, one] = *largest;
      absl::Status why = Error(
          absl::StatusCode::kResourceExhausted,
          "messages of {} MiB were on their way by this connection, and of {} MiB by all of its "
          "token, of which no end had come; that is more than the {} MiB that they leave to "
          "others. Send large programs one after another, and bytes of arrays in parts of 1 MiB",
          one.under_way >> 20, owners[one.whose.owner] >> 20,
          std::max<int64_t>(limits_.all - all, 0) >> 20);
      spdlog::warn("the connection of {} is ended: {}", peer, Text(why));
      owners[one.whose.owner] -= one.under_way;
      all -= one.under_way;
      one.over = why;
      one.told = true;
      told.emplace_back(one.inflow, std::move(why));
    }
  }
  for (const auto& [inflow, why] : told) {
    std::vector<std::shared_ptr<Inflow::Call>> calls;
    {
      const std::lock_guard lock(inflow->mutex_);
      for (const auto& [_, call] : inflow->calls_) calls.push_back(call.lock());
    }
    for (const auto& call : calls) {
      if (call != nullptr) call->Over(why);
    }
  }
  return told.empty() && all < kMuch ? kLater : kSoon;
}

}  // namespace fairway
