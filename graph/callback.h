// SPDX-License-Identifier: Apache-2.0
// How a program that runs calls a function of the client that launched it, as executors and the
// controller say it to each other (docs/design/0046-callbacks.md). Plain values.
#ifndef FAIRWAY_GRAPH_CALLBACK_H_
#define FAIRWAY_GRAPH_CALLBACK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/blob.h"
#include "base/ids.h"
#include "base/status.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace fairway {

// Dense, major to minor.
struct CallbackArray {
  DType dtype = DType::kInvalid;
  Shape shape;
  std::shared_ptr<const Blob> bytes;  // nullptr: wanted, or to be pulled
};

struct CallbackCall {
  uint64_t call = 0;  // of the executor's registration
  LaunchId launch;    // that makes it
  uint64_t function = 0;
  int32_t device = 0;  // the executor's ordinal
  // Those without bytes are pulled from the executor's data port: transfer CallbackTransfer(call),
  // with the number of the argument as index.
  std::vector<CallbackArray> arguments;
  std::vector<CallbackArray> results;  // wanted
};

// Who made it: the launch's session, its program, and the device as that session sees it.
struct CallbackCaller {
  SessionId session;
  std::string program;
  int32_t device = 0;
};

struct CallbackAnswer {
  uint64_t call = 0;
  absl::Status status;
  std::vector<std::shared_ptr<const Blob>> results;  // when it is OK
  // Set: the results are not here, but are pulled from the controller's data port, each by its
  // number.
  TransferId transfer;
};

// Arguments of up to this size together cross the executor's link, and so do results. Larger ones
// are pulled.
inline constexpr int64_t kInlineCallbackBytes = 64 << 10;
// Of arguments and results of one call, each.
inline constexpr int64_t kMaxCallbackBytes = int64_t{256} << 20;
inline constexpr int kMaxCallbackArrays = 4096;

// Transfers that no plan knows.
inline constexpr uint64_t kCallbackTransfers = uint64_t{1} << 63;
inline TransferId CallbackTransfer(uint64_t number) {
  return TransferId(kCallbackTransfers | number);
}
inline bool IsCallback(TransferId transfer) { return (transfer.value & kCallbackTransfers) != 0; }

// Of all arrays together; nothing: there is no such size.
inline absl::StatusOr<int64_t> CallbackBytes(const std::vector<CallbackArray>& arrays) {
  int64_t total = 0;
  for (const CallbackArray& array : arrays) {
    FAIRWAY_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(array.dtype, array.shape));
    if (__builtin_add_overflow(total, bytes, &total))
      return absl::InvalidArgumentError("arrays of too many bytes");
  }
  return total;
}

}  // namespace fairway

#endif  // FAIRWAY_GRAPH_CALLBACK_H_
