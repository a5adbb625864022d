// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_LIFE_H_
#define FAIRWAY_WORKER_LIFE_H_

namespace fairway {

// Ends this process (code 0, by _exit) as soon as the other end of the inherited pipe or socket
// `fd` is gone, which the kernel sees to also when the parent is killed. Its own thread, so that a
// busy event loop does not matter.
void ExitWithParent(int fd);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_LIFE_H_
