// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CLI_HTTP_GET_H_
#define FAIRWAY_CLIENT_CLI_HTTP_GET_H_

#include <string>

#include "base/status.h"

namespace fairway {

struct HttpPlace {
  std::string host;
  int port = 0;
  std::string
      authorities;    // PEM of the CAs that may sign the controller's certificate; empty: no TLS
  std::string token;  // goes by TLS only; empty: none
};

// What a controller's HTTP port answers to GET `path`, of at most 16 MiB. UNAVAILABLE: nobody
// answers, or TLS does not fit; else the text of the answer's error. Blocks, as long as the peer
// likes.
absl::StatusOr<std::string> HttpGet(const HttpPlace& place, const std::string& path);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_HTTP_GET_H_
