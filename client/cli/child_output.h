// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CLI_CHILD_OUTPUT_H_
#define FAIRWAY_CLIENT_CLI_CHILD_OUTPUT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/cli/process.h"

namespace fairway {

struct ChildOutput {
  std::string output;   // its first bytes, of standard output and error together
  int wait_status = 0;  // of waitpid
  bool late = false;    // it was killed, since its time had passed
  bool cut = false;     // it wrote more
  bool Succeeded() const { return !late && wait_status == 0; }
};

enum class Variables : uint8_t {
  kAll,
  kNotOfFairway,  // for daemons: those of this shell are a client's
};

// Runs a program to its end, and kills it and its process group when `limit` has passed. `command`:
// [0] is its path. `user`: whom the program is; nullopt: as we are. UNAVAILABLE: it cannot be
// started. Blocks; may be called on any thread.
absl::StatusOr<ChildOutput> RunForOutput(const std::vector<std::string>& command,
                                         std::chrono::milliseconds limit,
                                         Variables variables = Variables::kAll,
                                         size_t most_bytes = size_t{1} << 20,
                                         const std::optional<ChildUser>& user = std::nullopt);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_CHILD_OUTPUT_H_
