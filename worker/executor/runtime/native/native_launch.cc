// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/native/native_launch.h"

#include <sys/mman.h>

#include <atomic>

namespace fairway {
namespace {

// Zeros that take address space but no memory: pages that are only read are all the same page.
absl::StatusOr<HostView> Zeros(size_t size) {
  if (size == 0) return HostView{};
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Error(absl::StatusCode::kResourceExhausted,
                 "no address space to show {} bytes of a simulated buffer", size);
  }
  return HostView{{static_cast<const char*>(data), size},
                  std::shared_ptr<void>(data, [size](void* p) { ::munmap(p, size); })};
}

}  // namespace

void NativeCell::Fill(Bytes bytes) {
  if (bytes != nullptr && bytes->size() > kept_) bytes = nullptr;
  std::lock_guard lock(mutex_);
  bytes_ = std::move(bytes);
}

absl::Status NativeCell::FillFrom(const NativeCell& from) {
  const Bytes theirs = from.bytes();
  if (theirs == nullptr) return kept_ == kKeepAll ? DonatedError(from.spec) : absl::OkStatus();
  Bytes own = Blob::Copy(theirs->view());
  if (own == nullptr) {
    return Error(absl::StatusCode::kResourceExhausted, "no memory for a copy of {}",
                 ToString(spec.dtype, spec.shape));
  }
  Fill(std::move(own));
  return absl::OkStatus();
}

Bytes NativeCell::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

absl::StatusOr<HostView> NativeCell::View() const {
  Bytes bytes = this->bytes();
  if (bytes == nullptr) {
    if (kept_ == kKeepAll) return DonatedError(spec);
    FAIRWAY_ASSIGN_OR_RETURN(const int64_t size, ByteSize(spec.dtype, spec.shape));
    return Zeros(static_cast<size_t>(size));
  }
  const std::string_view view = bytes->view();
  return HostView{view, std::move(bytes)};
}

void NativeCell::Consume() {
  std::lock_guard lock(mutex_);
  consumed_ = true;
}

bool NativeCell::consumed() const {
  std::lock_guard lock(mutex_);
  return consumed_;
}

Bytes NativeCell::Take() {
  std::lock_guard lock(mutex_);
  return std::exchange(bytes_, nullptr);
}

absl::Status NativeLaunch::FirstCause() const {
  for (const auto& cells : inputs) {
    for (const NativeCellPtr& cell : cells) {
      const auto status = cell->due != nullptr ? cell->due->known.Peek() : cell->outcome->Peek();
      if (status.has_value() && !status->ok()) return *status;
    }
  }
  return absl::OkStatus();
}

bool NativeLaunch::InputsEnded() const {
  for (const auto& cells : inputs) {
    for (const NativeCellPtr& cell : cells) {
      if (!cell->outcome->Peek().has_value()) return false;
    }
  }
  return true;
}

void NativeLaunch::EndCall(size_t call, const absl::Status& status) {
  if (const auto& with = block->calls[call].exchange; with != nullptr)
    with->End(launch_id + call, status);
  if (outcomes[call] != nullptr) outcomes[call]->Set(status);
}

void NativeLaunch::End(absl::Status status) {
  inputs.clear();
  if (block == nullptr && exchange != nullptr) exchange->End(launch_id, status);
  outcome->Set(status);
  std::move(done)(std::move(status));
}

void WhenAllSet(const std::vector<Outcome*>& outcomes, absl::AnyInvocable<void()> then) {
  struct Waiting {
    std::atomic<size_t> open;
    absl::AnyInvocable<void()> then;
  };
  auto waiting = std::make_shared<Waiting>();
  waiting->open = outcomes.size() + 1;
  waiting->then = std::move(then);
  const auto arrive = [waiting] {
    if (--waiting->open == 0) std::exchange(waiting->then, nullptr)();
  };
  for (Outcome* outcome : outcomes) outcome->OnDone([arrive](const absl::Status&) { arrive(); });
  arrive();
}

}  // namespace fairway
