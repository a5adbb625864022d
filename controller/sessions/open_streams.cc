// SPDX-License-Identifier: Apache-2.0
#include "controller/sessions/open_streams.h"

#include <utility>

namespace fairway {

bool OpenStreams::Add(uint64_t id, std::string owner, std::weak_ptr<OpenStream> stream,
                      Spool spool) {
  const std::lock_guard lock(mu_);
  streams_[id] = {std::move(owner), std::move(stream), std::move(spool)};
  return !ended_;
}

void OpenStreams::Remove(uint64_t id) {
  const std::lock_guard lock(mu_);
  streams_.erase(id);
  if (streams_.empty()) empty_.notify_all();
}

bool OpenStreams::Owns(uint64_t id, const std::string& owner) const {
  return SpoolOf(id, owner).has_value();
}

std::optional<Spool> OpenStreams::SpoolOf(uint64_t id, const std::string& owner) const {
  const std::lock_guard lock(mu_);
  const auto it = streams_.find(id);
  if (it == streams_.end() || it->second.owner != owner) return std::nullopt;
  return it->second.spool;
}

void OpenStreams::EndAll(const absl::Status& status, std::chrono::milliseconds grace) {
  std::unique_lock lock(mu_);
  ended_ = true;
  auto open = Open();
  lock.unlock();
  for (const auto& stream : open) stream->Fail(status);
  open.clear();
  lock.lock();
  empty_.wait_for(lock, grace, [this] { return streams_.empty(); });
  open = Open();
  lock.unlock();
  for (const auto& stream : open) stream->End(status);
}

size_t OpenStreams::size() const {
  const std::lock_guard lock(mu_);
  return streams_.size();
}

std::vector<std::shared_ptr<OpenStream>> OpenStreams::Open() const {
  std::vector<std::shared_ptr<OpenStream>> open;
  for (const auto& [id, entry] : streams_) {
    if (auto stream = entry.stream.lock()) open.push_back(std::move(stream));
  }
  return open;
}

}  // namespace fairway
