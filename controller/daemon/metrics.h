// SPDX-License-Identifier: Apache-2.0
// The controller's metrics in Prometheus' text format (version 0.0.4).
#ifndef FAIRWAY_CONTROLLER_DAEMON_METRICS_H_
#define FAIRWAY_CONTROLLER_DAEMON_METRICS_H_

#include <string>

#include "controller/daemon/snapshot.h"

namespace fairway {

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

std::string MetricsText(const ControllerSnapshot& snapshot);

// Open file descriptors and threads of this process.
int CountOpenFds();
int CountThreads();

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_METRICS_H_
