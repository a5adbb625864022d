// SPDX-License-Identifier: Apache-2.0
// Checks of a controller from where a client or a worker is, for `fairway doctor`.
#ifndef FAIRWAY_CLIENT_CLI_CONTROLLER_CHECKS_H_
#define FAIRWAY_CLIENT_CLI_CONTROLLER_CHECKS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "client/cli/finding.h"
#include "client/cli/reach.h"
#include "fairway/v1/admin.pb.h"

namespace fairway {

// That the name of HOST:PORT has an address, and that somebody takes connections there. `what`:
// "controller". False: not so, which was reported. A look-up of a name may take long.
bool CheckAddress(const std::string& what, const std::string& address, const std::string& fix,
                  std::chrono::milliseconds timeout, const Report& report);

// All that a client of a controller meets: its address, TLS, its token, clocks, versions, and the
// workers. What cannot be checked without what failed is skipped. Blocks.
void CheckController(const Reach& reach, const Report& report);

// How far this host's clock is from the controller's. `behind`: by how much this host's is behind;
// `uncertain`: how long the answer was under way.
Finding ClockFinding(std::chrono::milliseconds behind, std::chrono::milliseconds uncertain);

// What the controller's status says of islands and workers: a finding for each that is not well,
// the first ten; else one PASS.
void CheckWorkers(const v1::GetStatusResponse& status, const Report& report);

// Certificates of workers that have not been renewed in time.
void CheckWorkerCertificates(const v1::ListCertificatesResponse& certificates, int64_t now_s,
                             const Report& report);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_CONTROLLER_CHECKS_H_
