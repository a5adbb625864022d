// SPDX-License-Identifier: Apache-2.0
#include "controller/sessions/host_buffer_store.h"

#include <utility>

namespace fairway {
namespace {

absl::Status NoSuchBuffer(uint64_t handle) {
  return Error(absl::StatusCode::kNotFound, "there is no host buffer {}", handle);
}

}  // namespace

HostBufferStore::~HostBufferStore() { End(); }

std::shared_ptr<void> HostBufferStore::End() {
  auto held = std::make_shared<Slots>(std::exchange(slots_, {}));
  for (const uint64_t handle : std::exchange(read_, {})) {
    for (const Ready& reader : std::exchange(held->at(handle).readers, {}))
      reader(absl::UnavailableError("the session has ended"));
  }
  for (const auto& [handle, reader] : std::exchange(early_, {}))
    reader(absl::UnavailableError("the session has ended"));
  return held;
}

void HostBufferStore::Store(uint64_t handle, Bytes bytes) {
  Slot& slot = slots_[handle];
  read_.erase(handle);
  if (slot.taker != nullptr) {
    const Ready taker = std::move(slot.taker);
    const std::vector<Ready> readers = std::move(slot.readers);
    slots_.erase(handle);
    for (const Ready& reader : readers)
      reader(Error(absl::StatusCode::kNotFound, "host buffer {} has become an array", handle));
    return taker(std::move(bytes));
  }
  const std::vector<Ready> readers = std::exchange(slot.readers, {});
  slot.bytes = std::move(bytes);
  const Bytes copy = *slot.bytes;
  for (const Ready& reader : readers) reader(copy);
}

void HostBufferStore::Take(uint64_t handle, Ready ready) {
  const auto it = slots_.find(handle);
  if (it != slots_.end() && it->second.taker != nullptr)
    return ready(InvalidArgument("host buffer {} is to become another array already", handle));
  if (it == slots_.end() || !it->second.bytes.has_value()) {
    slots_[handle].taker = std::move(ready);
    return;
  }
  Bytes bytes = *std::move(it->second.bytes);
  slots_.erase(it);
  ready(std::move(bytes));
}

void HostBufferStore::Expect(uint64_t handle, std::shared_ptr<void> charge) {
  slots_[handle].charge = std::move(charge);
  const auto early = early_.find(handle);
  if (early == early_.end()) return;
  const Ready reader = std::move(early->second);
  early_.erase(early);
  Lookup(handle, reader);
}

void HostBufferStore::StoreIfExpected(uint64_t handle, Bytes bytes) {
  const auto it = slots_.find(handle);
  if (it == slots_.end()) return;
  std::shared_ptr<void> charge = std::move(it->second.charge);
  if (bytes.ok() && charge.use_count() > 0) {  // not `!= nullptr`: the pointer itself may be null
    const std::shared_ptr<const Blob> plain = *std::move(bytes);
    bytes = std::shared_ptr<const Blob>(
        Blob::Adopt(const_cast<char*>(plain->data()), plain->size(), [plain, charge] {}));
  }
  Store(handle, std::move(bytes));
}

void HostBufferStore::Lookup(uint64_t handle, Ready ready) {
  const auto it = slots_.find(handle);
  if (it == slots_.end()) return ready(NoSuchBuffer(handle));
  if (!it->second.bytes.has_value()) {
    it->second.readers.push_back(std::move(ready));
    read_.insert(handle);
    return;
  }
  const Bytes copy = *it->second.bytes;
  ready(copy);
}

void HostBufferStore::LookupEarly(uint64_t handle, Ready ready) {
  if (slots_.contains(handle)) return Lookup(handle, std::move(ready));
  if (early_.contains(handle)) return ready(NoSuchBuffer(handle));  // one waits already
  early_.emplace(handle, std::move(ready));
  if (early_.size() <= kMostEarly) return;
  auto oldest = early_.extract(early_.begin());
  oldest.mapped()(NoSuchBuffer(oldest.key()));
}

absl::Status HostBufferStore::Delete(uint64_t handle) {
  const auto it = slots_.find(handle);
  if (it == slots_.end()) return NoSuchBuffer(handle);
  const Slot slot = std::move(it->second);
  slots_.erase(it);
  read_.erase(handle);
  const absl::Status deleted = Error(absl::StatusCode::kCancelled,
                                     "host buffer {} was deleted before its bytes came", handle);
  for (const Ready& reader : slot.readers) reader(deleted);
  if (slot.taker != nullptr) slot.taker(deleted);
  return absl::OkStatus();
}

}  // namespace fairway
