// SPDX-License-Identifier: Apache-2.0
// The shard buffers of one executor, and the bytes that they take on each device.
#ifndef FAIRWAY_WORKER_EXECUTOR_BUFFER_TABLE_H_
#define FAIRWAY_WORKER_EXECUTOR_BUFFER_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "graph/plan.h"
#include "worker/executor/launch_queues.h"
#include "worker/executor/runtime/runtime.h"
#include "worker/executor/shard_map.h"

namespace fairway {

// Owned by ExecutorSession. Loop-confined. A shard counts from Expect on, because its producer
// holds the memory from then on.
class BufferTable {
 public:
  explicit BufferTable(int num_devices) : bytes_(num_devices, 0) {}

  // A producer of this shard has started. A second call for the same shard replaces the first.
  // `coming`: what a launch takes for the shard until its buffer is here; empty: none may.
  void Expect(ShardRef ref, int device, int64_t bytes, LaunchJob::Input coming = {});
  // Stores the shard's buffer. False: the shard was dropped in the meantime, and so is the buffer.
  bool Put(ShardRef ref, std::shared_ptr<DeviceBuffer> buffer);
  // Makes `to` the same buffer as `from`. Its bytes count once, until both are dropped.
  void Share(ShardRef from, ShardRef to);
  // Returns whether the buffer is several shards. A launch must not take over such an input.
  bool IsShared(const DeviceBuffer& buffer) const { return shared_.contains(&buffer); }
  // nullptr: the shard is unknown, or has no buffer yet.
  std::shared_ptr<DeviceBuffer> Find(ShardRef ref) const;
  // Returns the shard as the input of a launch: its buffer, or the output of the launch that
  // computes it. Empty: there is neither.
  LaunchJob::Input FindInput(ShardRef ref) const;
  // Removes the shard and returns its buffer and bytes; nothing for an unknown shard. Destroying a
  // large buffer takes long: do not do it in the loop.
  struct Dropped {
    std::shared_ptr<DeviceBuffer> buffer;
    int64_t bytes = 0;
  };
  Dropped Drop(ShardRef ref);

  size_t size() const { return entries_.size(); }
  // The bytes of each device.
  const std::vector<int64_t>& bytes() const { return bytes_; }

 private:
  struct Entry {
    int device = 0;
    int64_t bytes = 0;
    LaunchJob::Input input;  // its `buffer` is that of the shard, once it is here
  };
  ShardMap<Entry> entries_;
  std::map<const DeviceBuffer*, std::set<ShardRef>> shared_;  // buffers that are several shards
  std::vector<int64_t> bytes_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_BUFFER_TABLE_H_
