// SPDX-License-Identifier: Apache-2.0
#include "identity/plain_text.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

namespace fairway {
namespace {

// One end of a connection; IPv4 addresses as IPv6 has them (::ffff:127.0.0.1).
struct End {
  in6_addr address{};
  in_port_t port = 0;  // in network order

  friend bool operator==(const End& a, const End& b) {
    return a.port == b.port && std::memcmp(&a.address, &b.address, sizeof a.address) == 0;
  }
};

bool IsV4(const in6_addr& address) { return IN6_IS_ADDR_V4MAPPED(&address); }

in6_addr Mapped(const void* v4) {
  in6_addr out{};
  out.s6_addr[10] = out.s6_addr[11] = 0xff;
  std::memcpy(&out.s6_addr[12], v4, sizeof(in_addr));
  return out;
}

bool IsLoopback(const sockaddr* address) {
  in6_addr parsed{};
  if (address->sa_family == AF_INET) {
    parsed = Mapped(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  } else if (address->sa_family == AF_INET6) {
    parsed = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  } else {
    return false;
  }
  return IN6_IS_ADDR_LOOPBACK(&parsed) || (IsV4(parsed) && parsed.s6_addr[12] == 127);
}

absl::StatusOr<End> EndOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return End{Mapped(&v4.sin_addr), v4.sin_port};
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    return End{v6.sin6_addr, v6.sin6_port};
  }
  return InvalidArgument("it is no TCP socket");
}

// What the kernel has of a socket.
struct Owner {
  uid_t uid = 0;
  uint64_t inode = 0;  // 0: no process has it any more, and then `uid` is nobody's
};

absl::Status NoSuchEnd() {
  return Error(
      absl::StatusCode::kNotFound,
      "its end of the connection is not open on this host (it has closed already, or comes "
      "from another network namespace)");
}

// Asks for one socket by its addresses (sock_diag(7)): a look-up in the kernel's table, whatever
// the number of sockets. UNAVAILABLE: this kernel does not answer such questions;
// RESOURCE_EXHAUSTED: it cannot be asked now.
absl::StatusOr<Owner> AskKernel(const End& theirs, const End& ours) {
  const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (fd < 0) {
    const bool full = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
    return Error(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable, "{}",
                 std::strerror(errno));
  }
  const timeval patience{.tv_sec = 1,
                         .tv_usec = 0};  // it answers within send(); in case it does not
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  struct {
    nlmsghdr header;
    inet_diag_req_v2 what;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  const bool v4 = IsV4(theirs.address);
  request.what.sdiag_family = v4 ? AF_INET : AF_INET6;
  request.what.sdiag_protocol = IPPROTO_TCP;
  request.what.idiag_states = ~0U;
  request.what.id.idiag_sport = theirs.port;
  request.what.id.idiag_dport = ours.port;
  const size_t from = v4 ? 12 : 0;
  std::memcpy(request.what.id.idiag_src, &theirs.address.s6_addr[from], sizeof(in6_addr) - from);
  std::memcpy(request.what.id.idiag_dst, &ours.address.s6_addr[from], sizeof(in6_addr) - from);
  request.what.id.idiag_cookie[0] = request.what.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  alignas(nlmsghdr) char answer[1024];
  const bool sent = ::send(fd, &request, sizeof request, 0) == sizeof request;
  const ssize_t got = sent ? ::recv(fd, answer, sizeof answer, 0) : -1;
  const int error = errno;
  ::close(fd);
  const auto* const header = reinterpret_cast<const nlmsghdr*>(answer);
  if (got < static_cast<ssize_t>(sizeof(nlmsghdr)))
    return absl::UnavailableError(std::strerror(error));
  if (header->nlmsg_type == SOCK_DIAG_BY_FAMILY &&
      got >= static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg)))) {
    const auto* const found = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
    // Without such a connection it tells of a socket that listens there.
    if (found->id.idiag_dport == ours.port) return Owner{found->idiag_uid, found->idiag_inode};
  }
  // The kernel says the same of a socket that is not there and of a question that it does not know.
  return NoSuchEnd();
}

// An end as /proc/net/tcp (or tcp6) has it: words of hexadecimal digits in the host's byte order.
End EndOf(const std::string& text) {
  End out;
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return out;
  uint32_t words[4] = {};
  const size_t count = colon / 8;
  for (size_t i = 0; i < count && i < 4; ++i)
    words[i] = static_cast<uint32_t>(std::stoul(text.substr(8 * i, 8), nullptr, 16));
  if (count == 1) out.address = Mapped(words);
  if (count == 4) std::memcpy(&out.address, words, sizeof out.address);
  out.port = htons(static_cast<uint16_t>(std::stoul(text.substr(colon + 1), nullptr, 16)));
  return out;
}

// Looks through all sockets, where the kernel answers no questions about one.
absl::StatusOr<Owner> LookThrough(const End& theirs, const End& ours) {
  bool read = false;
  for (const char* const path : {"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    read = static_cast<bool>(std::getline(file, line)) || read;  // the titles
    // sl local remote state queues timer retransmissions uid timeout inode
    std::string word, local, remote;
    while (file >> word >> local >> remote) {
      Owner owner;
      file >> word >> word >> word >> word >> owner.uid >> word >> owner.inode;
      std::getline(file, line);
      if (EndOf(local) == theirs && EndOf(remote) == ours) return owner;
    }
  }
  if (!read) return absl::UnavailableError("/proc/net/tcp cannot be read");
  return NoSuchEnd();
}

// Whether the kernel tells of a socket: it must know the peer of a connection that is certainly
// there. nullopt: none can be made now.
std::optional<bool> TryKernel() {
  const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int connecting = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_storage here{};
  here.ss_family = AF_INET;
  reinterpret_cast<sockaddr_in&>(here).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(sockaddr_in);
  auto* const any = reinterpret_cast<sockaddr*>(&here);
  const bool made = listening >= 0 && connecting >= 0;
  bool answers = made && ::bind(listening, any, size) == 0 && ::listen(listening, 1) == 0 &&
                 ::getsockname(listening, any, &size) == 0;
  sockaddr_storage from{};
  if (answers) {
    ::connect(connecting, any, size);
    size = sizeof from;
    answers = ::getsockname(connecting, reinterpret_cast<sockaddr*>(&from), &size) == 0;
  }
  bool full = !made;
  if (answers) {
    const auto owner = AskKernel(*EndOf(from), *EndOf(here));
    full = absl::IsResourceExhausted(owner.status());
    answers = owner.ok() && owner->inode != 0;
  }
  for (const int fd : {connecting, listening}) {
    if (fd >= 0) ::close(fd);
  }
  return full ? std::nullopt : std::optional(answers);
}

std::string FirstLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Whether this process sees several users as `user`: a user namespace shows those that it does not
// know as one (user_namespaces(7)).
bool IsSeveralUsers(uid_t user) {
  const std::string unknown = FirstLine("/proc/sys/kernel/overflowuid");
  if (std::to_string(user) != (unknown.empty() ? "65534" : unknown)) return false;
  // Its users from, those outside from, how many: all in the namespace in which a host begins.
  std::istringstream map(FirstLine("/proc/thread-self/uid_map"));
  uint64_t inside = 1, outside = 1, count = 0;
  map >> inside >> outside >> count;
  return inside != 0 || outside != 0 || count < UINT32_MAX;
}

}  // namespace

bool IsAddress(const std::string& host) {
  in6_addr parsed;
  return ::inet_pton(AF_INET, host.c_str(), &parsed) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

absl::Status CheckPlainBind(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0)
    return InvalidArgument("'{}' is no address: {}", host, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (IsLoopback(one->ai_addr)) continue;
    return Error(absl::StatusCode::kFailedPrecondition,
                 "other hosts can reach {}, and without certificates this port speaks plain text: "
                 "make some with `fairway init DIRECTORY` and give them by --tls-ca, "
                 "--tls-certificate and --tls-key, or listen at 127.0.0.1",
                 host);
  }
  return absl::OkStatus();
}

bool KernelAnswers() {
  static std::atomic<int> known{-1};  // 0 or 1 once it is
  if (known < 0) {
    const std::optional<bool> answers = TryKernel();
    if (!answers) return false;
    known = *answers ? 1 : 0;
  }
  return known == 1;
}

absl::StatusOr<uid_t> UserOfPeer(int fd, bool look_through) {
  sockaddr_storage here{}, there{};
  socklen_t size = sizeof here;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0) return NoSuchEnd();
  size = sizeof there;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) != 0) return NoSuchEnd();
  FAIRWAY_ASSIGN_OR_RETURN(const End ours, EndOf(here));
  FAIRWAY_ASSIGN_OR_RETURN(const End theirs, EndOf(there));
  const bool ask = !look_through && KernelAnswers();
  FAIRWAY_ASSIGN_OR_RETURN(const Owner owner,
                           ask ? AskKernel(theirs, ours) : LookThrough(theirs, ours));
  if (owner.inode == 0) return NoSuchEnd();
  return owner.uid;
}

absl::Status CheckPlainPeer(int fd) {
  int family = AF_UNSPEC;
  socklen_t size = sizeof family;
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_UNIX)
    return absl::OkStatus();
  FAIRWAY_ASSIGN_OR_RETURN(const uid_t user, UserOfPeer(fd));
  if (user != 0 && user != ::geteuid()) {
    return Error(
        absl::StatusCode::kPermissionDenied,
        "it is user {}'s, and plain text is for user {}, whose process this is; others need "
        "TLS (`fairway init`)",
        user, ::geteuid());
  }
  if (IsSeveralUsers(user)) {
    return Error(
        absl::StatusCode::kPermissionDenied,
        "this process runs in a user namespace that shows it all users whom it does not "
        "know as {}, so it may be anybody's; others than root need TLS (`fairway init`), or "
        "run the daemons as a user whom the namespace knows",
        user);
  }
  return absl::OkStatus();
}

}  // namespace fairway
