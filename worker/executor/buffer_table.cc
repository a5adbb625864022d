// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/buffer_table.h"

#include <utility>

namespace fairway {

void BufferTable::Expect(ShardRef ref, int device, int64_t bytes, LaunchJob::Input coming) {
  if (!entries_.Insert(ref).second) {
    Drop(ref);
    entries_.Insert(ref);
  }
  entries_.find(ref)->second = {device, bytes, std::move(coming)};
  if (static_cast<size_t>(device) < bytes_.size()) bytes_[device] += bytes;
}

bool BufferTable::Put(ShardRef ref, std::shared_ptr<DeviceBuffer> buffer) {
  const auto it = entries_.find(ref);
  if (it == entries_.end()) return false;
  it->second.input = {std::move(buffer), nullptr, 0, 0};
  return true;
}

void BufferTable::Share(ShardRef from, ShardRef to) {
  const auto it = entries_.find(from);
  if (it == entries_.end() || it->second.input.buffer == nullptr) return;
  const Entry& shared = it->second;
  Expect(to, shared.device, 0);
  entries_.find(to)->second.input = shared.input;
  std::set<ShardRef>& same = shared_[shared.input.buffer.get()];
  same.insert(from);
  same.insert(to);
}

std::shared_ptr<DeviceBuffer> BufferTable::Find(ShardRef ref) const {
  const auto it = entries_.find(ref);
  return it == entries_.end() ? nullptr : it->second.input.buffer;
}

LaunchJob::Input BufferTable::FindInput(ShardRef ref) const {
  const auto it = entries_.find(ref);
  return it == entries_.end() ? LaunchJob::Input() : it->second.input;
}

BufferTable::Dropped BufferTable::Drop(ShardRef ref) {
  const auto it = entries_.find(ref);
  if (it == entries_.end()) return {};
  Entry entry = std::move(it->second);
  entries_.erase(it);
  if (const auto same = shared_.find(entry.input.buffer.get()); same != shared_.end()) {
    same->second.erase(ref);
    entries_.find(*same->second.begin())->second.bytes += entry.bytes;
    if (same->second.size() == 1) shared_.erase(same);
    return {};
  }
  if (static_cast<size_t>(entry.device) < bytes_.size()) bytes_[entry.device] -= entry.bytes;
  return {std::move(entry.input.buffer), entry.bytes};
}

}  // namespace fairway
