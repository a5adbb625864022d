// SPDX-License-Identifier: Apache-2.0
// Memory of one executor into which others on its host write what they push
// (docs/design/0063-push-exchange.md).
#ifndef FAIRWAY_WORKER_EXECUTOR_SHARED_LANES_H_
#define FAIRWAY_WORKER_EXECUTOR_SHARED_LANES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "transport/data_plane.h"
#include "worker/executor/bell.h"

namespace fairway {

inline constexpr uint64_t kLaneSlots = 4;  // pushes of one sender that were not read yet

// The layout of the file: a page with `Head`, then the lanes. A lane is a page with `Lane`, then
// the bytes of its slots. Fresh memory, all zeros, is an empty lane.
namespace lanes {

struct Head {
  uint64_t secret[2];  // tells that it is the file that its owner means
  Bell bell;           // of the owner
};
struct Slot {
  uint64_t launch;
  uint32_t round;
  int32_t part;
  uint32_t bytes;
};
struct Lane {
  alignas(64) std::atomic<uint64_t> written;  // pushes so far; only the sender writes it
  alignas(64) std::atomic<uint64_t> read;     // of these; only the owner writes it
  alignas(64) Slot slots[kLaneSlots];         // push n is in slot n modulo kLaneSlots
};
inline constexpr size_t kPage = 4096;
inline constexpr size_t kLaneBytes = kPage + kLaneSlots * kMaxPushBytes;
inline constexpr size_t kMaxLanes = 64;
inline constexpr size_t kFileBytes = kPage + kMaxLanes * kLaneBytes;

}  // namespace lanes

// The owner's side of one lane. It trusts nothing that the sender wrote.
class LaneReader {
 public:
  struct Front {
    PushName name;  // without the sender
    std::string_view bytes;
  };
  // Returns the oldest push; nullopt: there is none. DATA_LOSS, from then on: the sender has broken
  // the rules of the lane. The bytes may be read until Pop; the sender could still change them.
  absl::StatusOr<std::optional<Front>> Peek();
  void Pop();

 private:
  friend class SharedLanes;
  LaneReader(std::shared_ptr<void> file, char* lane);

  const std::shared_ptr<void> file_;  // keeps it mapped
  lanes::Lane* const lane_;
  const char* const bytes_;  // of the slots
  uint64_t read_ = 0;
  bool broken_ = false;
};

// A memfd, sealed against resizing, that this process has mapped. Senders open it by its number in
// this process, so it is gone with the processes that have mapped it. Not thread-safe.
class SharedLanes {
 public:
  // nullptr: the system gives no such memory.
  static std::unique_ptr<SharedLanes> Make();
  ~SharedLanes();
  SharedLanes(const SharedLanes&) = delete;
  SharedLanes& operator=(const SharedLanes&) = delete;

  // The bell that senders ring. It lives as long as somebody holds it.
  std::shared_ptr<Bell> bell() const;

  static constexpr size_t kAddressBytes = 32;
  // Returns what `sender` needs to find its lane. Reserves the memory of the lane with the first
  // call. RESOURCE_EXHAUSTED: kMaxLanes are given, or there is no memory.
  absl::StatusOr<std::string> AddressFor(Incarnation sender);
  // The lane of a sender; nullptr: it has none.
  LaneReader* LaneOf(Incarnation sender);

 private:
  SharedLanes(int fd, std::shared_ptr<char> file);

  const int fd_;
  const std::shared_ptr<char> file_;
  std::map<Incarnation, std::pair<int32_t, std::unique_ptr<LaneReader>>> lanes_;
};

// The sender's side of its lane at another executor. One thread uses it.
class LaneWriter {
 public:
  // Maps the lane that AddressFor has described. FAILED_PRECONDITION: there is no such file that
  // this process may open, or it is not what it should be. Opens nothing but a memfd of its name.
  static absl::StatusOr<std::unique_ptr<LaneWriter>> Open(std::string_view address);
  ~LaneWriter();
  LaneWriter(const LaneWriter&) = delete;
  LaneWriter& operator=(const LaneWriter&) = delete;

  bool HasRoom() const;
  // Writes at most kMaxPushBytes into the next slot, and rings. Needs room.
  void Write(const PushName& name, std::string_view bytes);

 private:
  LaneWriter(lanes::Head* head, char* lane);

  lanes::Head* const head_;
  char* const lane_;
  uint64_t written_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_SHARED_LANES_H_
