// SPDX-License-Identifier: Apache-2.0
// Times of day, as people read them.
#ifndef FAIRWAY_BASE_TIME_TEXT_H_
#define FAIRWAY_BASE_TIME_TEXT_H_

#include <chrono>
#include <string>

namespace fairway {

// "2026-11-27 14:07:25 UTC".
std::string TimeText(std::chrono::sys_seconds time);

}  // namespace fairway

#endif  // FAIRWAY_BASE_TIME_TEXT_H_
