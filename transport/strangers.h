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
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace fairway {

// NetworkOf (identity/network.h) a peer with its port: "10.0.0.7" of "10.0.0.7:4711".
std::string NetworkOfPeer(std::string_view peer);

// Networks of which somebody has proved who it is, at one port: kMost, of which the one that did so
// longest ago is forgotten. They have a little room that no stranger takes. Thread-safe.
class ProvenNetworks {
 public:
  static constexpr size_t kMost = 4096;

  void Add(std::string_view peer);
  bool Has(const std::string& network) const;

 private:
  mutable std::mutex mutex_;
  // Guarded by mutex_; each has what the other has.
  std::map<std::string, uint64_t> all_;
  std::map<uint64_t, std::string> by_age_;
  uint64_t next_ = 0;
};

// `most`, or less where this process may have few open files: that part of them.
size_t MostOfOpenFiles(size_t most, size_t part);

// Those of one port. Not thread-safe.
//
// There are at most `most`; for one more, the oldest of the network that has most ends, and where
// several have as many, the oldest of all theirs. So whoever opens connections and says nothing
// keeps nobody of another network out. Of a proven network kSpared do not count: so whoever has
// thousands of networks does not end those few.
class Strangers {
 public:
  static constexpr size_t kMost = 512;
  static constexpr size_t kSpared = 8;
  // kMost, or a 64th of the open files that this process may have: five such lines and those of
  // Front leave others theirs.
  static size_t Most() { return MostOfOpenFiles(kMost, 64); }

  // `proven` outlives it; nullptr: no network is.
  explicit Strangers(size_t most = Most(), const ProvenNetworks* proven = nullptr)
      : most_(most), proven_(proven) {}

  // Counts a connection of `peer` ("10.0.0.7:4711"). `end` closes it, to make room for others; it
  // is forgotten before, so `end` may call Remove.
  uint64_t Add(std::string_view peer, std::function<void()> end);
  // It is known now, or has ended. Does nothing if it is not there any more.
  void Remove(uint64_t number);
  // Ends all.
  void EndAll();
  size_t size() const { return all_.size(); }
  size_t most() const { return most_; }

 private:
  struct One {
    std::string network;
    std::function<void()> end;
  };
  // Those of one, never empty.
  struct Network {
    std::set<uint64_t> numbers;  // in all_
    size_t spared = 0;
  };
  void EndOne();

  const size_t most_;
  const ProvenNetworks* const proven_;
  uint64_t next_ = 1;
  std::map<uint64_t, One> all_;  // by age
  std::map<std::string, Network> by_network_;
};

// How many handshakes may begin at a port. Each takes about a millisecond of a thread, perhaps of
// one that has other work. A network begins kASecond, and kAtOnce before that counts. All together
// begin twice as many; beyond that networks go on that have begun few, twice as many again, and
// beyond that only proven ones. One that ended well, with a certificate of the cluster, counts no
// more. Not thread-safe.
class Pace {
 public:
  static constexpr double kASecond = 128;
  static constexpr double kAtOnce = 256;
  static constexpr double kFew = 8;
  static constexpr std::string_view kRefusal = "its network begins too many handshakes a second";

  // `proven` outlives it; nullptr: no network is.
  explicit Pace(const ProvenNetworks* proven = nullptr) : proven_(proven) {}
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
  const ProvenNetworks* const proven_;
  Count all_{2 * kAtOnce, {}};
  Count few_{2 * kAtOnce, {}};  // those beyond that
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
