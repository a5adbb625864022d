// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_RELAYOUT_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_RELAYOUT_H_

#include <memory>

#include "worker/executor/runtime/pjrt/buffer.h"

namespace fairway::pjrt {

// A copy of `buffer`, whose bytes are computed, with its dimensions in `order`. Blocks for the time
// of the copy. Needed where an argument came from elsewhere: transfers and uploads are major to
// minor, whatever order the program takes that reads them.
//
// The plugin compares only sizes, so the copy has the dimensions in the order in which they lie in
// memory: it is good as an argument and for nothing else.
// UNIMPLEMENTED: no CPU, or a type with several elements in a byte. RESOURCE_EXHAUSTED: no memory.
absl::StatusOr<std::shared_ptr<RawBuffer>> CopyInOrder(const Buffer& buffer,
                                                       const std::shared_ptr<RawBuffer>& raw,
                                                       const DimensionOrder& order);

// Writes `from`, whose dimensions of `dims` elements of `width` bytes lie in the order `source`, to
// `to` in the order `target`. Both empty: major to minor. The orders are permutations of dims.
void CopyElements(const char* from, const DimensionOrder& source, char* to,
                  const DimensionOrder& target, const std::vector<int64_t>& dims, int64_t width);

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_RELAYOUT_H_
