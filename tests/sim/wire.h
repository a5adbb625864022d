// SPDX-License-Identifier: Apache-2.0
// Links as the daemons have them: what a controller and an executor send each other is encoded,
// framed, and decoded again by the codec that ships. What comes out must be what went in.
#ifndef FAIRWAY_TESTS_SIM_WIRE_H_
#define FAIRWAY_TESTS_SIM_WIRE_H_

#include "base/status.h"
#include "core/device.h"
#include "graph/plan.h"

namespace fairway::sim {

// As the receiver has it. An error: it cannot be sent, or what was received is not what was sent.
absl::StatusOr<Command> OverTheWire(const Command& command, Incarnation incarnation);
absl::StatusOr<Report> OverTheWire(const Report& report, Incarnation incarnation);
absl::StatusOr<ExecutorSpec> OverTheWire(const ExecutorSpec& spec);

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_WIRE_H_
