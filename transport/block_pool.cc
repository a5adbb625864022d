// SPDX-License-Identifier: Apache-2.0
#include "transport/block_pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace fairway {
namespace {

absl::Status NoMemory(size_t size) {
  return Error(absl::StatusCode::kResourceExhausted, "no host memory for {} bytes", size);
}

}  // namespace

std::shared_ptr<BlockPool> BlockPool::Make(size_t limit) { return Make(limit, {}); }

std::function<void()> Spool::Unmapping(void* map, size_t size, int64_t counted) const {
  auto unmap = [map, size, counted, in_files = in_files, mappings = mappings] {
    munmap(map, size);
    if (mappings != nullptr) mappings->Release(1);
    if (in_files != nullptr) *in_files -= counted;
  };
  if (files == nullptr) return unmap;
  const auto owner = reinterpret_cast<uintptr_t>(in_files.get());
  return [files = files, owner, unmap = std::move(unmap)] { files->Run(unmap, owner); };
}

std::shared_ptr<BlockPool> BlockPool::Make(size_t limit, Spool spool) {
  return std::shared_ptr<BlockPool>(new BlockPool(limit, std::move(spool)));
}

BlockPool::~BlockPool() {
  for (const Block& block : free_) std::free(block.data);
}

absl::StatusOr<std::shared_ptr<Blob>> BlockPool::TakeFile(size_t size) {
  const auto failed = [&](int error) {
    return Error(absl::StatusCode::kResourceExhausted,
                 "the memory for bytes in transit is full, and a file of {} bytes cannot be made "
                 "in {}: {}",
                 size, spool_.directory, std::strerror(error));
  };
  const int file = open(spool_.directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return failed(errno);
  void* map = MAP_FAILED;
  // Reserves the disk now: if a page finds no room when it is first touched, the process ends.
  int error = posix_fallocate(file, 0, static_cast<off_t>(size));
  if (error == 0 && !spool_.TakeMapping()) error = ENOMEM;
  if (error == 0) {
    map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    error = errno;
    if (map == MAP_FAILED && spool_.mappings != nullptr) spool_.mappings->Release(1);
  }
  close(file);
  if (map == MAP_FAILED) return failed(error);
  return Blob::Adopt(static_cast<char*>(map), size, spool_.Unmapping(map, size, 0));
}

absl::StatusOr<std::shared_ptr<Blob>> BlockPool::Take(size_t size) {
  const auto bytes = static_cast<int64_t>(size);
  const bool counted = spool_.budget != nullptr && size >= kSmallest;
  if (counted && !spool_.budget->Reserve(bytes)) return TakeFile(size);
  if (size < kSmallest || (size > limit_ && !counted)) {
    auto blob = Blob::Make(size);
    if (blob == nullptr) return NoMemory(size);
    return blob;
  }
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
    if (block.data == nullptr && counted) spool_.budget->Release(bytes);
    if (block.data == nullptr) return NoMemory(size);
  }
  return Blob::Adopt(block.data, size,
                     [pool = shared_from_this(), block] { pool->GiveBack(block); });
}

void BlockPool::GiveBack(Block block) {
  if (spool_.budget != nullptr) spool_.budget->Release(static_cast<int64_t>(block.size));
  if (block.size > limit_) return std::free(block.data);
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
