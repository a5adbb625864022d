// SPDX-License-Identifier: Apache-2.0
// What the controller says of workers whose certificates were revoked, in a process that takes
// connections of other workers.
#ifndef FAIRWAY_WORKER_PROCESS_TAKE_REVOCATIONS_H_
#define FAIRWAY_WORKER_PROCESS_TAKE_REVOCATIONS_H_

#include "base/status.h"
#include "fairway/v1/link.pb.h"
#include "identity/tls_identity.h"

namespace fairway {

// From now on no such connection comes in, and those that stand end. `tls`: nullptr, and this
// process takes nobody's certificates. INVALID_ARGUMENT: the message is none.
absl::Status TakeRevocations(const v1::RevokedWorkers& message, TlsIdentity* tls);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_PROCESS_TAKE_REVOCATIONS_H_
