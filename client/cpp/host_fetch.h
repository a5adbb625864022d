// SPDX-License-Identifier: Apache-2.0
// Puts an array together from the pieces of its shards. Private to this folder.
#ifndef FAIRWAY_CLIENT_CPP_HOST_FETCH_H_
#define FAIRWAY_CLIENT_CPP_HOST_FETCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "core/box.h"
#include "core/sharding.h"
#include "fairway/status.h"
#include "fairway/types.h"
#include "fairway/v1/client.pb.h"

namespace fairway::client {

// One of the different parts of the array, and a shard that holds it.
struct Tile {
  int32_t shard = 0;
  Box box;  // within the whole array
};
// INVALID_ARGUMENT: there is no such array, or it is larger than any memory.
absl::StatusOr<std::vector<Tile>> TilesOf(const ::fairway::ArraySpec& spec);

// Used by one thread at a time.
class HostFetch {
 public:
  static absl::StatusOr<std::unique_ptr<HostFetch>> Make(const ArraySpec& spec);

  // Writes the shards to ask for into `fetch`.
  void Name(v1::Fetch* fetch) const;
  // Takes the next piece; returns true if it was the last. INTERNAL: the server breaks the
  // protocol.
  Result<bool> Take(const v1::Fetched& piece);
  // Call it once the array is complete.
  HostArray Array() const;

 private:
  struct Part {
    Tile tile;
    std::vector<char> bytes;  // unless the tile is the whole array
    size_t size = 0;
    size_t come = 0;
    bool complete = false;
  };
  ArraySpec spec_;
  std::shared_ptr<std::byte[]> whole_;
  size_t size_ = 0;
  std::vector<Part> parts_;
  size_t open_ = 0;
};

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_HOST_FETCH_H_
