// SPDX-License-Identifier: Apache-2.0
// The host buffers of one session: uploads on their way to an array, results on their way to the
// client.
#ifndef FAIRWAY_CONTROLLER_SESSIONS_HOST_BUFFER_STORE_H_
#define FAIRWAY_CONTROLLER_SESSIONS_HOST_BUFFER_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/blob.h"
#include "base/status.h"

namespace fairway {

// Loop-confined. The client chooses the handles. Callbacks run within the call that brings the
// bytes, or at once.
class HostBufferStore {
 public:
  using Bytes = absl::StatusOr<std::shared_ptr<const Blob>>;
  using Ready = std::function<void(Bytes)>;

  // As End, but destroys the contents here.
  ~HostBufferStore();
  // Answers readers that still wait with UNAVAILABLE. Returns the contents, for any thread to
  // destroy: they may be gigabytes. The store is empty afterwards.
  std::shared_ptr<void> End();

  // Stores the bytes of a buffer, or an error in their place. A second store of a handle that
  // nobody took replaces the first.
  void Store(uint64_t handle, Bytes bytes);
  // Takes the buffer out of the store: now, or when it is stored.
  void Take(uint64_t handle, Ready ready);
  // Announces a buffer that the door itself will store, so that Lookup waits for it. `charge` is
  // released when nobody has its bytes any more.
  void Expect(uint64_t handle, std::shared_ptr<void> charge = nullptr);
  // Stores the bytes only if they are still expected, that is, not deleted meanwhile.
  void StoreIfExpected(uint64_t handle, Bytes bytes);
  // Reads the buffer: now, or when it is stored. NOT_FOUND: the handle is neither stored nor
  // expected.
  void Lookup(uint64_t handle, Ready ready);
  // The same, but waits for a buffer that is not expected yet, since its request is still on its
  // way. Of more than kMostEarly that wait so, those with the smallest handles are answered with
  // NOT_FOUND.
  void LookupEarly(uint64_t handle, Ready ready);
  // NOT_FOUND: there is no such buffer. All who wait for it, the taker too, get CANCELLED. Bytes
  // that come later are kept for the next one (Store), or dropped (StoreIfExpected).
  absl::Status Delete(uint64_t handle);

  size_t size() const { return slots_.size(); }

  static constexpr size_t kMostEarly = 64;

 private:
  struct Slot {
    std::optional<Bytes> bytes;
    Ready taker;
    std::vector<Ready> readers;
    std::shared_ptr<void> charge;  // of an expected buffer
  };
  using Slots = std::map<uint64_t, Slot>;
  Slots slots_;
  std::set<uint64_t> read_;          // buffers that have readers
  std::map<uint64_t, Ready> early_;  // readers of buffers that are not expected yet
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_SESSIONS_HOST_BUFFER_STORE_H_
