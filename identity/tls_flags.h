// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_IDENTITY_TLS_FLAGS_H_
#define FAIRWAY_IDENTITY_TLS_FLAGS_H_

#include <memory>

#include "base/config.h"
#include "identity/tls_identity.h"

namespace fairway {

// Declares --tls-ca, --tls-certificate and --tls-key.
void DeclareTlsFlags(Config& config, TlsFiles* files);

// Loads the files that the flags name; nullptr: they name none, and there is no TLS.
// INVALID_ARGUMENT: they name only some, or as TlsIdentity::Load.
absl::StatusOr<std::shared_ptr<TlsIdentity>> LoadTls(const TlsFiles& files, Role role);

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_TLS_FLAGS_H_
