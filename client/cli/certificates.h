// SPDX-License-Identifier: Apache-2.0
// fairway certificate list and revoke.
#ifndef FAIRWAY_CLIENT_CLI_CERTIFICATES_H_
#define FAIRWAY_CLIENT_CLI_CERTIFICATES_H_

#include <chrono>
#include <string>

#include "fairway/v1/admin.pb.h"

namespace fairway {

// argv[1] is the verb. Returns the exit code.
int RunCertificate(int argc, const char* const* argv);

// A line for each certificate, below a line of titles. `now`: for what has expired.
std::string CertificatesText(const v1::ListCertificatesResponse& certificates,
                             std::chrono::sys_seconds now);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_CERTIFICATES_H_
