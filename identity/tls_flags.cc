// SPDX-License-Identifier: Apache-2.0
#include "identity/tls_flags.h"

namespace fairway {

void DeclareTlsFlags(Config& config, TlsFiles* files) {
  config.Flag("tls-ca", &files->ca,
              "PEM file of the cluster's CA. With the next two flags, links and the data port "
              "speak TLS 1.3 only, and with this cluster's daemons only (`fairway init`); a "
              "controller's clients speak TLS, too");
  config.Flag(
      "tls-certificate", &files->certificate,
      "PEM file of this daemon's certificate; when it is replaced, later connections use it");
  config.Flag("tls-key", &files->key,
              "PEM file of its private key, which its owner alone can read");
}

absl::StatusOr<std::shared_ptr<TlsIdentity>> LoadTls(const TlsFiles& files, Role role) {
  const int given = static_cast<int>(!files.ca.empty()) +
                    static_cast<int>(!files.certificate.empty()) +
                    static_cast<int>(!files.key.empty());
  if (given == 0) return nullptr;
  if (given != 3) {
    return InvalidArgument(
        "--tls-ca, --tls-certificate and --tls-key belong together: {} missing",
        files.ca.empty() ? "--tls-ca is"
                         : (files.certificate.empty() ? "--tls-certificate is" : "--tls-key is"));
  }
  return TlsIdentity::Load(files, role);
}

}  // namespace fairway
