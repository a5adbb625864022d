// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CPP_CREDENTIALS_H_
#define FAIRWAY_CLIENT_CPP_CREDENTIALS_H_

#include <memory>
#include <string>

namespace grpc {
class ChannelCredentials;
}

namespace fairway::client {

// For a channel to a controller. `authorities`: PEM texts of the CAs that may sign its certificate,
// which says that it is the controller's; names of hosts do not count (docs/design/0067-tls.md).
// Empty: plain text.
std::shared_ptr<grpc::ChannelCredentials> ControllerCredentials(const std::string& authorities);

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_CREDENTIALS_H_
