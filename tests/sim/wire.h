// SPDX-License-Identifier: Apache-2.0
// The codecs that ship encode, frame and decode all messages between the hub and the machines. Here
// the receiver of a report encodes it again, which must give the same bytes. Machines do so with
// commands.
#ifndef FAIRWAY_TESTS_SIM_WIRE_H_
#define FAIRWAY_TESTS_SIM_WIRE_H_

#include <string>

#include "base/status.h"
#include "core/device.h"
#include "graph/plan.h"

namespace fairway::sim {

// INTERNAL: it is not what was received.
absl::Status SentAgain(const std::string& received, Incarnation incarnation, const Report& report);

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_WIRE_H_
