// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/version.h"

namespace fairway {

absl::StatusOr<xla::ifrt::proxy::IfrtProxyVersion> ChooseVersion(
    const xla::ifrt::proxy::IfrtProxyVersion& min, const xla::ifrt::proxy::IfrtProxyVersion& max) {
  const int protocol = max.protocol_version();
  const int serdes = max.ifrt_serdes_version_number();
  if (protocol >= kMinProtocolVersion && protocol <= kMaxProtocolVersion && serdes >= 0 &&
      serdes <= kMaxSerdesVersion)
    return max;
  return Error(absl::StatusCode::kFailedPrecondition,
               "this client's jaxlib speaks versions {} to {} of the IFRT proxy protocol (serdes "
               "{} to {}); this Fairway controller serves versions {} to {} (serdes up to {}), "
               "those of jaxlib 0.8.2 to 0.10.2: pip install jax==0.10.2 jaxlib==0.10.2",
               min.protocol_version(), protocol, min.ifrt_serdes_version_number(), serdes,
               kMinProtocolVersion, kMaxProtocolVersion, kMaxSerdesVersion);
}

}  // namespace fairway
