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

// Loop-confined. Handles are the client's. Callbacks run in the call that brings the bytes, or at
// once.
class HostBufferStore {
 public:
  using Bytes = absl::StatusOr<std::shared_ptr<const Blob>>;
  using Ready = std::function<void(Bytes)>;

  // As End.
  ~HostBufferStore();
  // Readers that still wait are answered with UNAVAILABLE. Returns what it held, for any thread to
  // destroy: that may be gigabytes. It is empty then.
  std::shared_ptr<void> End();

  // Bytes came, or an error in their place. A second store of a handle that nobody took replaces
  // the first.
  void Store(uint64_t handle, Bytes bytes);
  // For the one who consumes the buffer: now, or when it is stored.
  void Take(uint64_t handle, Ready ready);
  // Announces a buffer that will be stored by us, so that Lookup waits for it. `charge` goes when
  // nobody has its bytes any more.
  void Expect(uint64_t handle, std::shared_ptr<void> charge = nullptr);
  // Keeps the bytes only if they are still expected, that is, not deleted meanwhile.
  void StoreIfExpected(uint64_t handle, Bytes bytes);
  // For a reader: now, or when it is stored; NOT_FOUND for a handle that is neither stored nor
  // expected.
  void Lookup(uint64_t handle, Ready ready);
  // NOT_FOUND. Whoever waits, the taker too, gets CANCELLED. Bytes that come later are kept for the
  // next one (Store), or dropped (StoreIfExpected).
  absl::Status Delete(uint64_t handle);

  size_t size() const { return slots_.size(); }

 private:
  struct Slot {
    std::optional<Bytes> bytes;
    Ready taker;
    std::vector<Ready> readers;
    std::shared_ptr<void> charge;  // of what is expected
  };
  using Slots = std::map<uint64_t, Slot>;
  Slots slots_;
  std::set<uint64_t> read_;  // those with readers
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_SESSIONS_HOST_BUFFER_STORE_H_
