// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_BUFFER_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_BUFFER_H_

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "worker/executor/runtime/launch_checks.h"
#include "worker/executor/runtime/outcome.h"
#include "worker/executor/runtime/pjrt/client.h"
#include "worker/executor/runtime/runtime.h"

struct PJRT_Buffer;

namespace fairway::pjrt {

// Owns a PJRT_Buffer. Every shared_ptr to it is a reader that keeps the bytes in place: a program
// may write into them only if its launch holds the last shared_ptr. It may be destroyed while work
// is in flight.
class RawBuffer {
 public:
  RawBuffer(std::shared_ptr<const Client> client, PJRT_Buffer* raw)
      : client_(std::move(client)), raw_(raw) {}
  ~RawBuffer();
  RawBuffer(const RawBuffer&) = delete;
  RawBuffer& operator=(const RawBuffer&) = delete;

  PJRT_Buffer* raw() const { return raw_; }
  const Client& client() const { return *client_; }
  const std::shared_ptr<const Client>& shared_client() const { return client_; }
  // Returns whether a program has taken the bytes over.
  bool IsDeleted() const;
  // Returns the address of the bytes. CPU only, once they are computed.
  absl::StatusOr<char*> Address() const;

 private:
  const std::shared_ptr<const Client> client_;
  PJRT_Buffer* const raw_;
};

// The order of dimensions in memory, from the fastest to the slowest. Empty: major to minor, the
// order of hosts and of all transfers.
using DimensionOrder = std::vector<int64_t>;

// The pjrt runtime's buffer: the plugin's bytes, and the outcome of the work that makes them.
// Thread-safe.
class Buffer final : public DeviceBuffer {
 public:
  struct Spec : BufferSpec {
    std::string memory_kind;  // empty: default
    DimensionOrder order;
    // Returns whether host bytes can be read in place.
    bool dense() const { return order.empty() && PackedBits(dtype) == 0; }
  };

  // `raw` is nullptr if the bytes were never made; `outcome` has the reason.
  Buffer(Spec spec, std::shared_ptr<RawBuffer> raw, std::shared_ptr<Outcome> outcome)
      : spec_(std::move(spec)), outcome_(std::move(outcome)), raw_(std::move(raw)) {}

  void OnReady(absl::AnyInvocable<void(absl::Status)> done) override {
    outcome_->OnDone(std::move(done));
  }

  const Spec& spec() const { return spec_; }
  const std::shared_ptr<Outcome>& outcome() const { return outcome_; }

  // Keeps the bytes in place while the result lives; nullptr if they were never made.
  // FAILED_PRECONDITION: donated.
  absl::StatusOr<std::shared_ptr<RawBuffer>> Pin() const;
  // Marks the buffer as donated and gives up its own hold on the bytes.
  void Consume();
  // Undoes Consume: the launch that consumed the buffer did not run.
  void Restore(std::shared_ptr<RawBuffer> raw);

 private:
  const Spec spec_;
  const std::shared_ptr<Outcome> outcome_;
  mutable std::mutex mutex_;
  std::shared_ptr<RawBuffer> raw_;
  bool consumed_ = false;
};

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_BUFFER_H_
