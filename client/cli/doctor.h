// SPDX-License-Identifier: Apache-2.0
// `fairway doctor`: looks for what commonly keeps a cluster from working (docs/operate.md).
#ifndef FAIRWAY_CLIENT_CLI_DOCTOR_H_
#define FAIRWAY_CLIENT_CLI_DOCTOR_H_

#include "client/cli/finding.h"
#include "client/cli/place.h"

namespace fairway {

// Makes all checks that make sense in this place, and adds what they find to `checked`. Within a
// minute.
void Examine(const Place& place, Checked* checked);

// Ends the process if a check has not ended, since its thread goes on.
int RunDoctor(int argc, const char* const* argv);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_DOCTOR_H_
