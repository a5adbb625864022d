// SPDX-License-Identifier: Apache-2.0
// Sockets that somebody else has, who may close them at any time.
#ifndef FAIRWAY_TRANSPORT_SOCKETS_H_
#define FAIRWAY_TRANSPORT_SOCKETS_H_

#include <cstdint>

namespace fairway {

// What the kernel calls a socket; 0: none. A descriptor's number is used again, this is not.
uint64_t CookieOf(int fd);
// Ends its connection, unless `fd` is another's by now. Thread-safe.
void EndSocket(int fd, uint64_t cookie);

}  // namespace fairway

#endif  // FAIRWAY_TRANSPORT_SOCKETS_H_
