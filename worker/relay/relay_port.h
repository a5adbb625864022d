// SPDX-License-Identifier: Apache-2.0
// The port of a relay: who may wait there until it has proved to be a child, and for how long. So
// nobody else can make the relay hold much, or keep its children out for long.
#ifndef FAIRWAY_WORKER_RELAY_RELAY_PORT_H_
#define FAIRWAY_WORKER_RELAY_RELAY_PORT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "async/loop.h"
#include "transport/link.h"
#include "worker/relay/relay_core.h"

namespace fairway {

// Loop-confined; lives as long as its loop runs.
class RelayPort {
 public:
  // Links of which nobody has proved anything. Above this one of the address that has most of them
  // is closed, the oldest.
  static constexpr size_t kMaxStrangers = 64;
  static constexpr std::chrono::milliseconds kPatience{2000};  // for a stranger's first message
  static constexpr size_t kMaxAskBytes = 256;
  // Lines of the log about refused links in kLogPeriod; others are counted.
  static constexpr int kMaxLines = 10;
  static constexpr std::chrono::seconds kLogPeriod{10};

  // `core` and `now` live as long as this object.
  RelayPort(Loop& loop, RelayCore* core, std::function<RelayCore::Time()> now)
      : loop_(loop), core_(core), now_(std::move(now)) {}

  void Accept(std::unique_ptr<Link> link);
  // Closes the links of strangers who have waited too long. Call it several times in kPatience.
  void Tick();

  size_t strangers() const;
  size_t links() const { return guests_.size(); }
  // Links that were closed because nobody proved to be a child on them.
  uint64_t refused() const { return refused_; }

 private:
  struct Guest {
    std::unique_ptr<Link> link;
    std::string host;
    RelayCore::Time came{0};
    bool child = false;  // it was one, at least
  };
  void OnFrame(uint64_t number, const Frame& frame);
  void MakeRoom();
  // Closes a link. `why` empty: that is no news.
  void Drop(uint64_t number, const std::string& why);

  Loop& loop_;
  RelayCore* const core_;
  const std::function<RelayCore::Time()> now_;
  uint64_t next_ = 1;
  std::map<uint64_t, Guest> guests_;  // in the order in which they came
  uint64_t refused_ = 0;
  RelayCore::Time period_{0};  // when the present kLogPeriod began
  int lines_ = 0;              // in it
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_RELAY_RELAY_PORT_H_
