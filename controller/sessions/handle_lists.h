// SPDX-License-Identifier: Apache-2.0
// The handles that one request may name.
#ifndef FAIRWAY_CONTROLLER_SESSIONS_HANDLE_LISTS_H_
#define FAIRWAY_CONTROLLER_SESSIONS_HANDLE_LISTS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <google/protobuf/message.h>
#include <google/protobuf/repeated_field.h>

#include "base/status.h"

namespace fairway {

// What a request names is held until all of it has been gone through, in several turns.
inline constexpr int kMostHandles = 1 << 20;

// INVALID_ARGUMENT if a list of handles (any list of uint64) in the request is longer. One that is
// refused is not carried out at all: what should have been its results is not made either.
absl::Status CheckHandleLists(const google::protobuf::Message& request);

// Has another thread give up a request of many parts: that takes long.
template <typename Shell, typename Message>
void GiveUpOffLoop(Shell& shell, std::shared_ptr<Message> request, int parts) {
  constexpr int kFew = 1000;
  if (parts <= kFew) return;
  shell.RunOffLoop([request = std::move(request)] {}, [] {});
}

using HandleList = google::protobuf::RepeatedField<uint64_t>;

inline std::vector<uint64_t> ToVector(const HandleList& handles) {
  return {handles.begin(), handles.end()};
}

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_SESSIONS_HANDLE_LISTS_H_
