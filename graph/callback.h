// SPDX-License-Identifier: Apache-2.0
// A call that a running program makes of a function of the client that launched it, as executors
// and the controller pass it to each other (docs/design/0046-callbacks.md). Plain values.
#ifndef FAIRWAY_GRAPH_CALLBACK_H_
#define FAIRWAY_GRAPH_CALLBACK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/blob.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/ticket.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace fairway {

// An array, dense, major to minor.
struct CallbackArray {
  DType dtype = DType::kInvalid;
  Shape shape;
  // nullptr: a result that is wanted, or bytes that must be pulled
  std::shared_ptr<const Blob> bytes;
};

struct CallbackCall {
  uint64_t call = 0;  // unique within the executor's registration
  LaunchId launch;    // the launch that makes it
  uint64_t function = 0;
  int32_t device = 0;  // the executor's ordinal
  // Arguments without bytes are pulled from the executor's data port: transfer
  // CallbackTransfer(call), with the number of the argument as index.
  std::vector<CallbackArray> arguments;
  std::vector<CallbackArray> results;  // the results that are wanted
};

// The caller: the launch's session, its program, and the device as that session sees it.
struct CallbackCaller {
  SessionId session;
  std::string program;
  int32_t device = 0;
};

struct CallbackAnswer {
  uint64_t call = 0;
  absl::Status status;
  std::vector<std::shared_ptr<const Blob>> results;  // if `status` is OK
  // Set: the results must be pulled from the controller's data port, each by its number.
  TransferId transfer;
  Ticket ticket;  // for them
};

// If the arguments together have at most this size, they cross the executor's link; larger ones are
// pulled. The same holds for the results.
inline constexpr int64_t kInlineCallbackBytes = 64 << 10;
// The bound of the arguments of one call, and of its results.
inline constexpr int64_t kMaxCallbackBytes = int64_t{256} << 20;
inline constexpr int kMaxCallbackArrays = 4096;

// Ids of transfers that no plan has begin here.
inline constexpr uint64_t kCallbackTransfers = uint64_t{1} << 63;
inline TransferId CallbackTransfer(uint64_t number) {
  return TransferId(kCallbackTransfers | number);
}
inline bool IsCallback(TransferId transfer) { return (transfer.value & kCallbackTransfers) != 0; }

// Returns the bytes of all arrays together; INVALID_ARGUMENT: there is no such size.
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
