// SPDX-License-Identifier: Apache-2.0
// Large blocks to receive into. They are kept for the next transfer of the same size, because the
// first touch of fresh pages costs more than receiving the bytes.
#ifndef FAIRWAY_TRANSPORT_BLOCK_POOL_H_
#define FAIRWAY_TRANSPORT_BLOCK_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "async/blocking_pool.h"
#include "base/blob.h"
#include "base/memory_budget.h"
#include "base/status.h"

namespace fairway {

// The source of blocks when the budget is spent: unlinked files in `directory`, whose pages the
// kernel may write out and drop.
//
// Giving such a file up takes the kernel a millisecond for some MiB. So `files` does it, each owner
// in turn; nullptr: the thread that drops the last reference does.
struct Spool {
  std::shared_ptr<MemoryBudget> budget;
  std::string directory;
  std::shared_ptr<std::atomic<int64_t>> in_files =
      nullptr;  // counts the owner's bytes there; nullptr: not counted
  std::shared_ptr<BlockingPool> files = nullptr;
  // Counts the files that are mapped, of which a process can have no more than vm.max_map_count
  // (65,530 by default); its other memory needs some of these. nullptr: they are not counted.
  std::shared_ptr<MemoryBudget> mappings = nullptr;

  // Returns one owner's share: of the budget and the mappings (MemoryBudget), and of the disk,
  // where it may have as many bytes as it leaves to others.
  Spool Share() const {
    return {std::make_shared<MemoryBudget>(budget), directory,
            std::make_shared<std::atomic<int64_t>>(0), files,
            mappings == nullptr ? nullptr : std::make_shared<MemoryBudget>(mappings)};
  }
  // Counts a mapping, which Unmapping gives back. Returns whether there may be one more.
  bool TakeMapping() const { return mappings == nullptr || mappings->Reserve(1); }
  // Returns a function that gives up the mapping of an unlinked file, and so the file, and takes
  // `counted` bytes from `in_files`.
  std::function<void()> Unmapping(void* map, size_t size, int64_t counted) const;
};

// Held by data planes and by doors that copy large arrays. A block comes back when its last
// reference is dropped, on any thread, even after the holder is gone. Thread-safe.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  static constexpr size_t kSmallest = 1 << 20;  // smaller blocks are not kept

  // Keeps at most `limit` bytes of unused blocks; drops the oldest first.
  static std::shared_ptr<BlockPool> Make(size_t limit);
  // The same. Blocks of kSmallest bytes and more that go beyond the spool's budget are files.
  static std::shared_ptr<BlockPool> Make(size_t limit, Spool spool);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Returns a block of exactly `size` bytes, with any contents. RESOURCE_EXHAUSTED: there is no
  // memory (or, with a spool, no room in its directory).
  absl::StatusOr<std::shared_ptr<Blob>> Take(size_t size);
  // The bytes of unused blocks that are kept.
  size_t kept() const;

 private:
  struct Block {
    char* data;
    size_t size;
  };
  BlockPool(size_t limit, Spool spool) : limit_(limit), spool_(std::move(spool)) {}
  absl::StatusOr<std::shared_ptr<Blob>> TakeFile(size_t size);
  void GiveBack(Block block);

  const size_t limit_;
  const Spool spool_;  // without a budget: memory only
  mutable std::mutex mutex_;
  std::deque<Block> free_;  // oldest first
  size_t kept_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_BLOCK_POOL_H_
