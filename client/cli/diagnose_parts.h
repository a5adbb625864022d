// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CLI_DIAGNOSE_PARTS_H_
#define FAIRWAY_CLIENT_CLI_DIAGNOSE_PARTS_H_

#include <cstddef>
#include <vector>

#include "client/cli/diagnose.h"
#include "client/cli/place.h"

namespace fairway {

inline constexpr size_t kLongestPart = size_t{4} << 20;

// What `fairway diagnose` collects in this place. Most of it is what commands of this program
// print. No file with a key, a token or a database is read.
std::vector<Part> PartsOf(const Place& place);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_DIAGNOSE_PARTS_H_
