// SPDX-License-Identifier: Apache-2.0
// Arrays in NumPy's .npy files (versions 1 to 3, little-endian, C order).
#ifndef FAIRWAY_CLIENT_CLI_NPY_H_
#define FAIRWAY_CLIENT_CLI_NPY_H_

#include <string>

#include "base/status.h"
#include "fairway/types.h"

namespace fairway {

// INVALID_ARGUMENT: not a .npy file of a type that arrays have; NOT_FOUND: no such file.
absl::StatusOr<client::HostArray> ReadNpy(const std::string& path);

// INVALID_ARGUMENT: NumPy has no such type; UNAVAILABLE: the file cannot be written.
absl::Status WriteNpy(const std::string& path, const client::HostArray& array);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_NPY_H_
