// SPDX-License-Identifier: Apache-2.0
// Which versions of the IFRT proxy protocol the door speaks; see proto/VERSION.md.
#ifndef FAIRWAY_CONTROLLER_IFRT_VERSION_H_
#define FAIRWAY_CONTROLLER_IFRT_VERSION_H_

#include "base/status.h"
#include "ifrt/messages.pb.h"

namespace fairway {

inline constexpr int kMinProtocolVersion = 22;
inline constexpr int kMaxProtocolVersion = 25;
inline constexpr int kMaxSerdesVersion = 3;

// The client's highest version, if we serve it: choosing a lower one breaks clients.
// FAILED_PRECONDITION: the text names both sides' versions and which jaxlib to install.
absl::StatusOr<xla::ifrt::proxy::IfrtProxyVersion> ChooseVersion(
    const xla::ifrt::proxy::IfrtProxyVersion& min, const xla::ifrt::proxy::IfrtProxyVersion& max);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_VERSION_H_
