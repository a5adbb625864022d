// SPDX-License-Identifier: Apache-2.0
#include "worker/life.h"

#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "worker/process/exit_codes.h"

namespace fairway {

void ExitWithParent(int fd, std::function<void(char)> on_byte) {
  std::thread([fd, on_byte = std::move(on_byte)] {
    char byte;
    while (true) {
      const ssize_t got = ::read(fd, &byte, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got > 0) {
        if (on_byte) on_byte(byte);
        continue;
      }
      ::_exit(kExitOk);
    }
  }).detach();
}

}  // namespace fairway
