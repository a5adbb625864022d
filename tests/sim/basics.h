// SPDX-License-Identifier: Apache-2.0
// The basics of the simulation: seeded randomness, virtual time, the first broken rule, checkable
// values.
#ifndef FAIRWAY_TESTS_SIM_BASICS_H_
#define FAIRWAY_TESTS_SIM_BASICS_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <fmt/format.h>

#include "base/blob.h"

namespace fairway::sim {

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers on every machine, unlike
// std::uniform_int_distribution.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // 0 .. n-1; n > 0.
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }
  // first .. last, both included.
  int64_t Between(int64_t first, int64_t last) { return first + Below(last - first + 1); }
  bool Percent(int64_t chance) { return Below(100) < chance; }
  template <typename T>
  T& Pick(std::vector<T>& from) {
    return from[Below(static_cast<int64_t>(from.size()))];
  }
  template <typename T>
  const T& Pick(const std::vector<T>& from) {
    return from[Below(static_cast<int64_t>(from.size()))];
  }
  template <typename T>
  void Shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[Below(static_cast<int64_t>(i))]);
  }

 private:
  uint64_t state_;
};

inline constexpr int64_t kMillisecond = 1000;
inline constexpr int64_t kSecond = 1000000;

using Event = absl::AnyInvocable<void()>;

// Virtual time in microseconds. Events of one instant run in the order in which they were added.
class EventQueue {
 public:
  int64_t now() const { return now_; }
  void At(int64_t time, Event run) {
    heap_.push_back({std::max(time, now_), next_++, std::move(run)});
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }
  void After(int64_t delay, Event run) { At(now_ + delay, std::move(run)); }
  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  void RunOne() {
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    Entry entry = std::move(heap_.back());
    heap_.pop_back();
    now_ = entry.time;
    entry.run();
  }

 private:
  struct Entry {
    int64_t time = 0;
    uint64_t number = 0;
    Event run;
  };
  static bool Later(const Entry& a, const Entry& b) {
    return a.time != b.time ? a.time > b.time : a.number > b.number;
  }

  std::vector<Entry> heap_;
  int64_t now_ = 0;
  uint64_t next_ = 0;
};

// The first rule that was seen broken.
class Verdict {
 public:
  explicit Verdict(bool verbose) : verbose_(verbose) {}
  void Broken(std::string rule, std::string text) {
    if (verbose_) std::fputs(fmt::format("        BROKEN {}: {}\n", rule, text).c_str(), stdout);
    if (!rule_.empty()) return;
    rule_ = std::move(rule);
    text_ = std::move(text);
  }
  bool ok() const { return rule_.empty(); }
  const std::string& rule() const { return rule_; }
  const std::string& text() const { return text_; }

 private:
  const bool verbose_;
  std::string rule_;
  std::string text_;
};

inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t z = (a ^ (b + 0x9E3779B97F4A7C15u + (a << 6) + (a >> 2))) * 0xFF51AFD7ED558CCDu;
  z = (z ^ (z >> 33)) * 0xC4CEB9FE1A85EC53u;
  return z ^ (z >> 29);
}

// Every 8 bytes of a shard hold its value, a hash of what produced it. Sizes are multiples of 8.
inline std::shared_ptr<const Blob> BytesOf(uint64_t value, int64_t size) {
  auto blob = Blob::Make(static_cast<size_t>(size));
  for (int64_t i = 0; i + 8 <= size; i += 8) std::memcpy(blob->data() + i, &value, 8);
  return blob;
}
// 0: the words of the bytes differ.
inline uint64_t ValueOf(const Blob& blob) {
  uint64_t value = 0;
  for (size_t i = 0; i + 8 <= blob.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, blob.data() + i, 8);
    if (i > 0 && word != value) return 0;
    value = word;
  }
  return value;
}

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_BASICS_H_
