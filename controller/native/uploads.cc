// SPDX-License-Identifier: Apache-2.0
#include "controller/native/uploads.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace fairway {

absl::StatusOr<std::vector<Uploaded>> Uploads::Take(v1::ClientMessage& message) {
  std::vector<Uploaded> done;
  for (v1::Request& request : *message.mutable_requests()) {
    if (request.has_put()) {
      FAIRWAY_RETURN_IF_ERROR(Announce(request.put(), done));
    } else if (request.has_chunk()) {
      FAIRWAY_RETURN_IF_ERROR(Append(*request.mutable_chunk(), done));
    }
  }
  return done;
}

bool Uploads::MayWait(const v1::ClientMessage& message) const {
  constexpr int64_t kGrowth = 4;  // a buffer that grows takes so many times what it needs, at most
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t wanted = 0;  // kMost: more than that; clients announce any number
  const auto want = [&wanted](int64_t bytes) {
    wanted = bytes > kMost - wanted ? kMost : wanted + std::max<int64_t>(bytes, 0);
  };
  bool chunks = false;
  for (const v1::Request& request : message.requests()) {
    for (const v1::HostBytes& bytes : request.put().bytes())
      if (bytes.has_upload()) want(bytes.size());
    if (!request.has_chunk()) continue;
    chunks = true;
    want(kGrowth * static_cast<int64_t>(request.chunk().data().size()));
    const auto it = open_.find(request.chunk().upload());
    if (it != open_.end() && it->second.buffer->GoesToFile(request.chunk().data())) return true;
  }
  return chunks && !spool_.budget->HasRoom(wanted);
}

absl::Status Uploads::Announce(const v1::Put& put, std::vector<Uploaded>& done) {
  for (const v1::HostBytes& bytes : put.bytes()) {
    if (!bytes.has_upload()) continue;
    const uint64_t upload = bytes.upload();
    if (bytes.size() < 0)
      return InvalidArgument("upload {} is announced with {} bytes", upload, bytes.size());
    const auto [it, fresh] = open_.try_emplace(upload);
    if (!fresh) return InvalidArgument("upload {} is announced twice", upload);
    it->second.buffer = std::make_unique<UploadBuffer>(bytes.size(), spool_);
    it->second.missing = bytes.size();
    if (bytes.size() > 0) continue;
    done.push_back({upload, it->second.buffer->Finish()});
    open_.erase(it);
  }
  return absl::OkStatus();
}

absl::Status Uploads::Append(v1::Chunk& chunk, std::vector<Uploaded>& done) {
  const auto it = open_.find(chunk.upload());
  if (it == open_.end())
    return InvalidArgument("a chunk of upload {}, which was not announced or is complete",
                           chunk.upload());
  Upload& upload = it->second;
  const auto size = static_cast<int64_t>(chunk.data().size());
  if (size > upload.missing)
    return InvalidArgument("a chunk of {} bytes for upload {}, of which {} are missing", size,
                           chunk.upload(), upload.missing);
  upload.buffer->Append(chunk.data());
  upload.missing -= size;
  std::string().swap(*chunk.mutable_data());
  if (upload.missing > 0) return absl::OkStatus();
  done.push_back({chunk.upload(), upload.buffer->Finish()});
  open_.erase(it);
  return absl::OkStatus();
}

}  // namespace fairway
