// SPDX-License-Identifier: Apache-2.0
#include "transport/block_pool.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

namespace fairway {

std::shared_ptr<BlockPool> BlockPool::Make(size_t limit) {
  return std::shared_ptr<BlockPool>(new BlockPool(limit));
}

BlockPool::~BlockPool() {
  for (const Block& block : free_) std::free(block.data);
}

std::shared_ptr<Blob> BlockPool::Take(size_t size) {
  if (size < kSmallest || size > limit_) return Blob::Make(size);
  Block block{nullptr, size};
  {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(free_.rbegin(), free_.rend(),
                                    [size](const Block& b) { return b.size == size; });
    if (found != free_.rend()) {
      block = *found;
      kept_ -= size;
      free_.erase(std::next(found).base());
    }
  }
  if (block.data == nullptr) {
    const size_t rounded = (size + Blob::kAlignment - 1) / Blob::kAlignment * Blob::kAlignment;
    block.data = static_cast<char*>(std::aligned_alloc(Blob::kAlignment, rounded));
    if (block.data == nullptr) return nullptr;
  }
  return Blob::Adopt(block.data, size,
                     [pool = shared_from_this(), block] { pool->GiveBack(block); });
}

void BlockPool::GiveBack(Block block) {
  std::vector<Block> surplus;
  {
    std::lock_guard lock(mutex_);
    free_.push_back(block);
    kept_ += block.size;
    while (kept_ > limit_) {
      surplus.push_back(free_.front());
      kept_ -= free_.front().size;
      free_.pop_front();
    }
  }
  for (const Block& old : surplus) std::free(old.data);
}

size_t BlockPool::kept() const {
  std::lock_guard lock(mutex_);
  return kept_;
}

}  // namespace fairway
