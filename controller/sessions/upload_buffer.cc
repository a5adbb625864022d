// SPDX-License-Identifier: Apache-2.0
#include "controller/sessions/upload_buffer.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace fairway {
namespace {

constexpr int64_t kFirstCapacity = int64_t{1} << 20;

int64_t RoundedToAlignment(int64_t bytes) {
  constexpr auto kAlignment = static_cast<int64_t>(Blob::kAlignment);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Pages of 2 MiB where whole ones fit: handing out those of 4 KiB takes a quarter of the
// controller's processor time for an upload of 64 MiB. Where the kernel has none, all stays as it
// is.
void AskForHugePages(char* data, int64_t bytes) {
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + kHuge - 1) / kHuge * kHuge;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / kHuge * kHuge;
  if (begin < end)
    (void)madvise(data + (begin - reinterpret_cast<uintptr_t>(data)), end - begin, MADV_HUGEPAGE);
}

}  // namespace

UploadBuffer::UploadBuffer(int64_t declared, Spool spool)
    : declared_(declared), spool_(std::move(spool)) {}

UploadBuffer::~UploadBuffer() {
  DropMemory();
  DropFile();
}

void UploadBuffer::DropMemory() {
  std::free(data_);
  spool_.budget->Release(capacity_);
  data_ = nullptr;
  capacity_ = 0;
}

void UploadBuffer::DropFile() {
  if (file_ >= 0) close(file_);
  file_ = -1;
  if (spool_.in_files != nullptr) *spool_.in_files -= std::exchange(in_file_, 0);
}

// Grows to four times the needed size, but not beyond the announced size while that holds. While
// the bytes move, both blocks count, so the block of the final size comes early. An upload that the
// budget has no room for as a whole gets no memory, since all of it would move in the end.
bool UploadBuffer::Grow(int64_t needed) {
  if (data_ == nullptr && !spool_.budget->HasRoom(declared_)) return false;
  int64_t capacity = std::max(4 * needed, kFirstCapacity);
  if (needed <= declared_) capacity = std::min(capacity, declared_);
  capacity = RoundedToAlignment(capacity);
  if (!spool_.budget->Reserve(capacity)) return false;
  char* data = static_cast<char*>(std::aligned_alloc(Blob::kAlignment, capacity));
  if (data == nullptr) {
    spool_.budget->Release(capacity);
    return false;
  }
  AskForHugePages(data, capacity);
  if (size_ > 0) std::memcpy(data, data_, size_);
  DropMemory();
  data_ = data;
  capacity_ = capacity;
  return true;
}

void UploadBuffer::MoveToFile() {
  file_ = open(spool_.directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file_ < 0) {
    failure_ =
        Error(absl::StatusCode::kResourceExhausted,
              "host buffer: the memory for uploads is full, and no file can be made in {}: {}",
              spool_.directory, std::strerror(errno));
  } else {
    WriteFile({data_, static_cast<size_t>(size_)});
  }
  DropMemory();
}

void UploadBuffer::WriteFile(std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  struct statvfs disk {};
  if (spool_.in_files != nullptr && fstatvfs(file_, &disk) == 0) {
    const int64_t left = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
    if (*spool_.in_files + size > left) {
      failure_ =
          Error(absl::StatusCode::kResourceExhausted,
                "host buffer: {} MiB of this session lie in files in {} (--spool-directory), "
                "where {} MiB are left; one session may have as much there as it leaves to "
                "others: make arrays of what was uploaded, or upload less at once",
                *spool_.in_files >> 20, spool_.directory, left >> 20);
      return;
    }
    *spool_.in_files += size;
    in_file_ += size;
  }
  while (!bytes.empty() && failure_.ok()) {
    const ssize_t written = write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      failure_ =
          Error(absl::StatusCode::kResourceExhausted, "host buffer: writing to a file in {}: {}",
                spool_.directory, std::strerror(errno));
      return;
    }
    bytes.remove_prefix(written);
  }
}

bool UploadBuffer::GoesToFile(std::string_view bytes) {
  const auto needed = size_ + static_cast<int64_t>(bytes.size());
  if (!failure_.ok() || needed > declared_) return false;
  return file_ >= 0 || (needed > capacity_ && !Grow(needed));
}

void UploadBuffer::Append(std::string_view bytes) {
  const bool file = GoesToFile(bytes);
  if (!overrun() && size_ + static_cast<int64_t>(bytes.size()) > declared_) {
    // Nobody will get the bytes.
    DropMemory();
    DropFile();
  } else if (file && failure_.ok() && file_ < 0) {
    MoveToFile();
  }
  const bool kept = failure_.ok() && size_ + static_cast<int64_t>(bytes.size()) <= declared_;
  if (kept && file) {
    WriteFile(bytes);
  } else if (kept && !bytes.empty()) {
    std::memcpy(data_ + size_, bytes.data(), bytes.size());
  }
  size_ += static_cast<int64_t>(bytes.size());
  if (!failure_.ok()) DropFile();
}

absl::StatusOr<std::shared_ptr<const Blob>> UploadBuffer::Finish() {
  if (failure_.ok() && size_ != declared_)
    failure_ = Error(absl::StatusCode::kDataLoss, "host buffer: {} bytes were announced, {} came",
                     declared_, size_);
  if (!failure_.ok()) return failure_;
  if (size_ == 0) return std::shared_ptr<const Blob>(Blob::Make(0));
  if (file_ >= 0) {
    // The kernel reads pages from the file on demand and may drop them again, so they need no
    // memory.
    const auto length = static_cast<size_t>(size_);
    if (!spool_.TakeMapping())
      return Error(absl::StatusCode::kResourceExhausted,
                   "host buffer: {} uploads of this session lie in mapped files; one session may "
                   "have as many as it leaves to others: make arrays of what was uploaded, or "
                   "upload less at once",
                   spool_.mappings->used());
    void* map = mmap(nullptr, length, PROT_READ, MAP_SHARED, file_, 0);
    if (map == MAP_FAILED && spool_.mappings != nullptr) spool_.mappings->Release(1);
    if (map == MAP_FAILED)
      return Error(absl::StatusCode::kResourceExhausted, "host buffer: mapping {} bytes: {}", size_,
                   std::strerror(errno));
    return std::shared_ptr<const Blob>(
        Blob::Adopt(static_cast<char*>(map), length,
                    spool_.Unmapping(map, length, std::exchange(in_file_, 0))));
  }
  auto release = [data = data_, capacity = capacity_, budget = spool_.budget] {
    std::free(data);
    budget->Release(capacity);
  };
  char* data = std::exchange(data_, nullptr);
  capacity_ = 0;
  return std::shared_ptr<const Blob>(Blob::Adopt(data, size_, std::move(release)));
}

}  // namespace fairway
