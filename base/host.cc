// SPDX-License-Identifier: Apache-2.0
#include "base/host.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <random>

#include <absl/strings/ascii.h>
#include <absl/strings/strip.h>
#include <fmt/format.h>

namespace fairway {
namespace {

// Returns the lowest limit in `file` of the control group at `path` and the groups around it, at
// most `most`. A container may see its own group as the root; then the given path does not exist.
int64_t LeastLimit(const std::string& root, std::string path, const char* file, int64_t most) {
  while (true) {
    std::ifstream in(root + path + '/' + file);
    int64_t limit = 0;  // "max" means no limit
    if (in >> limit && limit > 0) most = std::min(most, limit);
    if (path.empty()) return most;
    const size_t parent = path.rfind('/');
    path.resize(parent == std::string::npos ? 0 : parent);
  }
}

}  // namespace

std::string HostName() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string HostPort(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

absl::StatusOr<std::pair<std::string, int>> SplitHostPort(const std::string& host_port) {
  const size_t colon = host_port.rfind(':');
  if (colon == std::string::npos) return InvalidArgument("'{}' is not host:port", host_port);
  std::string host = host_port.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  int port = -1;
  const char* begin = host_port.data() + colon + 1;
  const char* end = host_port.data() + host_port.size();
  const auto [stop, error] = std::from_chars(begin, end, port);
  if (host.empty() || error != std::errc() || stop != end || port < 0 || port > 65535) {
    return InvalidArgument("'{}' is not host:port", host_port);
  }
  return std::make_pair(std::move(host), port);
}

absl::StatusOr<std::string> ControllerAddress(const std::string& text) {
  absl::string_view rest = absl::StripAsciiWhitespace(text);
  absl::ConsumePrefix(&rest, "grpc://");
  while (absl::ConsumeSuffix(&rest, "/")) {
  }
  std::string address(rest);
  const bool bracketed = address.starts_with('[');
  // A port begins at the colon after "]".
  if (address.find(':', bracketed ? address.find(']') : 0) == std::string::npos)
    address += ":29000";
  const auto parts = SplitHostPort(address);
  if (!parts.ok() || parts->second == 0 || parts->first.find_first_of("/[]") != std::string::npos ||
      (!bracketed && parts->first.find(':') != std::string::npos)) {
    return InvalidArgument(
        "'{}' is no address of a controller; expected host:port (1 to 65535), host (port 29000) or "
        "[v6]:port, with or without grpc://",
        text);
  }
  return HostPort(parts->first, parts->second);
}

void RaiseOpenFilesLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // if refused, the limit stays as it was
}

int64_t HostMemory(const std::string& groups, const std::string& root) {
  int64_t memory = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  std::ifstream in(groups);
  // "NUMBER:CONTROLLERS:PATH"; version 2 has one line, "0::PATH". cgroups(7).
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) memory = LeastLimit(root, path, "memory.max", memory);
    if (controllers == "memory")
      memory = LeastLimit(root + "/memory", path, "memory.limit_in_bytes", memory);
  }
  return memory;
}

MemoryMappings CountMemoryMappings() {
  MemoryMappings out;
  std::ifstream maps("/proc/self/maps");
  out.used =
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n');
  std::ifstream("/proc/sys/vm/max_map_count") >> out.most;
  return out;
}

ProcessUse UseOfThisProcess() {
  ProcessUse out;
  timespec cpu{};
  if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0)
    out.cpu = std::chrono::seconds(cpu.tv_sec) + std::chrono::nanoseconds(cpu.tv_nsec);
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> out.resident_bytes;
  out.resident_bytes *= ::sysconf(_SC_PAGESIZE);
  return out;
}

Incarnation RandomIncarnation() {
  std::random_device device;
  uint64_t value = 0;
  while (value == 0) value = uint64_t{device()} << 32 | device();
  return Incarnation(value);
}

std::string RandomSecret() {
  std::random_device device;
  std::string out;
  for (int i = 0; i < 4; ++i) {
    const uint32_t value = device();
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return out;
}

}  // namespace fairway
