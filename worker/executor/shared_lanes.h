// SPDX-License-Identifier: Apache-2.0
// Memory of one executor into which others on its host write what they push
// (docs/design/0063-push-exchange.md).
#ifndef FAIRWAY_WORKER_EXECUTOR_SHARED_LANES_H_
#define FAIRWAY_WORKER_EXECUTOR_SHARED_LANES_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <absl/functional/function_ref.h>

#include "base/ids.h"
#include "base/status.h"
#include "transport/data_plane.h"
#include "worker/executor/bell.h"

namespace fairway {

inline constexpr uint64_t kLaneSlots = 4;  // pushes of one sender that were not read yet
inline constexpr size_t kMaxBroadcastBytes = 104;

// The layout of the files. The owner has one with `Head`, and one for each sender: a page with
// `Lane`, then the bytes of its slots. Fresh memory, all zeros, is an empty lane.
namespace lanes {

// What the owner tells several neighbours at once.
struct Broadcast {
  std::atomic<uint64_t> launch;  // 0: the rest is not valid. The owner writes it last
  uint32_t round;
  int32_t part;
  uint32_t bytes;
  uint32_t unused;
  char data[104];
};
inline constexpr size_t kBroadcasts = 4;
struct Head {
  uint64_t secret;  // random: tells that it is the file that its owner means
  Bell bell;        // of the owner
  // Of the neighbours in exchanges whose first member the owner is, all that sleep until everybody
  // has pushed.
  alignas(64) Bell all;
  // The CPU that those share, plus 1; 0: each runs where it likes (OneCpuTrial). The owner writes
  // it; earlier versions leave it 0.
  alignas(64) std::atomic<uint32_t> cpu;
  alignas(64) Broadcast broadcasts[kBroadcasts];
};
struct Slot {
  uint64_t launch;
  uint32_t round;
  int32_t part;
  uint32_t bytes;
  uint32_t rings;  // kRingsForAll, or anything else
};
inline constexpr uint32_t kRingsForAll = 0x52494e47;
struct Lane {
  uint64_t secret;                            // as Head's, another one for each lane
  alignas(64) std::atomic<uint64_t> written;  // pushes so far; the sender counts. Or kTakenBack
  alignas(64) std::atomic<uint64_t> read;     // of these; only the owner writes it
  std::atomic<uint32_t> listens;       // kListens: the sender reads the owner's Head::broadcasts
  alignas(64) Slot slots[kLaneSlots];  // push n is in slot n modulo kLaneSlots
};
inline constexpr uint32_t kListens = 0x48454152;
inline constexpr uint64_t kTakenBack = ~uint64_t{0};
inline constexpr size_t kPage = 4096;
inline constexpr size_t kLaneBytes = kPage + kLaneSlots * kMaxPushBytes;
inline constexpr size_t kMaxLanes = 64;

// A memfd of this process, sealed against resizing, and mapped. It is gone with the processes that
// have mapped it.
class File {
 public:
  // nullptr: the system gives no such memory. All of it is reserved: if a page found no room when
  // it is first touched, a process would end.
  static std::unique_ptr<File> Make(size_t bytes);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  char* data() const { return data_; }
  uint64_t secret() const;

 private:
  File(int fd, char* data, size_t bytes) : fd_(fd), data_(data), bytes_(bytes) {}
  const int fd_;
  char* const data_;
  const size_t bytes_;
};

}  // namespace lanes

// The owner's side of one lane. It trusts nothing that the sender wrote.
class LaneReader {
 public:
  struct Front {
    PushName name;  // without the sender
    std::string_view bytes;
    bool rings_for_all = false;  // its sender rings Head::all if it was the last
  };
  // Returns the oldest push; nullopt: there is none. DATA_LOSS, from then on: the sender has broken
  // the rules of the lane. The bytes may be read until Pop; the sender could still change them.
  absl::StatusOr<std::optional<Front>> Peek();
  void Pop();
  // Whether its sender reads what the owner broadcasts.
  bool SenderListens() const {
    return lane_->listens.load(std::memory_order_relaxed) == lanes::kListens;
  }

 private:
  friend class SharedLanes;
  explicit LaneReader(std::unique_ptr<lanes::File> file);
  // False: something was pushed that was not read. Else the sender cannot push any more.
  bool TakeBack();

  const std::unique_ptr<lanes::File> file_;
  lanes::Lane* const lane_;
  const char* const bytes_;  // of the slots
  uint64_t read_ = 0;
  bool broken_ = false;
};

// The lanes of one executor, and its bell. Senders open the files by their numbers in this process.
// Not thread-safe.
class SharedLanes {
 public:
  // nullptr: the system gives no such memory.
  static std::unique_ptr<SharedLanes> Make();

  // The bell that senders ring. It lives as long as somebody holds it.
  std::shared_ptr<Bell> bell() const;
  // Head::all.
  Bell& all() const;
  // Head::cpu.
  std::atomic<uint32_t>& cpu() const;

  // Replaces what was broadcast in slot `slot`, below kBroadcasts, by at most kMaxBroadcastBytes.
  void Broadcast(size_t slot, const PushName& name, std::string_view bytes) {
    lanes::Broadcast& to = reinterpret_cast<lanes::Head*>(head_->data())->broadcasts[slot];
    to.launch.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    to.round = name.round;
    to.part = name.part;
    to.bytes = static_cast<uint32_t>(bytes.size());
    std::ranges::copy(bytes, to.data);
    // Sequentially consistent: see GangExchanges::Swap.
    to.launch.store(name.launch, std::memory_order_seq_cst);
  }

  static constexpr size_t kAddressBytes = 32;
  // Returns what `sender` needs to find its lane, which is made with the first call.
  // RESOURCE_EXHAUSTED: there are kMaxLanes, or there is no memory.
  absl::StatusOr<std::string> AddressFor(Incarnation sender);
  // The lane of a sender, until it is taken back; nullptr: it has none.
  LaneReader* LaneOf(Incarnation sender);
  // Takes back the lanes for which `unused` returns true and in which nothing is left to read. A
  // sender learns of it with its next push, which is not lost.
  void TakeBack(absl::FunctionRef<bool(Incarnation sender, LaneReader& lane)> unused);

 private:
  explicit SharedLanes(std::unique_ptr<lanes::File> head) : head_(std::move(head)) {}

  const std::shared_ptr<lanes::File> head_;
  std::map<Incarnation, std::unique_ptr<LaneReader>> lanes_;
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
  // Head::all and Head::cpu of the receiver.
  Bell& all() const { return head_->all; }
  const std::atomic<uint32_t>& cpu() const { return head_->cpu; }
  // Returns the bytes that the receiver has broadcast under this name. `slot`: where to look first;
  // set to where they are.
  std::optional<std::string_view> Heard(const PushName& name, uint32_t& slot) const {
    for (size_t i = 0; i < lanes::kBroadcasts; ++i) {
      const uint32_t at = (slot + i) % lanes::kBroadcasts;
      const lanes::Broadcast& from = head_->broadcasts[at];
      if (from.launch.load(std::memory_order_seq_cst) != name.launch || from.round != name.round ||
          from.part != name.part)
        continue;
      // Read once, as its sender could change it.
      const uint32_t bytes = *static_cast<const volatile uint32_t*>(&from.bytes);
      // It may be being replaced by another round of the same launch.
      std::atomic_thread_fence(std::memory_order_acquire);
      if (from.launch.load(std::memory_order_seq_cst) != name.launch) continue;
      slot = at;
      return std::string_view(from.data, std::min<size_t>(bytes, kMaxBroadcastBytes));
    }
    return std::nullopt;
  }

  // Which bells the sender of a push rings: the receiver's; later the one for all, if it was the
  // last; or both.
  enum class Rings : uint8_t { kReceiver, kAll, kBoth };
  // Writes at most kMaxPushBytes into the next slot, and rings the receiver's bell as `rings` says.
  // Needs room. False: the lane was taken back, and nobody will read these bytes.
  [[nodiscard]] bool Write(const PushName& name, std::string_view bytes,
                           Rings rings = Rings::kReceiver);

 private:
  LaneWriter(char* head, char* lane);

  lanes::Head* const head_;
  char* const lane_;
  uint64_t written_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_SHARED_LANES_H_
