// SPDX-License-Identifier: Apache-2.0
// The measurements of the scale model: how short computations may be, how much things cost the
// controller, and how programs grow with the number of devices.
#ifndef FAIRWAY_BENCH_SCALE_MEASURE_H_
#define FAIRWAY_BENCH_SCALE_MEASURE_H_

#include <vector>

#include "base/status.h"
#include "bench/scale/model.h"

namespace fairway::scale {

inline constexpr double kParity = 0.99;

// Experiment E2 (Pathways, MLSys 2022, Fig 6).
struct Parity {
  struct Point {
    Nanos computation = 0;
    Result result;
  };
  Nanos computation = 0;      // the smallest at which devices idle for at most 1 % of the time
  Nanos fastest_period = 0;   // of gangs whose computation takes no time
  std::vector<Point> points;  // in the order of the attempts; the first takes no time
};
// Tries computations until the smallest is known to 5 %.
absl::StatusOr<Parity> FindParity(Options options);

// Bytes that the controller's objects hold. 0: the allocator does not tell.
struct Memory {
  double host = 0;   // of a registered host
  double array = 0;  // of a ready array, one shard on each device
  double gang = 0;   // of a gang that waits for its launch, with its result
};
absl::StatusOr<Memory> MeasureMemory(Options options);

// Experiment E6 (Pathways, 4.3): one run of the program Arg -> A -> B -> Result.
struct ProgramSize {
  int graph_nodes = 0;           // in the client's program
  double controller_nodes = 0;   // made by a run
  double client_bytes = 0;       // between client and controller, in both directions, per run
  double frames_per_host = 0;    // from the controller, per run
  double bytes_per_host = 0;     // the same, per run
  double reports_per_host = 0;   // to the controller, bytes per run
  double controller_memory = 0;  // bytes that a waiting run holds
};
absl::StatusOr<ProgramSize> MeasureProgram(Options options);

}  // namespace fairway::scale

#endif  // FAIRWAY_BENCH_SCALE_MEASURE_H_
