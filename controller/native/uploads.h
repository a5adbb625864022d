// SPDX-License-Identifier: Apache-2.0
// Gathers the bytes of arrays that come in chunks, as messages arrive, before the loop sees them.
#ifndef FAIRWAY_CONTROLLER_NATIVE_UPLOADS_H_
#define FAIRWAY_CONTROLLER_NATIVE_UPLOADS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/blob.h"
#include "base/status.h"
#include "controller/sessions/upload_buffer.h"
#include "fairway/v1/client.pb.h"
#include "transport/block_pool.h"

namespace fairway {

// A complete upload, or the error that its array is to hold.
struct Uploaded {
  uint64_t upload = 0;
  absl::StatusOr<std::shared_ptr<const Blob>> bytes;
};

// The uploads of one session. Used by one thread at a time.
class Uploads {
 public:
  explicit Uploads(Spool spool) : spool_(std::move(spool)) {}

  // Announces the uploads of the message's puts, and takes the bytes out of its chunks. Returns the
  // uploads that are now complete. INVALID_ARGUMENT: the message breaks the order of uploads.
  absl::StatusOr<std::vector<Uploaded>> Take(v1::ClientMessage& message);

  // Whether Take may write to a file, and so wait for a slow disk. Sometimes true without need.
  bool MayWait(const v1::ClientMessage& message) const;

  size_t open() const { return open_.size(); }

 private:
  struct Upload {
    std::unique_ptr<UploadBuffer> buffer;
    int64_t missing = 0;
  };
  absl::Status Announce(const v1::Put& put, std::vector<Uploaded>& done);
  absl::Status Append(v1::Chunk& chunk, std::vector<Uploaded>& done);

  const Spool spool_;
  std::map<uint64_t, Upload> open_;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_NATIVE_UPLOADS_H_
