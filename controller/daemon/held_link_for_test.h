// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CONTROLLER_DAEMON_HELD_LINK_FOR_TEST_H_
#define FAIRWAY_CONTROLLER_DAEMON_HELD_LINK_FOR_TEST_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "transport/link.h"

namespace fairway {

// A link that holds its frames until they are delivered.
class HeldLink final : public Link {
 public:
  void Send(Frame frame) override {
    last_tail = frame.tail;
    if (frame.id != 0) last_id = frame.id;
    frame.Join();
    held.push_back(std::move(frame.payload));
  }
  size_t queued_bytes() const override {
    if (written) return 0;
    size_t bytes = 0;
    for (const std::string& frame : held) bytes += frame.size();
    return bytes;
  }
  void Close() override {}
  std::string peer() const override { return "held"; }

  std::deque<std::string> held;
  SharedTail last_tail;  // of the last frame
  uint64_t last_id = 0;  // other than 0
  bool written = false;  // the frames are in the sockets' buffers
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_HELD_LINK_FOR_TEST_H_
