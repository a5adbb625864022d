// SPDX-License-Identifier: Apache-2.0
// Connections whose peers have not proved who they are: how many a port has at most, and what the
// log says of those who are let go of.
#ifndef FAIRWAY_TRANSPORT_STRANGERS_H_
#define FAIRWAY_TRANSPORT_STRANGERS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace fairway {

// NetworkOf (identity/network.h) a peer with its port: "10.0.0.7" of "10.0.0.7:4711".
std::string NetworkOfPeer(std::string_view peer);

// Those of one port. Not thread-safe.
//
// There are at most `most`; for one more, the oldest of the network that has most ends, and where
// several have as many, the oldest of all theirs. So whoever opens connections and says nothing
// keeps nobody of another network out.
class Strangers {
 public:
  static constexpr size_t kMost = 512;

  explicit Strangers(size_t most = kMost) : most_(most) {}

  // Counts a connection of `peer` ("10.0.0.7:4711"). `end` closes it, to make room for others; it
  // is forgotten before, so `end` may call Remove.
  uint64_t Add(std::string_view peer, std::function<void()> end);
  // It is known now, or has ended. Does nothing if it is not there any more.
  void Remove(uint64_t number);
  // Ends all.
  void EndAll();
  size_t size() const { return all_.size(); }

 private:
  struct One {
    std::string network;
    std::function<void()> end;
  };
  void EndOne();

  const size_t most_;
  uint64_t next_ = 1;
  std::map<uint64_t, One> all_;  // by age
  // The numbers of each network; none is empty. They are those of all_.
  std::map<std::string, std::map<uint64_t, std::map<uint64_t, One>::iterator>> by_network_;
};

// How many handshakes may begin at a port. Each takes about a millisecond of a thread, perhaps of
// one that has other work. A network begins kASecond, and kAtOnce before that counts. All together
// begin twice as many; beyond that only networks go on that have begun few. One that ended well,
// with a certificate of the cluster, counts no more. Not thread-safe.
class Pace {
 public:
  static constexpr double kASecond = 128;
  static constexpr double kAtOnce = 256;
  static constexpr double kFew = 8;
  static constexpr std::string_view kRefusal = "its network begins too many handshakes a second";

  // Whether `peer` may begin one now, which then counts.
  bool Take(std::string_view peer, std::chrono::steady_clock::time_point now);
  // The one that `peer` began counts no more.
  void GiveBack(std::string_view peer, std::chrono::steady_clock::time_point now);

 private:
  struct Count {
    double left = kAtOnce;
    std::chrono::steady_clock::time_point at;  // when that was so
  };
  static constexpr size_t kMostNetworks = 4096;
  static double LeftAt(const Count& count, double per_second, double most,
                       std::chrono::steady_clock::time_point now);

  std::map<std::string, Count> networks_;  // those that began one lately
  Count all_{2 * kAtOnce, {}};
};

// Says in the log who is refused: a line a second at most, with the number of those that had none.
class Refusals {
 public:
  void Log(std::string_view peer, std::string_view why);

 private:
  std::chrono::steady_clock::time_point said_;
  size_t unsaid_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_STRANGERS_H_
