// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_LIFE_H_
#define FAIRWAY_WORKER_LIFE_H_

namespace fairway {

// Ends this process (code 0, by _exit) as soon as the other end of the inherited pipe or socket
// `fd` is gone. The kernel closes it even if the parent is killed. Has its own thread, so that a
// busy event loop does not delay it.
void ExitWithParent(int fd);

}  // namespace fairway

#endif  // FAIRWAY_WORKER_LIFE_H_
