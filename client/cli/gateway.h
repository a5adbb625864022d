// SPDX-License-Identifier: Apache-2.0
// fairway gateway: lets clients without TLS, as jaxlib's is, use a controller that speaks it.
#ifndef FAIRWAY_CLIENT_CLI_GATEWAY_H_
#define FAIRWAY_CLIENT_CLI_GATEWAY_H_

namespace fairway {

int RunGateway(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_GATEWAY_H_
