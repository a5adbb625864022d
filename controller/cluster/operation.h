// SPDX-License-Identifier: Apache-2.0
// One operation or event of the core. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_OPERATION_H_
#define FAIRWAY_CONTROLLER_CLUSTER_OPERATION_H_

#include <cstdint>

#include "controller/cluster/cluster.h"

namespace fairway {

// Every function that the shell or a front door calls makes one first. At its end the answers that
// were made are handed over; they may begin another operation.
class Cluster::Operation {
 public:
  explicit Operation(State& state);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

 private:
  State& state_;
  const uint64_t began_;  // Turns::units then
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_OPERATION_H_
