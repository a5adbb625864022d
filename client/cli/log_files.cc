// SPDX-License-Identifier: Apache-2.0
#include "client/cli/log_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/strings/str_split.h>
#include <fmt/format.h>

#include "client/cli/process.h"

namespace fairway {
namespace {

constexpr off_t kLongestTail = off_t{256} << 10;
constexpr size_t kMostLogFiles = 20;
constexpr int kMostLinks = 40;  // as the kernel's

absl::Status FromErrno(const std::string& path) {
  return Error(absl::StatusCode::kUnavailable, "{}: {}", path, std::strerror(errno));
}

bool IsOurs(uid_t user) { return user == 0 || user == ::geteuid(); }

// Whether nobody but root and this user can have put the link there.
bool OnlyWeMadeIt(int folder, const struct stat& link) {
  struct stat facts {};
  if (::fstat(folder, &facts) != 0 || !IsOurs(link.st_uid)) return false;
  const bool others_write = (facts.st_mode & 022U) != 0 && (facts.st_mode & S_ISVTX) == 0;
  return IsOurs(facts.st_uid) && !others_write;
}

// Walks to a folder by one component after the other.
absl::StatusOr<OwnedFd> OpenFolder(const std::string& path) {
  constexpr int kFlags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  const auto parts = [](std::string_view text) {
    std::vector<std::string> out =
        absl::StrSplit(absl::string_view(text.data(), text.size()), '/', absl::SkipEmpty());
    std::ranges::reverse(out);
    return out;
  };
  std::vector<std::string> left = parts(path);  // the next one is the last
  OwnedFd at(::open(path.starts_with('/') ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (int links = 0; !left.empty();) {
    const std::string name = std::move(left.back());
    left.pop_back();
    OwnedFd next(::openat(at.get(), name.c_str(), kFlags));
    struct stat facts {};
    if (next.get() < 0 || ::fstat(next.get(), &facts) != 0) return FromErrno(path);
    if (!S_ISLNK(facts.st_mode)) {
      at = std::move(next);
      continue;
    }
    char target[PATH_MAX];
    const ssize_t size = ::readlinkat(next.get(), "", target, sizeof target);
    if (size <= 0) return FromErrno(path);
    if (!OnlyWeMadeIt(at.get(), facts) || ++links > kMostLinks) {
      return Error(absl::StatusCode::kPermissionDenied,
                   "{}: its part {} is a link that another user can have made, and is not "
                   "followed; name the folder that it leads to",
                   path, name);
    }
    const std::string_view text(target, static_cast<size_t>(size));
    if (text.starts_with('/')) at = OwnedFd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    std::ranges::move(parts(text), std::back_inserter(left));
  }
  OwnedFd folder(::openat(at.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return FromErrno(path);
  return folder;
}

// Whether it is a file of its own: a second name may be a link to a file elsewhere.
bool IsPlain(const struct stat& facts) { return S_ISREG(facts.st_mode) && facts.st_nlink == 1; }

// The files NAME.log that were written last, however many there are.
std::vector<std::string> LatestLogs(int folder) {
  using Log = std::pair<std::pair<time_t, long>, std::string>;
  std::vector<Log> latest;  // a heap; the oldest is its front
  const int again = ::fcntl(folder, F_DUPFD_CLOEXEC, 0);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(again), ::closedir);
  while (entries) {
    const dirent* const entry = ::readdir(entries.get());
    if (entry == nullptr) break;
    struct stat facts {};
    if (!std::string_view(entry->d_name).ends_with(".log") ||
        ::fstatat(folder, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0 || !IsPlain(facts))
      continue;
    latest.emplace_back(std::pair(facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec), entry->d_name);
    std::ranges::push_heap(latest, std::greater());
    if (latest.size() <= kMostLogFiles) continue;
    std::ranges::pop_heap(latest, std::greater());
    latest.pop_back();
  }
  std::ranges::sort(latest, std::greater());
  std::vector<std::string> out;
  for (Log& log : latest) out.push_back(std::move(log.second));
  return out;
}

absl::StatusOr<std::string> TailOf(int folder, const std::string& name) {
  // A pipe that has taken the file's place does not hold up its reader.
  const OwnedFd file(
      ::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat facts {};
  if (file.get() < 0 || ::fstat(file.get(), &facts) != 0) return FromErrno(name);
  if (!IsPlain(facts)) return Error(absl::StatusCode::kUnavailable, "{} is no plain file", name);
  const off_t begin = std::max<off_t>(0, facts.st_size - kLongestTail);
  std::string out(static_cast<size_t>(facts.st_size - begin), '\0');
  const ssize_t got = ::pread(file.get(), out.data(), out.size(), begin);
  if (got < 0) return FromErrno(name);
  out.resize(static_cast<size_t>(got));
  if (begin > 0) out.erase(0, out.find('\n') + 1);  // a line that is cut off
  return out;
}

}  // namespace

absl::StatusOr<std::string> LogsIn(const std::string& folder) {
  FAIRWAY_ASSIGN_OR_RETURN(const OwnedFd opened, OpenFolder(folder));
  const std::vector<std::string> files = LatestLogs(opened.get());
  if (files.empty()) return Error(absl::StatusCode::kNotFound, "{} has no NAME.log", folder);
  std::string out;
  for (const std::string& file : files) {
    const auto tail = TailOf(opened.get(), file);
    out +=
        fmt::format("==> {}/{} <==\n{}\n", folder, file, tail.ok() ? *tail : Text(tail.status()));
  }
  return out;
}

}  // namespace fairway
