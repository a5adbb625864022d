// SPDX-License-Identifier: Apache-2.0
// The shard buffers of one executor and the bytes that they take on each device.
#ifndef FAIRWAY_WORKER_EXECUTOR_BUFFER_TABLE_H_
#define FAIRWAY_WORKER_EXECUTOR_BUFFER_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "graph/plan.h"
#include "worker/executor/runtime/runtime.h"

namespace fairway {

// Loop-confined. A shard counts from the moment it is expected: its producer holds the memory from
// then on.
class BufferTable {
 public:
  explicit BufferTable(int num_devices) : bytes_(num_devices, 0) {}

  // A producer of this shard has started. A second call for the same shard replaces the first.
  void Expect(ShardRef ref, int device, int64_t bytes);
  // The shard's bytes. False: it was dropped meanwhile, and so is the buffer.
  bool Put(ShardRef ref, std::shared_ptr<DeviceBuffer> buffer);
  // `to` becomes the same buffer as `from`; its bytes are counted once, until both are dropped.
  void Share(ShardRef from, ShardRef to);
  // Whether it is several shards: whoever is done with one of them must not take it over.
  bool IsShared(const DeviceBuffer& buffer) const { return shared_.contains(&buffer); }
  // nullptr: unknown, or not here yet.
  std::shared_ptr<DeviceBuffer> Find(ShardRef ref) const;
  // Its buffer and bytes; nothing for unknown shards. Destroying a large buffer takes long: not for
  // the loop.
  struct Dropped {
    std::shared_ptr<DeviceBuffer> buffer;
    int64_t bytes = 0;
  };
  Dropped Drop(ShardRef ref);

  size_t size() const { return entries_.size(); }
  // Per device.
  const std::vector<int64_t>& bytes() const { return bytes_; }

 private:
  struct Entry {
    int device = 0;
    int64_t bytes = 0;
    std::shared_ptr<DeviceBuffer> buffer;
  };
  std::map<ShardRef, Entry> entries_;
  std::map<const DeviceBuffer*, std::set<ShardRef>> shared_;  // buffers that are several shards
  std::vector<int64_t> bytes_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_BUFFER_TABLE_H_
