// SPDX-License-Identifier: Apache-2.0
#include "transport/kept_frames.h"

#include <algorithm>
#include <utility>

#include "base/planted.h"

namespace fairway {

Frame KeptFrames::Keep(Frame frame) {
  frame.id = ++last_;
  frames_.push_back(frame);
  return frame;
}

absl::Status KeptFrames::Check(uint64_t acknowledged, uint64_t least) const {
  if (acknowledged >= least && acknowledged <= last_) return absl::OkStatus();
  return InvalidArgument("the other end has taken message {}, expected {} to {}", acknowledged,
                         least, last_);
}

void KeptFrames::Acknowledged(uint64_t number) {
  while (!frames_.empty() && frames_.front().id <= number) frames_.pop_front();
}

absl::StatusOr<bool> KeptFrames::Take(const Frame& frame) {
  FAIRWAY_RETURN_IF_ERROR(Check(frame.offset, 0));
  if (frame.id > taken_ + 1) return InvalidArgument("message {} comes after {}", frame.id, taken_);
  Acknowledged(frame.offset);
  if (frame.id == 0) return true;
  return std::exchange(taken_, std::max(taken_, frame.id)) < frame.id;
}

absl::StatusOr<std::vector<Frame>> KeptFrames::Resume(uint64_t taken) {
  FAIRWAY_RETURN_IF_ERROR(Check(taken, last_ - frames_.size()));
  Acknowledged(taken);
  if (Planted(Bug::kResendNothing)) return std::vector<Frame>();
  return std::vector<Frame>(frames_.begin(), frames_.end());
}

}  // namespace fairway
