// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_TRANSPORT_TLS_H_
#define FAIRWAY_TRANSPORT_TLS_H_

#include <memory>
#include <optional>

#include "identity/certificates.h"
#include "identity/tls_identity.h"

namespace fairway {

// How the connections of one port, or to one kind of peer, use TLS.
struct TlsUse {
  std::shared_ptr<TlsIdentity> identity;  // nullptr: they do not
  std::optional<Role> peer;               // what the peer must be; nullopt: any daemon
  // Of a port: clients show no certificate, and speak TLS 1.2 or newer; without `identity` they may
  // be of any user, and whoever has the port looks at that.
  bool anybody = false;
};

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_TLS_H_
