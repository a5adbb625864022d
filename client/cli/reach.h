// SPDX-License-Identifier: Apache-2.0
// Which controller a command speaks to, and how.
#ifndef FAIRWAY_CLIENT_CLI_REACH_H_
#define FAIRWAY_CLIENT_CLI_REACH_H_

#include <string>

#include "base/config.h"

namespace fairway {

struct Reach {
  std::string controller = "127.0.0.1:29000";
  std::string tls_ca = {};      // empty: no TLS
  std::string token_file = {};  // empty: no token
};

// Declares --controller, --tls-ca and --token-file.
void DeclareReach(Config& config, Reach* reach);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_REACH_H_
