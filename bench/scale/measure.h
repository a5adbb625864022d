// SPDX-License-Identifier: Apache-2.0
// What the scale model is asked: how short computations may be, what things cost the controller,
// and how programs grow with the number of devices.
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
  std::vector<Point> points;  // in the order in which they were tried; the first takes no time
};
// Tries computations until it is known to 5 %.
absl::StatusOr<Parity> FindParity(Options options);

// Bytes that the controller's objects hold. 0: the allocator does not tell.
struct Memory {
  double host = 0;   // registered
  double array = 0;  // ready, one shard on each device
  double gang = 0;   // waiting to be launched, with its result
};
absl::StatusOr<Memory> MeasureMemory(Options options);

// Experiment E6 (Pathways, 4.3): one run of the program Arg -> A -> B -> Result.
struct ProgramSize {
  int graph_nodes = 0;           // as the client writes it
  double controller_nodes = 0;   // that a run makes
  double client_bytes = 0;       // between client and controller, both ways, per run
  double frames_per_host = 0;    // from the controller, per run
  double bytes_per_host = 0;     // the same, per run
  double reports_per_host = 0;   // to the controller, bytes per run
  double controller_memory = 0;  // bytes that a waiting run holds
};
absl::StatusOr<ProgramSize> MeasureProgram(Options options);

}  // namespace fairway::scale

#endif  // FAIRWAY_BENCH_SCALE_MEASURE_H_
