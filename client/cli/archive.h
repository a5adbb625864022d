// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CLI_ARCHIVE_H_
#define FAIRWAY_CLIENT_CLI_ARCHIVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace fairway {

struct ArchivedFile {
  std::string name;  // within the archive; at most 100 bytes
  std::string text;
};

// The bytes of a .tar.gz that has these files, of mode 0600. `time_s`: when they were made, in
// seconds since 1970. INVALID_ARGUMENT: a name is too long.
absl::StatusOr<std::string> TarGz(const std::vector<ArchivedFile>& files, int64_t time_s);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_ARCHIVE_H_
