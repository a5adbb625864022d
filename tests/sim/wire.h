// SPDX-License-Identifier: Apache-2.0
// What crosses the links is encoded, framed and decoded by the codecs that ship, between the hub
// and the machines. Here the receiver sends a report again: the bytes must be the same. Of commands
// the machine does so itself.
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
