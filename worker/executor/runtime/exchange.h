// SPDX-License-Identifier: Apache-2.0
// Passes bytes between executors that run one computation together, while it runs
// (docs/design/0042-islands-of-several-executors.md). Large blocks are pulled: the taker asks the
// member that offers them. Small ones are pushed (docs/design/0063-push-exchange.md).
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_EXCHANGE_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <absl/functional/function_ref.h>

#include "base/blob.h"
#include "base/status.h"

namespace fairway {

// Host bytes of a buffer, dense and major to minor. They live as long as `owner`.
struct HostView {
  std::string_view bytes;
  std::shared_ptr<void> owner;
};

// The exchange of one loaded executable with its other members. The name of a block of bytes is the
// launch, the round within it (1, 2, ...) and a part. All members run the same launches in the same
// order, and each launch ends before the next one begins. Thread-safe, but one thread at a time
// pushes and receives: the one that runs gangs.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual size_t members() const = 0;
  virtual size_t self() const = 0;

  // The members by host, ordered by their first members; each host's in order. The same for all
  // members of the exchange.
  virtual const std::vector<std::vector<size_t>>& hosts() const = 0;

  static constexpr size_t kMaxPushBytes = 64 << 10;
  // Copies `bytes`, at most kMaxPushBytes, and sends them to a member, which receives them under
  // the same name. All pushes to one member must come in the order in which it receives them. Waits
  // while earlier ones are too far behind. Errors: those of Take.
  virtual absl::Status Push(uint64_t launch, uint32_t round, int32_t part, size_t to,
                            std::string_view bytes) = 0;
  using Use = absl::FunctionRef<void(size_t member, std::string_view bytes)>;
  // Waits until each of `from` has pushed `bytes` bytes of this name here, then passes them to
  // `use` in the order of `from`. The views are aligned for every DType and end with the call.
  // Errors: those of Take. DATA_LOSS: they have another size.
  virtual absl::Status Receive(uint64_t launch, uint32_t round, int32_t part,
                               const std::vector<size_t>& from, size_t bytes, Use use) = 0;

  // Pushes `bytes` to each other member of this host, which do the same, and receives theirs: the
  // fastest way if all of them need all bytes.
  virtual absl::Status Swap(uint64_t launch, uint32_t round, int32_t part, std::string_view bytes,
                            Use use) = 0;

  // Offers these bytes: each of `readers` may take them once.
  virtual void Offer(uint64_t launch, uint32_t round, int32_t part, HostView bytes,
                     const std::vector<size_t>& readers) = 0;

  struct Wanted {
    size_t member = 0;
    int32_t part = 0;
    int64_t bytes = 0;
  };
  // Waits until all wanted bytes have come. Errors: that of the first member that failed or was
  // lost (UNAVAILABLE), or the reason why the launch was abandoned.
  virtual absl::StatusOr<std::vector<std::shared_ptr<Blob>>> Take(
      uint64_t launch, uint32_t round, const std::vector<Wanted>& wanted) = 0;

  // Ends the launch here. With an error, members that still want bytes of it get that error.
  virtual void End(uint64_t launch, const absl::Status& status) = 0;
};

// Returns all members but this one, in order.
inline std::vector<size_t> OtherMembers(const Exchange& exchange) {
  std::vector<size_t> others;
  for (size_t m = 0; m < exchange.members(); ++m) {
    if (m != exchange.self()) others.push_back(m);
  }
  return others;
}

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_EXCHANGE_H_
