// SPDX-License-Identifier: Apache-2.0
// Files with secrets.
#ifndef FAIRWAY_IDENTITY_PRIVATE_FILE_H_
#define FAIRWAY_IDENTITY_PRIVATE_FILE_H_

#include <string>
#include <utility>

#include "base/status.h"

namespace fairway {

// Writes a file that only its owner can reach, whole or not at all. A file that was there is
// replaced, and is on the disk before this returns. UNAVAILABLE: it cannot be written.
// `mode`: of a file that others may read.
absl::Status WritePrivate(const std::string& path, const std::string& text, unsigned mode = 0600);

// Writes such a file where none is, whole or not at all. ALREADY_EXISTS: one is there, and stays as
// it is, also if another process made it meanwhile. UNAVAILABLE: it cannot be written.
absl::Status WriteNewPrivate(const std::string& path, const std::string& text);

// A file that is removed with this object, whether it is there or not.
struct TemporaryFile {
  explicit TemporaryFile(std::string name) : path(std::move(name)) {}
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string path;
};

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_PRIVATE_FILE_H_
