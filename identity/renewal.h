// SPDX-License-Identifier: Apache-2.0
// When a daemon renews its certificate, and how it replaces its files.
#ifndef FAIRWAY_IDENTITY_RENEWAL_H_
#define FAIRWAY_IDENTITY_RENEWAL_H_

#include <chrono>
#include <string>

#include "base/status.h"
#include "identity/certificates.h"
#include "identity/tls_identity.h"

namespace fairway {

// Two thirds of its life, which begins when it was made.
std::chrono::system_clock::time_point RenewalDue(const CertificateFacts& certificate);

// The pause before it is tried again: a minute after the first failure, doubled by each further
// one, at most an hour, and at most a tenth of what is left; at least a second.
std::chrono::milliseconds RetryPause(const CertificateFacts& certificate, int failures,
                                     std::chrono::system_clock::time_point now);

// Replaces what `files` have: the certificate with its key first, in one step, so that a process
// that is killed leaves files that fit. The key counts that is with its certificate in one file.
// Nothing is replaced unless all of it is right for `subject`. INVALID_ARGUMENT: it is not.
// UNAVAILABLE: a file cannot be written.
absl::Status ReplaceFiles(const TlsFiles& files, const Subject& subject, const Certified& made,
                          const std::string& authorities);

// Makes the controller's next certificate and replaces its files: a new key, the names and the life
// of the one before. The CA in `files.ca` signs it whose key is in the file `ca_key`. Waits
// for the disk. Errors: INVALID_ARGUMENT names the file and its fault; those of ReplaceFiles.
absl::Status RenewController(const TlsFiles& files, const std::string& ca_key);

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_RENEWAL_H_
