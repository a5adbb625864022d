// SPDX-License-Identifier: Apache-2.0
// Files of this host that are copied to others.
#ifndef FAIRWAY_CLIENT_HOSTS_LOCAL_FILE_H_
#define FAIRWAY_CLIENT_HOSTS_LOCAL_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace fairway {

// A tarball of `./dev package tarball`.
struct Package {
  std::string path;
  std::string release =
      {};  // "0.1.0-1a2b3c4d5e6f": its version, and the first digits of its SHA-256
  std::string machine = {};  // "x86_64"
  int64_t bytes = 0;         // when it is unpacked
  std::string looks = {};    // for CheckUnchanged
};
// NOT_FOUND: it cannot be read; INVALID_ARGUMENT: it is no fairway-VERSION-linux-MACHINE.tar.gz.
absl::StatusOr<Package> ReadPackage(const std::string& path);

// A PJRT plugin.
struct Plugin {
  std::string path;
  std::string digits;  // of its SHA-256, the first ones; empty: there is none
  int64_t bytes = 0;
  std::string looks = {};  // for CheckUnchanged
};
// None if `path` is empty. NOT_FOUND: it cannot be read.
absl::StatusOr<Plugin> ReadPlugin(const std::string& path);

// FAILED_PRECONDITION: the file is another one than the one that was read, or was written to since.
absl::Status CheckUnchanged(const std::string& path, std::string_view looks);

// In hexadecimal digits.
std::string Sha256(std::string_view text);

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_HOSTS_LOCAL_FILE_H_
