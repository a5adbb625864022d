// SPDX-License-Identifier: Apache-2.0
#include "controller/sessions/error_arrays.h"

namespace fairway {

absl::Status ErrorArrays::First(const std::vector<uint64_t>& handles) const {
  if (errors_.empty()) return absl::OkStatus();
  for (const uint64_t handle : handles) {
    const auto it = errors_.find(handle);
    if (it != errors_.end()) return it->second;
  }
  return absl::OkStatus();
}

absl::Status ErrorArrays::Poison(const std::vector<uint64_t>& handles, absl::Status status) {
  if (status.ok()) return status;
  for (const uint64_t handle : handles) {
    // A handle that is in use keeps its array.
    if (handle != 0 && cluster_->MakeError(session_, handle, ArraySpec{}, status).ok())
      errors_[handle] = status;
  }
  return status;
}

void ErrorArrays::Forget(const std::vector<uint64_t>& handles) {
  if (errors_.empty()) return;
  for (const uint64_t handle : handles) errors_.erase(handle);
}

}  // namespace fairway
