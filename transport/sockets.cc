// SPDX-License-Identifier: Apache-2.0
#include "transport/sockets.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace fairway {

uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return ::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

void EndSocket(int fd, uint64_t cookie) {
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);  // so that it stays the same meanwhile
  if (own < 0) return;
  if (CookieOf(own) == cookie) ::shutdown(own, SHUT_RDWR);
  ::close(own);
}

}  // namespace fairway
