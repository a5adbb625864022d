// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_IDENTITY_WRONG_TOKENS_H_
#define FAIRWAY_IDENTITY_WRONG_TOKENS_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <string>

namespace fairway {

// How long the refusal of a wrong token waits, by the address that it came from. Right tokens never
// wait, so whoever guesses slows nobody down but itself.
//
// Pure; not thread-safe. What it holds is bounded, however many addresses there are.
class WrongTokens {
 public:
  using Time = std::chrono::sys_time<std::chrono::milliseconds>;

  static constexpr int kAtOnce = 10;  // of an address, in a minute
  static constexpr std::chrono::milliseconds kWindow{60'000};
  static constexpr std::chrono::milliseconds kDelay{2'000};
  static constexpr size_t kMostAddresses = 4096;
  // Calls that wait for their refusal hold memory, so further ones are refused at once.
  static constexpr size_t kMostWaiting = 256;

  // Counts a wrong token that came at `now` from `address`, as NetworkOf makes it.
  std::chrono::milliseconds Count(const std::string& address, Time now);
  size_t num_addresses() const { return windows_.size(); }

 private:
  struct Window {
    Time end;
    int count = 0;
  };
  void ForgetPast(Time now);

  std::map<std::string, Window> windows_;
  std::deque<std::pair<Time, std::string>> ends_;  // of windows_, the first that ends first
  std::deque<Time> waiting_;                       // until when, the first that ends first
};

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_WRONG_TOKENS_H_
