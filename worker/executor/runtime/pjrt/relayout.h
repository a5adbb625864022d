// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_RELAYOUT_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_RELAYOUT_H_

#include <memory>

#include "worker/executor/runtime/pjrt/buffer.h"

namespace fairway::pjrt {

// Copies `buffer`, whose bytes are computed, with its dimensions in `order`. Blocks for the time of
// the copy. Needed if an argument came from elsewhere: transfers and uploads are major to minor,
// whatever order the program takes.
//
// The plugin compares only sizes, so the copy's dimensions are listed in the order in which they
// lie in memory: the copy is good only as an argument. UNIMPLEMENTED: not a CPU, or a type with
// several elements in a byte. RESOURCE_EXHAUSTED: no memory.
absl::StatusOr<std::shared_ptr<RawBuffer>> CopyInOrder(const Buffer& buffer,
                                                       const std::shared_ptr<RawBuffer>& raw,
                                                       const DimensionOrder& order);

// Copies `from`, whose dimensions lie in the order `source`, to `to` in the order `target`. `dims`
// are numbers of elements, each of `width` bytes. An empty order: major to minor. The orders are
// permutations of the dimensions.
void CopyElements(const char* from, const DimensionOrder& source, char* to,
                  const DimensionOrder& target, const std::vector<int64_t>& dims, int64_t width);

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_RELAYOUT_H_
