// SPDX-License-Identifier: Apache-2.0
// Element types as PJRT and XLA number them; both differ from ours (core/dtype.h).
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TYPES_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TYPES_H_

#include <optional>

#include "core/dtype.h"

namespace fairway::pjrt {

// PJRT_Buffer_Type of a buffer with bytes. Nothing: PJRT has no such type, or it has no bytes.
std::optional<int> ToBufferType(DType dtype);
// kInvalid: we have no such type.
DType FromBufferType(int type);
// xla.PrimitiveType, as HLO protos hold it.
DType FromPrimitiveType(int type);
// Whether PJRT packs several elements into a byte on the device.
bool IsSubByte(DType dtype);

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_TYPES_H_
