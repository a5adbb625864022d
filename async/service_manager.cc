// SPDX-License-Identifier: Apache-2.0
#include "async/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <absl/strings/numbers.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace fairway {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

std::string Take(const char* name) {
  const char* const value = ::getenv(name);
  std::string out = value == nullptr ? "" : value;
  ::unsetenv(name);
  return out;
}

// Sends one datagram. Returns 0, or the number of the error.
int Send(const std::string& to, std::string_view message) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (to.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  std::memcpy(address.sun_path, to.data(), to.size());
  if (to.front() == '@') address.sun_path[0] = '\0';
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + to.size());
  const bool sent = ::sendto(fd, message.data(), message.size(), MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&address), size) >= 0;
  const int error = sent ? 0 : errno;
  ::close(fd);
  return error;
}

}  // namespace

ServiceManager::ServiceManager(EventLoop& loop) : loop_(loop), socket_(Take("NOTIFY_SOCKET")) {
  const std::string time = Take("WATCHDOG_USEC"), whose = Take("WATCHDOG_PID");
  uint64_t count = 0;
  if (!absl::SimpleAtoi(time, &count) || count == 0) return;
  if (!whose.empty() && whose != std::to_string(::getpid())) return;
  constexpr uint64_t kDay = 86'400'000'000;
  watchdog_ = std::chrono::duration_cast<milliseconds>(microseconds(std::min(count, kDay)));
}

void ServiceManager::Ready() {
  if (ready_) return;
  ready_ = true;
  Tell("READY=1");
  if (!socket_.empty() && watchdog_.count() > 0) KeepAlive();
}

void ServiceManager::Stopping(milliseconds limit) {
  Tell(fmt::format("STOPPING=1\nEXTEND_TIMEOUT_USEC={}", microseconds(limit).count()));
}

void ServiceManager::KeepAlive() {
  Tell("WATCHDOG=1");
  loop_.PostAfter(std::max(watchdog_ / 3, milliseconds(1)), "watchdog", [this] { KeepAlive(); });
}

void ServiceManager::Tell(const std::string& message) {
  if (socket_.empty()) return;
  if (const int error = Send(socket_, message); error != 0) {
    spdlog::warn("cannot tell the service manager {} at NOTIFY_SOCKET={}: {}",
                 message.substr(0, message.find('\n')), socket_, std::strerror(error));
  }
}

}  // namespace fairway
