// SPDX-License-Identifier: Apache-2.0
// The open streams of one front door, and their end.
#ifndef FAIRWAY_CONTROLLER_SESSIONS_OPEN_STREAMS_H_
#define FAIRWAY_CONTROLLER_SESSIONS_OPEN_STREAMS_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/block_pool.h"

namespace fairway {

// The memory for the messages of all open streams.
inline constexpr int64_t kMessageBytes = int64_t{192} << 20;

// Thread-safe.
class OpenStream {
 public:
  virtual ~OpenStream() = default;
  // Answers every request that waits or still comes with `status`.
  virtual void Fail(absl::Status status) = 0;
  // Ends the stream with `status`, once no write is under way. Later calls do nothing.
  virtual void End(absl::Status status) = 0;
};

// Thread-safe.
class OpenStreams {
 public:
  // `owner` is whoever else may come back to the stream: the client's tenant and host. `spool` is
  // the stream's share, for bytes that come beside the stream. False after EndAll: the caller must
  // refuse the stream.
  bool Add(uint64_t id, std::string owner, std::weak_ptr<OpenStream> stream, Spool spool = {});
  void Remove(uint64_t id);
  // Whether stream `id` is open and is of `owner`.
  bool Owns(uint64_t id, const std::string& owner) const;
  // The spool that it was added with; nullopt unless `owner` owns the stream.
  std::optional<Spool> SpoolOf(uint64_t id, const std::string& owner) const;
  // Fails all streams with `status`, and ends those that are left after `grace`. Blocks.
  void EndAll(const absl::Status& status, std::chrono::milliseconds grace);
  size_t size() const;

 private:
  // With mu_ held.
  std::vector<std::shared_ptr<OpenStream>> Open() const;

  struct Entry {
    std::string owner;
    std::weak_ptr<OpenStream> stream;
    Spool spool;
  };
  mutable std::mutex mu_;
  std::condition_variable empty_;
  std::map<uint64_t, Entry> streams_;  // guarded by mu_
  bool ended_ = false;                 // guarded by mu_
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_SESSIONS_OPEN_STREAMS_H_
