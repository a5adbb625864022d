// SPDX-License-Identifier: Apache-2.0
// Gathers the bytes of one host buffer while a client sends them (rule B3): in memory if the
// client's share has room for the announced size, and as long as it has, else in an unlinked file.
// Receiving never fails; errors are reported at the end.
#ifndef FAIRWAY_CONTROLLER_SESSIONS_UPLOAD_BUFFER_H_
#define FAIRWAY_CONTROLLER_SESSIONS_UPLOAD_BUFFER_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/blob.h"
#include "base/status.h"
#include "transport/block_pool.h"

namespace fairway {

// One upload. Used by one thread at a time.
class UploadBuffer {
 public:
  // `declared` is the size that the client announced; memory is allocated only as bytes arrive.
  // `spool` is the client's share; bytes above its budget go to a file.
  UploadBuffer(int64_t declared, Spool spool);
  ~UploadBuffer();
  UploadBuffer(const UploadBuffer&) = delete;
  UploadBuffer& operator=(const UploadBuffer&) = delete;

  // Counts all bytes, but keeps none beyond the announced size.
  void Append(std::string_view bytes);
  // Whether Append(bytes) would write to a file, and so may block.
  bool GoesToFile(std::string_view bytes);
  bool overrun() const { return size_ > declared_; }
  // Called once, at the end. DATA_LOSS: fewer or more bytes came than were announced.
  // RESOURCE_EXHAUSTED: neither memory nor disk had room for them.
  absl::StatusOr<std::shared_ptr<const Blob>> Finish();

  bool spooled() const { return file_ >= 0; }

 private:
  bool Grow(int64_t needed);
  void MoveToFile();
  void WriteFile(std::string_view bytes);
  void DropMemory();
  void DropFile();

  const int64_t declared_;
  const Spool spool_;
  char* data_ = nullptr;
  int64_t capacity_ = 0;  // of data_; all of it is reserved in the budget
  int64_t size_ = 0;
  int file_ = -1;
  int64_t in_file_ = 0;  // bytes written, counted in spool_.in_files
  absl::Status failure_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_SESSIONS_UPLOAD_BUFFER_H_
