// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_LIFE_H_
#define FAIRWAY_WORKER_LIFE_H_

#include <functional>

namespace fairway {

// Ends this process (code 0, by _exit) as soon as the other end of the inherited pipe or socket
// `fd` is gone. The kernel closes it even if the parent is killed. Has its own thread, so that a
// busy event loop does not delay it. `on_byte` gets, on that thread, each byte that the parent
// sends.
void ExitWithParent(int fd, std::function<void(char)> on_byte = nullptr);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_LIFE_H_
