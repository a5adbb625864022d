// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CPP_CREDENTIALS_H_
#define FAIRWAY_CLIENT_CPP_CREDENTIALS_H_

#include <memory>
#include <string>

#include "base/status.h"

namespace grpc {
class ChannelCredentials;
}

namespace fairway::client {

// For a channel to a controller. `authorities`: PEM texts of the CAs that may sign its certificate,
// which says that it is the controller's; names of hosts do not count (docs/design/0067-tls.md).
// Empty: plain text. `token`: the secret of the client's token, which goes with each call; by TLS
// only. Empty: none.
std::shared_ptr<grpc::ChannelCredentials> ControllerCredentials(const std::string& authorities,
                                                                const std::string& token = {});

// What a client has from the files of its user. `authorities` and `token` are as above.
struct ClientTexts {
  std::string authorities;
  std::string token;
};
// Reads the PEM file of the CA and the file of the token; empty: none. INVALID_ARGUMENT: a file is
// wrong, or there is a token and no CA, since a token goes by TLS only. `flags`: the text names
// them as the command line does, and not as the SDK.
absl::StatusOr<ClientTexts> ReadClientTexts(const std::string& tls_ca,
                                            const std::string& token_file, bool flags);

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_CREDENTIALS_H_
