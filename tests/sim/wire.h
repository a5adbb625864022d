// SPDX-License-Identifier: Apache-2.0
// All messages between the hub and the machines pass through the real codecs and frames. The
// receiver of a report encodes it again, which must give the same bytes. Machines check commands
// likewise.
#ifndef FAIRWAY_TESTS_SIM_WIRE_H_
#define FAIRWAY_TESTS_SIM_WIRE_H_

#include <string>

#include "base/status.h"
#include "core/device.h"
#include "graph/plan.h"

namespace fairway::sim {

// INTERNAL: the bytes differ from `received`.
absl::Status SentAgain(const std::string& received, Incarnation incarnation, const Report& report);

}  // namespace fairway::sim

#endif  // FAIRWAY_TESTS_SIM_WIRE_H_
