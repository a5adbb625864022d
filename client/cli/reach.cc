// SPDX-License-Identifier: Apache-2.0
#include "client/cli/reach.h"

namespace fairway {

void DeclareReach(Config& config, Reach* reach) {
  config.Flag("controller", &reach->controller, "The controller's HOST[:PORT]");
  config.Flag("tls-ca", &reach->tls_ca,
              "PEM file of the CA that has signed the controller's certificate: speak TLS");
  config.Flag("token-file", &reach->token_file,
              "File that has this client's token (`fairway token create`), or /dev/fd/N; with "
              "--tls-ca");
}

}  // namespace fairway
