// SPDX-License-Identifier: Apache-2.0
#include "identity/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <absl/cleanup/cleanup.h>

namespace fairway {

absl::Status WritePrivate(const std::string& path, const std::string& text, unsigned mode) {
  const std::string fresh = path + ".new";
  const auto failed = [&] {
    const absl::Status status =
        Error(absl::StatusCode::kUnavailable, "cannot write {}: {}", path, std::strerror(errno));
    ::unlink(fresh.c_str());
    return status;
  };
  ::unlink(fresh.c_str());  // what an interrupted call left
  const int file =
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return failed();
  const absl::Cleanup close = [file] { ::close(file); };
  if (::fchmod(file, mode) != 0) return failed();
  for (size_t at = 0; at < text.size();) {
    const ssize_t put = ::write(file, text.data() + at, text.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return failed();
    at += static_cast<size_t>(put);
  }
  if (::fsync(file) != 0 || ::rename(fresh.c_str(), path.c_str()) != 0) return failed();
  return absl::OkStatus();
}

TemporaryFile::~TemporaryFile() { ::unlink(path.c_str()); }

}  // namespace fairway
