// SPDX-License-Identifier: Apache-2.0
// Who may speak plain text with this process: the user whose process this is, and root, over this
// host's loopback. All others need TLS (docs/design/0067-tls.md).
#ifndef FAIRWAY_IDENTITY_PLAIN_TEXT_H_
#define FAIRWAY_IDENTITY_PLAIN_TEXT_H_

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace fairway {

// Whether it is an IP address, rather than a name.
bool IsAddress(const std::string& host);

// A port without TLS may listen at `host` only if other hosts cannot reach it there: a loopback
// address, or a name all of whose addresses are. FAILED_PRECONDITION says what to do.
// INVALID_ARGUMENT: `host` is no address, and no name of one.
absl::Status CheckPlainBind(const std::string& host);

// The user of the other end of `fd`, a connected TCP socket whose both ends are on this host: whose
// process made that socket. NOT_FOUND: there is no such end. It has closed, or is on another host
// or in another network namespace. An end that its process has closed belongs to nobody, though
// what it sent may still be read. UNAVAILABLE: the kernel does not tell.
// `look_through`: looks through all sockets, as on a kernel that answers no questions about one.
absl::StatusOr<uid_t> UserOfPeer(int fd, bool look_through = false);

// Whether the kernel tells of a socket when it is asked for that one. Asked until there is an
// answer: without free descriptors there is none.
bool KernelAnswers();

// Whether the other end of `fd` may speak plain text. PERMISSION_DENIED: it is another user's, or
// may be, since this process's user namespace shows it several users as one; else as UserOfPeer. A
// socket of the Unix domain is its path's owner's affair: OK.
absl::Status CheckPlainPeer(int fd);

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_PLAIN_TEXT_H_
