// SPDX-License-Identifier: Apache-2.0
#include "client/cli/port_owner.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace fairway {
namespace {

namespace fs = std::filesystem;

// An address as 16 bytes; those of version 4 are mapped.
using Address = std::array<uint8_t, 16>;

bool IsAny(const Address& address) {
  Address zero{};
  if (address == zero) return true;
  zero[10] = zero[11] = 0xff;
  return address == zero;
}

Address Mapped(const in_addr& four) {
  Address out{};
  out[10] = out[11] = 0xff;
  std::memcpy(out.data() + 12, &four, 4);
  return out;
}

std::optional<Address> Parsed(const std::string& host) {
  in_addr four{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return Mapped(four);
  Address out{};
  if (::inet_pton(AF_INET6, host.c_str(), out.data()) == 1) return out;
  return std::nullopt;
}

// As /proc/net/tcp writes it: words of 32 bits of this host, as hexadecimal digits.
std::optional<Address> OfDigits(std::string_view digits) {
  Address bytes{};
  if (digits.size() != 8 && digits.size() != 32) return std::nullopt;
  for (size_t at = 0; at < digits.size(); at += 8) {
    uint32_t word = 0;
    std::from_chars(digits.data() + at, digits.data() + at + 8, word, 16);
    std::memcpy(bytes.data() + at / 2, &word, 4);
  }
  if (digits.size() == 32) return bytes;
  in_addr four{};
  std::memcpy(&four, bytes.data(), 4);
  return Mapped(four);
}

// The inode of the socket that listens there; empty: none.
absl::StatusOr<std::string> ListenerOf(const Address& at, int port) {
  bool told = false;
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(table);
    std::string line;
    told = (std::getline(in, line) && !line.empty()) || told;
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retries, user, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retries >> user >>
          timeout >> inode;
      const size_t colon = local.find(':');
      if (state != "0A" || colon == std::string::npos) continue;  // LISTEN
      int found = 0;
      std::from_chars(local.data() + colon + 1, local.data() + local.size(), found, 16);
      const auto address = OfDigits(std::string_view(local).substr(0, colon));
      if (found == port && address && (*address == at || IsAny(*address) || IsAny(at)))
        return inode;
    }
  }
  if (!told) return Error(absl::StatusCode::kUnavailable, "/proc/net/tcp cannot be read");
  return "";
}

// The process that has the socket open.
PortOwner HolderOf(const std::string& inode) {
  const std::string wanted = "socket:[" + inode + "]";
  std::error_code error;
  for (fs::directory_iterator process("/proc", error), last; !error && process != last;
       process.increment(error)) {
    const std::string name = process->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code gone;
    for (fs::directory_iterator it(process->path() / "fd", gone), end; !gone && it != end;
         it.increment(gone)) {
      std::error_code unread;
      if (fs::read_symlink(it->path(), unread).string() != wanted) continue;
      const std::string file =
          fs::read_symlink(process->path() / "exe", unread).filename().string();
      return {static_cast<pid_t>(std::stol(name)), file.substr(0, file.find(" (deleted)"))};
    }
  }
  return {};
}

}  // namespace

absl::StatusOr<std::optional<PortOwner>> FindPortOwner(const std::string& host, int port) {
  const auto address = Parsed(host);
  if (!address) return InvalidArgument("'{}' is not an IP address", host);
  FAIRWAY_ASSIGN_OR_RETURN(const std::string inode, ListenerOf(*address, port));
  if (inode.empty()) return std::optional<PortOwner>();
  return std::optional<PortOwner>(HolderOf(inode));
}

}  // namespace fairway
