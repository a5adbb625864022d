// SPDX-License-Identifier: Apache-2.0
#include "controller/sessions/upload_buffer.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace fairway {
namespace {

constexpr int64_t kFirstCapacity = int64_t{1} << 20;

int64_t RoundedToAlignment(int64_t bytes) {
  constexpr auto kAlignment = static_cast<int64_t>(Blob::kAlignment);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

UploadBuffer::UploadBuffer(int64_t declared, std::shared_ptr<MemoryBudget> budget,
                           std::string spool_directory)
    : declared_(declared),
      budget_(std::move(budget)),
      spool_directory_(std::move(spool_directory)) {}

UploadBuffer::~UploadBuffer() {
  DropMemory();
  if (file_ >= 0) close(file_);
}

void UploadBuffer::DropMemory() {
  std::free(data_);
  budget_->Release(capacity_);
  data_ = nullptr;
  capacity_ = 0;
}

// Twice what is needed, but never beyond the announced size while that holds.
bool UploadBuffer::Grow(int64_t needed) {
  int64_t capacity = std::max(2 * needed, kFirstCapacity);
  if (needed <= declared_) capacity = std::min(capacity, declared_);
  capacity = RoundedToAlignment(capacity);
  if (!budget_->Reserve(capacity)) return false;
  char* data = static_cast<char*>(std::aligned_alloc(Blob::kAlignment, capacity));
  if (data == nullptr) {
    budget_->Release(capacity);
    return false;
  }
  if (size_ > 0) std::memcpy(data, data_, size_);
  DropMemory();
  data_ = data;
  capacity_ = capacity;
  return true;
}

void UploadBuffer::Spool() {
  file_ = open(spool_directory_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file_ < 0) {
    failure_ =
        Error(absl::StatusCode::kResourceExhausted,
              "host buffer: the memory for uploads is full, and no file can be made in {}: {}",
              spool_directory_, std::strerror(errno));
  } else {
    WriteFile({data_, static_cast<size_t>(size_)});
  }
  DropMemory();
}

void UploadBuffer::WriteFile(std::string_view bytes) {
  while (!bytes.empty() && failure_.ok()) {
    const ssize_t written = write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      failure_ =
          Error(absl::StatusCode::kResourceExhausted, "host buffer: writing to a file in {}: {}",
                spool_directory_, std::strerror(errno));
      return;
    }
    bytes.remove_prefix(written);
  }
}

void UploadBuffer::Append(std::string_view bytes) {
  const auto needed = size_ + static_cast<int64_t>(bytes.size());
  if (failure_.ok() && file_ < 0 && needed > capacity_ && !Grow(needed)) Spool();
  if (failure_.ok()) {
    if (file_ >= 0) {
      WriteFile(bytes);
    } else if (!bytes.empty()) {
      std::memcpy(data_ + size_, bytes.data(), bytes.size());
    }
  }
  size_ = needed;
}

absl::StatusOr<std::shared_ptr<const Blob>> UploadBuffer::Finish() {
  if (failure_.ok() && size_ != declared_)
    failure_ = Error(absl::StatusCode::kDataLoss, "host buffer: {} bytes were announced, {} came",
                     declared_, size_);
  if (!failure_.ok()) return failure_;
  if (size_ == 0) return std::shared_ptr<const Blob>(Blob::Make(0));
  if (file_ >= 0) {
    // Pages come from the file when they are read, and may be dropped again: no memory is needed to
    // hold them.
    const auto length = static_cast<size_t>(size_);
    void* map = mmap(nullptr, length, PROT_READ, MAP_SHARED, file_, 0);
    if (map == MAP_FAILED)
      return Error(absl::StatusCode::kResourceExhausted, "host buffer: mapping {} bytes: {}", size_,
                   std::strerror(errno));
    return std::shared_ptr<const Blob>(
        Blob::Adopt(static_cast<char*>(map), length, [map, length] { munmap(map, length); }));
  }
  auto release = [data = data_, capacity = capacity_, budget = budget_] {
    std::free(data);
    budget->Release(capacity);
  };
  char* data = std::exchange(data_, nullptr);
  capacity_ = 0;
  return std::shared_ptr<const Blob>(Blob::Adopt(data, size_, std::move(release)));
}

}  // namespace fairway
