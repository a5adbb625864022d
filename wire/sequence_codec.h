// SPDX-License-Identifier: Apache-2.0
// Sequences (graph/plan.h) as v1.Sequence. One may have hundreds of thousands of instructions, so
// neither of these belongs into an event loop. Thread-safe.
#ifndef FAIRWAY_WIRE_SEQUENCE_CODEC_H_
#define FAIRWAY_WIRE_SEQUENCE_CODEC_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "graph/plan.h"

namespace fairway {

std::string EncodeSequence(const Sequence& sequence);
// INVALID_ARGUMENT: the bytes are no sequence, or its numbers are out of range. Whether they fit
// together is checked by whoever runs it (CheckSequence).
absl::StatusOr<std::shared_ptr<const Sequence>> DecodeSequence(std::string_view bytes);

}  // namespace fairway

#endif  // FAIRWAY_WIRE_SEQUENCE_CODEC_H_
