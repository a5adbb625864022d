// SPDX-License-Identifier: Apache-2.0
#include "worker/life.h"

#include <unistd.h>

#include <cerrno>
#include <thread>

#include "worker/process/exit_codes.h"

namespace fairway {

void ExitWithParent(int fd) {
  std::thread([fd] {
    char byte;
    while (true) {
      const ssize_t got = ::read(fd, &byte, 1);
      if (got > 0 || (got < 0 && errno == EINTR)) continue;
      ::_exit(kExitOk);
    }
  }).detach();
}

}  // namespace fairway
