// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/buffer_table.h"

#include <utility>

namespace fairway {

void BufferTable::Expect(ShardRef ref, int device, int64_t bytes) {
  Drop(ref);
  entries_[ref] = {device, bytes, nullptr};
  if (static_cast<size_t>(device) < bytes_.size()) bytes_[device] += bytes;
}

bool BufferTable::Put(ShardRef ref, std::shared_ptr<DeviceBuffer> buffer) {
  const auto it = entries_.find(ref);
  if (it == entries_.end()) return false;
  it->second.buffer = std::move(buffer);
  return true;
}

void BufferTable::Share(ShardRef from, ShardRef to) {
  const auto it = entries_.find(from);
  if (it == entries_.end()) return;
  Expect(to, it->second.device, it->second.bytes);
  entries_[to].buffer = it->second.buffer;
  if (static_cast<size_t>(it->second.device) < bytes_.size())
    bytes_[it->second.device] -= it->second.bytes;
  it->second.bytes = 0;
}

std::shared_ptr<DeviceBuffer> BufferTable::Find(ShardRef ref) const {
  const auto it = entries_.find(ref);
  return it == entries_.end() ? nullptr : it->second.buffer;
}

BufferTable::Dropped BufferTable::Drop(ShardRef ref) {
  const auto it = entries_.find(ref);
  if (it == entries_.end()) return {};
  Entry entry = std::move(it->second);
  entries_.erase(it);
  if (static_cast<size_t>(entry.device) < bytes_.size()) bytes_[entry.device] -= entry.bytes;
  return {std::move(entry.buffer), entry.bytes};
}

}  // namespace fairway
