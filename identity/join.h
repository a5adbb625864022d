// SPDX-License-Identifier: Apache-2.0
// How a worker gets its certificate from a CA that never sees its key.
#ifndef FAIRWAY_IDENTITY_JOIN_H_
#define FAIRWAY_IDENTITY_JOIN_H_

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "identity/certificates.h"

namespace fairway {

// A key, and a request for a certificate that is signed with it (PKCS #10); each as PEM.
struct CertificateRequest {
  std::string request;
  std::string key;
};
// Empty: a new key.
absl::StatusOr<CertificateRequest> MakeRequest(std::string_view key = {});

// Returns the certificate (PEM) of `subject` for the key of `request`; nothing else of the request
// counts. INVALID_ARGUMENT: it is no request, is not signed with its key, or its key is not ECDSA
// on P-256; or `authority` is no CA with its key.
absl::StatusOr<std::string> Certify(const Certified& authority, std::string_view request,
                                    const Subject& subject, std::chrono::seconds lifetime);

// Of the request's key. INVALID_ARGUMENT: as Certify.
absl::StatusOr<CertificateHash> KeyOfRequest(std::string_view request);

// "sha256:" and 64 hexadecimal digits for each certificate in the text (PEM), in its order.
std::vector<std::string> CertificateHashes(std::string_view pem);

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_JOIN_H_
