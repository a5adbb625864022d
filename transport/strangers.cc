// SPDX-License-Identifier: Apache-2.0
#include "transport/strangers.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "identity/network.h"

namespace fairway {

std::string NetworkOfPeer(std::string_view peer) {
  return NetworkOf(std::string(peer.substr(0, peer.rfind(':'))));
}

void ProvenNetworks::Add(std::string_view peer) {
  const std::lock_guard lock(mutex_);
  const auto [network, fresh] = all_.try_emplace(NetworkOfPeer(peer), 0);
  if (!fresh) by_age_.erase(network->second);
  network->second = ++next_;
  by_age_[next_] = network->first;
  if (all_.size() <= kMost) return;
  all_.erase(by_age_.begin()->second);
  by_age_.erase(by_age_.begin());
}

bool ProvenNetworks::Has(const std::string& network) const {
  const std::lock_guard lock(mutex_);
  return all_.contains(network);
}

size_t MostOfOpenFiles(size_t most, size_t part) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return most;
  return std::clamp<size_t>(files.rlim_cur / part, 1, most);
}

uint64_t Strangers::Add(std::string_view peer, std::function<void()> end) {
  if (all_.size() >= most_) EndOne();
  const uint64_t number = next_++;
  const auto at = all_.emplace(number, One{NetworkOfPeer(peer), std::move(end)}).first;
  Network& network = by_network_[at->second.network];
  network.numbers.insert(number);
  network.spared = proven_ != nullptr && proven_->Has(at->second.network) ? kSpared : 0;
  return number;
}

void Strangers::Remove(uint64_t number) {
  const auto one = all_.find(number);
  if (one == all_.end()) return;
  const auto network = by_network_.find(one->second.network);
  network->second.numbers.erase(number);
  if (network->second.numbers.empty()) by_network_.erase(network);
  all_.erase(one);
}

void Strangers::EndOne() {
  // The most; of these, the one with the oldest.
  const auto rank = [](const auto& network) {
    const auto& [numbers, spared] = network.second;
    return std::pair(numbers.size() - std::min(numbers.size(), spared), ~*numbers.begin());
  };
  const auto most = std::ranges::max_element(by_network_, {}, rank);
  const uint64_t oldest = *most->second.numbers.begin();
  const auto end = std::move(all_.at(oldest).end);
  Remove(oldest);
  end();
}

void Strangers::EndAll() {
  by_network_.clear();
  for (auto& [_, one] : std::exchange(all_, {})) one.end();
}

double Pace::LeftAt(const Count& count, double per_second, double most,
                    std::chrono::steady_clock::time_point now) {
  const double seconds = std::chrono::duration<double>(now - count.at).count();
  return std::min(most, count.left + per_second * std::max(seconds, 0.0));
}

bool Pace::Take(std::string_view peer, std::chrono::steady_clock::time_point now) {
  const auto left_of = [now](const Count& count) { return LeftAt(count, kASecond, kAtOnce, now); };
  if (networks_.size() >= kMostNetworks) {
    std::erase_if(networks_, [&](const auto& entry) { return left_of(entry.second) >= kAtOnce; });
    // Whoever has so many networks is not slowed down by counting them.
    if (networks_.size() >= kMostNetworks) networks_.clear();
  }
  auto& [name, network] = *networks_.try_emplace(NetworkOfPeer(peer), Count{kAtOnce, now}).first;
  const double left = left_of(network);
  if (left < 1) return false;
  const auto together = [now](Count& count) {
    count = {LeftAt(count, 2 * kASecond, 2 * kAtOnce, now), now};
    if (count.left < 1) return false;
    --count.left;
    return true;
  };
  if (!together(all_) && !(left >= kAtOnce - kFew && together(few_)) &&
      (proven_ == nullptr || !proven_->Has(name)))
    return false;
  network = {left - 1, now};
  return true;
}

void Pace::GiveBack(std::string_view peer, std::chrono::steady_clock::time_point now) {
  all_ = {std::min(2 * kAtOnce, LeftAt(all_, 2 * kASecond, 2 * kAtOnce, now) + 1), now};
  const auto network = networks_.find(NetworkOfPeer(peer));
  if (network == networks_.end()) return;
  Count& count = network->second;
  count = {std::min(kAtOnce, LeftAt(count, kASecond, kAtOnce, now) + 1), now};
}

void Refusals::Log(std::string_view peer, std::string_view why) {
  const auto now = std::chrono::steady_clock::now();
  if (now - said_ < std::chrono::seconds(1)) {
    ++unsaid_;
    return;
  }
  said_ = now;
  const size_t others = std::exchange(unsaid_, 0);
  spdlog::warn("a connection of {} is refused: {}{}", peer, why,
               others == 0 ? "" : fmt::format(" ({} more were since the last line)", others));
}

}  // namespace fairway
