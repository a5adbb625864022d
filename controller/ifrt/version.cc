// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/version.h"

#include <algorithm>
#include <string_view>

namespace fairway {
namespace {

struct Range {
  int min = 0, max = 0;
};

constexpr Range kProtocol{kMinProtocolVersion, kMaxProtocolVersion};
constexpr Range kSerdes{kMinSerdesVersion, kMaxSerdesVersion};

bool Meet(Range a, Range b) { return a.min <= b.max && b.min <= a.max; }

}  // namespace

absl::StatusOr<xla::ifrt::proxy::IfrtProxyVersion> ChooseVersion(
    const xla::ifrt::proxy::IfrtProxyVersion& min, const xla::ifrt::proxy::IfrtProxyVersion& max) {
  const Range protocol{min.protocol_version(), max.protocol_version()};
  const Range serdes{min.ifrt_serdes_version_number(), max.ifrt_serdes_version_number()};
  if (protocol.min > protocol.max || serdes.min > serdes.max)
    return InvalidArgument(
        "this client offers versions {} to {} of the IFRT proxy protocol and serdes versions {} to "
        "{}: a minimum is above its maximum",
        protocol.min, protocol.max, serdes.min, serdes.max);
  if (!Meet(protocol, kProtocol) || !Meet(serdes, kSerdes)) {
    const bool older = protocol.max < kProtocol.min || serdes.max < kSerdes.min;
    const std::string_view advice =
        older ? "Install a newer jaxlib: pip install --upgrade 'jax>=0.8.2' 'jaxlib>=0.8.2'"
              : "Update Fairway, or install an older jaxlib: pip install 'jax<0.13' 'jaxlib<0.13'";
    return Error(absl::StatusCode::kFailedPrecondition,
                 "this client's jaxlib speaks versions {} to {} of the IFRT proxy protocol with "
                 "serdes versions {} to {}; this Fairway controller serves versions {} to {} with "
                 "serdes versions {} to {}. {}",
                 protocol.min, protocol.max, serdes.min, serdes.max, kProtocol.min, kProtocol.max,
                 kSerdes.min, kSerdes.max, advice);
  }
  xla::ifrt::proxy::IfrtProxyVersion chosen;
  chosen.set_protocol_version(std::min(protocol.max, kProtocol.max));
  chosen.set_ifrt_serdes_version_number(std::min(serdes.max, kSerdes.max));
  return chosen;
}

}  // namespace fairway
