// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CONTROLLER_DAEMON_EXECUTOR_LOG_H_
#define FAIRWAY_CONTROLLER_DAEMON_EXECUTOR_LOG_H_

#include <string>

#include "fairway/v1/link.pb.h"

namespace fairway {

// The end of the log of an executor that died with an error, to be appended to the cause in a
// message for clients.
std::string LogText(const v1::ExecutorDied& died);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_DAEMON_EXECUTOR_LOG_H_
