// SPDX-License-Identifier: Apache-2.0
// The versions of the IFRT proxy protocol that the door speaks; see proto/VERSION.md.
#ifndef FAIRWAY_CONTROLLER_IFRT_VERSION_H_
#define FAIRWAY_CONTROLLER_IFRT_VERSION_H_

#include "base/status.h"
#include "ifrt/messages.pb.h"

namespace fairway {

inline constexpr int kMinProtocolVersion = 22;
inline constexpr int kMaxProtocolVersion = 25;
// Versions of the form in which a client serializes programs and shardings.
inline constexpr int kMinSerdesVersion = 0;
inline constexpr int kMaxSerdesVersion = 6;

// Chooses the highest protocol version and the highest serdes version that both sides know. `min`,
// `max`: the client's range. FAILED_PRECONDITION: the ranges do not meet; the text names both and
// what to install. INVALID_ARGUMENT: a minimum is above its maximum.
absl::StatusOr<xla::ifrt::proxy::IfrtProxyVersion> ChooseVersion(
    const xla::ifrt::proxy::IfrtProxyVersion& min, const xla::ifrt::proxy::IfrtProxyVersion& max);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_VERSION_H_
