// SPDX-License-Identifier: Apache-2.0
// The bound on the handles that one request may name.
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

// The handles of a request are held until it has gone through all of them, in several turns.
inline constexpr int kMostHandles = 1 << 20;

// The serialized size of a message. Its stream has computed it, and the message remembers it: to
// compute it again takes as long as the message is.
size_t KnownSize(const google::protobuf::Message& message);

// INVALID_ARGUMENT: a list of handles (any list of uint64) in the request is longer. A request that
// is refused is not carried out at all: its results are not made, not even as errors.
absl::Status CheckHandleLists(const google::protobuf::Message& request);

// Gives up a request, or the parts of a session. To destroy many parts takes long, so another
// thread does it.
template <typename Shell>
void GiveUp(Shell& shell, std::shared_ptr<void> garbage, size_t parts) {
  constexpr size_t kFew = 1000;
  if (parts > kFew) shell.Discard(std::move(garbage));
}

using HandleList = google::protobuf::RepeatedField<uint64_t>;

inline std::vector<uint64_t> ToVector(const HandleList& handles) {
  return {handles.begin(), handles.end()};
}

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_SESSIONS_HANDLE_LISTS_H_
