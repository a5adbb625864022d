// SPDX-License-Identifier: Apache-2.0
#include "identity/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <absl/cleanup/cleanup.h>

namespace fairway {

namespace {

// Whether all of it is on the disk; else errno says why.
bool WriteAll(int file, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t put = ::write(file, text.data() + at, text.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    at += static_cast<size_t>(put);
  }
  return ::fsync(file) == 0;
}

// Renames a file, and replaces none. Some network file systems have no such rename: there it gets
// its second name before it loses the first.
bool RenameToNew(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  return ::link(from.c_str(), to.c_str()) == 0 && ::unlink(from.c_str()) == 0;
}

}  // namespace

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
  if (!WriteAll(file, text) || ::rename(fresh.c_str(), path.c_str()) != 0) return failed();
  return absl::OkStatus();
}

absl::Status WriteNewPrivate(const std::string& path, const std::string& text) {
  std::string fresh = path + ".XXXXXX";
  const auto failed = [&] {
    return Error(
        errno == EEXIST ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kUnavailable,
        "cannot write {}: {}", path, std::strerror(errno));
  };
  const int file = ::mkostemp(fresh.data(), O_CLOEXEC);  // of mode 0600, and nobody's before
  if (file < 0) return failed();
  const absl::Cleanup close = [file] { ::close(file); };
  if (WriteAll(file, text) && RenameToNew(fresh, path)) return absl::OkStatus();
  const absl::Status status = failed();
  ::unlink(fresh.c_str());
  return status;
}

TemporaryFile::~TemporaryFile() { ::unlink(path.c_str()); }

}  // namespace fairway
