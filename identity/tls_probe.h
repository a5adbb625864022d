// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_IDENTITY_TLS_PROBE_H_
#define FAIRWAY_IDENTITY_TLS_PROBE_H_

#include <chrono>
#include <string>
#include <vector>

#include "base/status.h"

namespace fairway {

// Why a client cannot speak with the controller at `address` (HOST:PORT), as far as TLS goes; for
// the message of a connection that has failed, since gRPC's does not say. `authorities` is the text
// of --tls-ca; empty: the client has none, and speaks no TLS. OK: nothing is wrong with TLS, or
// nobody answers. Blocks, for `timeout` at most and the time that a name takes.
absl::Status ProbeController(const std::string& address, const std::string& authorities,
                             std::chrono::milliseconds timeout);

// Returns the certificate (PEM) that the controller at `address` shows, which nobody has verified.
// UNAVAILABLE: nobody speaks TLS there.
absl::StatusOr<std::string> FetchCertificate(const std::string& address,
                                             std::chrono::milliseconds timeout);

// Returns the certificates (PEM) of the CAs that have one of these hashes (CertificateHashes, in
// join.h), as the controller at `address` shows them; for a client that does not know the CAs yet.
// Nothing else of the controller is believed, and nothing is told to it. UNAVAILABLE: nobody speaks
// TLS there. PERMISSION_DENIED: who does shows no such CA.
absl::StatusOr<std::string> FetchAuthorities(const std::string& address,
                                             const std::vector<std::string>& hashes,
                                             std::chrono::milliseconds timeout);

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_TLS_PROBE_H_
