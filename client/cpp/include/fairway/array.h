// SPDX-License-Identifier: Apache-2.0
// An array on the devices of a cluster.
#ifndef FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_ARRAY_H_
#define FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_ARRAY_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fairway/export.h"
#include "fairway/future.h"
#include "fairway/status.h"
#include "fairway/types.h"

namespace fairway::client {

struct ArrayState;

enum class CopySemantics {
  kReuse,   // what need not move is shared with the input
  kCopy,    // nothing is shared
  kDonate,  // as kReuse, and the input is as deleted afterwards
};

// A handle: copies stand for the same array, the last one gives it up on the cluster. The array
// itself is a future that may hold an error: whatever made it, or made what it is made of, went
// wrong. Using an error array is fine and makes error arrays.
//
// May outlive its session; then all its futures hold CANCELLED. Thread-safe, like a shared_ptr:
// copies on several threads, one copy on one thread at a time.
class Array {
 public:
  Array() = default;  // none: everything about it is an error
  explicit operator bool() const { return state_ != nullptr; }

  FAIRWAY_API const ArraySpec& spec() const;
  DType dtype() const { return spec().dtype; }
  const Shape& shape() const { return spec().shape; }
  const Sharding& sharding() const { return spec().sharding; }

  // When it is computed; or why it is not.
  FAIRWAY_API Future<Status> Ready() const;
  // Its bytes, put together from the shards. They go through the controller.
  FAIRWAY_API Future<Result<HostArray>> ToHost() const;

  // The same shards on other devices: as many as it has shards.
  FAIRWAY_API Array CopyTo(std::vector<int> devices,
                           CopySemantics semantics = CopySemantics::kReuse) const;
  // The same values cut in another way, on these or other devices.
  FAIRWAY_API Array Reshard(const Sharding& sharding,
                            CopySemantics semantics = CopySemantics::kReuse) const;
  // Its shards as arrays of their own. Nothing moves.
  FAIRWAY_API std::vector<Array> Shards() const;

  // Frees the memory now, also under arrays that share it. Calls that were made before are not
  // disturbed.
  FAIRWAY_API void Delete() const;

 private:
  friend class Access;
  explicit Array(std::shared_ptr<ArrayState> state) : state_(std::move(state)) {}
  std::shared_ptr<ArrayState> state_;
};

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_ARRAY_H_
