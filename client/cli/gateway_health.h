// SPDX-License-Identifier: Apache-2.0
// The health of `fairway gateway` for probes: /healthz, /readyz, and grpc.health.v1.
#ifndef FAIRWAY_CLIENT_CLI_GATEWAY_HEALTH_H_
#define FAIRWAY_CLIENT_CLI_GATEWAY_HEALTH_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "identity/tls_identity.h"

namespace grpc {
class Channel;
}

namespace fairway {

// Serves it at `at`, HOST:PORT, on a thread of its own until the process ends. Returns
// "http://127.0.0.1:4711", or with `tls` "https://10.0.0.2:4711"; without it, it speaks plain text,
// and `at` is of this host only. Errors name the address.
//
// The gateway is ready while the controller is. It asks the controller every 2 s, and tells what it
// heard last, so probes hold up neither each other nor the controller.
absl::StatusOr<std::string> ServeGatewayHealth(const std::string& at,
                                               std::shared_ptr<grpc::Channel> controller,
                                               std::shared_ptr<TlsIdentity> tls);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_GATEWAY_HEALTH_H_
