// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_COMPILER_CHECKSUM_H_
#define FAIRWAY_WORKER_COMPILER_CHECKSUM_H_

#include <string>
#include <string_view>

namespace fairway {

// Returns the SHA-256 as 64 lower-case hexadecimal digits. Executors check code against it before
// they load it, because the CPU plugin loads native code with a flipped byte without complaint.
std::string Sha256Hex(std::string_view bytes);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_COMPILER_CHECKSUM_H_
