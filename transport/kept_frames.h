// SPDX-License-Identifier: Apache-2.0
// Messages that outlive a connection: numbered, and kept until the other end has taken them.
#ifndef FAIRWAY_TRANSPORT_KEPT_FRAMES_H_
#define FAIRWAY_TRANSPORT_KEPT_FRAMES_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "base/status.h"
#include "transport/link.h"

namespace fairway {

// One end's messages to the other end, over all connections of one registration. A frame's id is
// its number (1, 2, 3, ...; 0: it may be lost with its connection), its offset the last number that
// its sender has taken from the other end. Loop-confined. Both ends have one.
//
// On a new connection each end says what it has taken; the other one sends what comes after it
// again. So each numbered message is taken once, in order.
class KeptFrames {
 public:
  // Numbers a frame and keeps a copy of it. Returns the frame, to be sent if there is a connection.
  Frame Keep(Frame frame);
  // For every frame that leaves: says what this end has taken.
  void Stamp(Frame& frame) const { frame.offset = taken_; }

  // A frame has come. Returns whether it is to be handled; false: it was taken before.
  // INVALID_ARGUMENT: a number is left out, or the frame acknowledges what was not sent. Nothing
  // has changed then, and the connection should end.
  absl::StatusOr<bool> Take(const Frame& frame);

  // There is a new connection, and the other end has taken all numbers up to `taken`. Returns the
  // frames after it, to be sent in this order before any other numbered one. INVALID_ARGUMENT:
  // `taken` is a number that was not sent, or below one that was acknowledged. Nothing has changed
  // then: the other end is not the one that this one knows.
  absl::StatusOr<std::vector<Frame>> Resume(uint64_t taken);

  uint64_t taken() const { return taken_; }

 private:
  absl::Status Check(uint64_t acknowledged, uint64_t least) const;
  void Acknowledged(uint64_t number);

  uint64_t last_ = 0;         // the newest number
  std::deque<Frame> frames_;  // with the numbers up to last_
  uint64_t taken_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_KEPT_FRAMES_H_
