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
  kReuse,   // shards that need not move are shared with the input
  kCopy,    // nothing is shared with the input
  kDonate,  // like kReuse; the input counts as deleted afterwards
};

// A handle to an array. Copies of a handle stand for the same array; dropping the last one gives
// the array up on the cluster.
//
// The array itself is a future that may hold an error: the error of the call that made it, or of an
// array that this call used. Error arrays may be used like others; calls with them make error
// arrays.
//
// A handle may outlive its session; then all its futures hold CANCELLED. Thread-safe like a
// shared_ptr: each thread uses copies of its own.
class Array {
 public:
  Array() = default;  // no array: every call gives an error
  explicit operator bool() const { return state_ != nullptr; }

  FAIRWAY_API const ArraySpec& spec() const;
  DType dtype() const { return spec().dtype; }
  const Shape& shape() const { return spec().shape; }
  const Sharding& sharding() const { return spec().sharding; }

  // Becomes OK when the array is computed, or holds its error.
  FAIRWAY_API Future<Status> Ready() const;
  // Fetches the bytes and puts them together from the shards. They go through the controller.
  FAIRWAY_API Future<Result<HostArray>> ToHost() const;

  // Copies the same shards to other devices; `devices` has as many as there are shards.
  FAIRWAY_API Array CopyTo(std::vector<int> devices,
                           CopySemantics semantics = CopySemantics::kReuse) const;
  // Makes an array of the same values that is cut in another way, on the same or other devices.
  FAIRWAY_API Array Reshard(const Sharding& sharding,
                            CopySemantics semantics = CopySemantics::kReuse) const;
  // Returns the shards as arrays of their own. Nothing moves.
  FAIRWAY_API std::vector<Array> Shards() const;

  // Frees the memory now, also of arrays that share it. Earlier calls are not affected.
  FAIRWAY_API void Delete() const;

 private:
  friend class Access;
  explicit Array(std::shared_ptr<ArrayState> state) : state_(std::move(state)) {}
  std::shared_ptr<ArrayState> state_;
};

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_ARRAY_H_
