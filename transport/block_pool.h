// SPDX-License-Identifier: Apache-2.0
// Large blocks to receive into, kept for the next transfer of the same size: the first touch of
// fresh pages costs more than receiving the bytes.
#ifndef FAIRWAY_TRANSPORT_BLOCK_POOL_H_
#define FAIRWAY_TRANSPORT_BLOCK_POOL_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "base/blob.h"

namespace fairway {

// Thread-safe. Blocks come back when their last reference goes, on whatever thread that is, also
// after the pool's maker is gone.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  static constexpr size_t kSmallest = 1 << 20;  // smaller blocks are not kept

  // Keeps at most `limit` bytes of blocks that nobody uses; the oldest go first.
  static std::shared_ptr<BlockPool> Make(size_t limit);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A block of exactly `size` bytes, with any contents. nullptr when there is no memory.
  std::shared_ptr<Blob> Take(size_t size);
  // Bytes kept.
  size_t kept() const;

 private:
  struct Block {
    char* data;
    size_t size;
  };
  explicit BlockPool(size_t limit) : limit_(limit) {}
  void GiveBack(Block block);

  const size_t limit_;
  mutable std::mutex mutex_;
  std::deque<Block> free_;  // oldest first
  size_t kept_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_BLOCK_POOL_H_
