// SPDX-License-Identifier: Apache-2.0
// The status of a cluster, as text for people and as JSON for programs.
#ifndef FAIRWAY_CLIENT_CLI_STATUS_TEXT_H_
#define FAIRWAY_CLIENT_CLI_STATUS_TEXT_H_

#include <string>

#include "fairway/v1/admin.pb.h"

namespace fairway {

// A few lines: controller, islands with their executors and memory, counts. `wide`: one more for
// each executor, about its link to the controller.
std::string StatusText(const v1::GetStatusResponse& status, bool wide = false);

// A note if the controller's version differs from this command's; "" if they agree.
std::string VersionNote(std::string_view command, std::string_view controller);

// One JSON object with the message's fields under their names in admin.proto; 64-bit numbers are
// written as numbers.
std::string StatusJson(const v1::GetStatusResponse& status);

// "up", "down", "stalled for 5 s": the state of a worker's executor.
std::string StateText(const v1::Executor& executor);

// "up", "down", "up, cordoned", "up, drained"; "absent, cordoned": it is not known.
std::string StateText(const v1::Island& island);

// "since 2026-11-27 14:07:25 UTC by token 3 (operator)"; "": it is not cordoned.
std::string CordonText(const v1::Island& island);

// Why it was lost the last time, without the log lines that may follow the cause; "": never.
std::string CauseOf(const v1::Executor& executor);

// "5 s", "1 min 1 s", "2 h 5 min".
std::string DurationText(int64_t ms);

// "0", "640 B", "1.5 MiB".
std::string BytesText(int64_t bytes);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_STATUS_TEXT_H_
