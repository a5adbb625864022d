// SPDX-License-Identifier: Apache-2.0
#include "base/ticket.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "base/host.h"
#include "base/planted.h"

namespace fairway {
namespace {

struct Free {
  void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

// A process without it could neither give tickets nor check them.
[[noreturn]] void NoSipHash() {
  std::fputs(
      "OpenSSL has no SIPHASH, of which tickets are made: is its default provider turned off?\n",
      stderr);
  std::abort();
}

// SipHash-2-4 of 128 bits, a pseudorandom function for short messages under a secret key.
Ticket Mac(const PortKey& key, uint64_t what, uint64_t who) {
  thread_local const std::unique_ptr<EVP_MAC_CTX, Free> context = [] {
    const std::unique_ptr<EVP_MAC, Free> mac(EVP_MAC_fetch(nullptr, "SIPHASH", nullptr));
    return std::unique_ptr<EVP_MAC_CTX, Free>(EVP_MAC_CTX_new(mac.get()));
  }();
  unsigned char secret[sizeof(PortKey)], message[16], out[sizeof(Ticket)];
  std::memcpy(secret, &key, sizeof(secret));
  std::memcpy(message, &what, 8);
  std::memcpy(message + 8, &who, 8);
  size_t size = 0;
  if (context == nullptr || EVP_MAC_init(context.get(), secret, sizeof(secret), nullptr) != 1 ||
      EVP_MAC_update(context.get(), message, sizeof(message)) != 1 ||
      EVP_MAC_final(context.get(), out, &size, sizeof(out)) != 1 || size != sizeof(out))
    NoSipHash();
  Ticket ticket;
  std::memcpy(&ticket, out, sizeof(ticket));
  return ticket;
}

bool Same(const Ticket& shown, const Ticket& right) {
  return CRYPTO_memcmp(&shown, &right, sizeof(Ticket)) == 0;
}

absl::Status Refused(Incarnation from, const std::string& what, const Ticket& shown) {
  return Error(
      absl::StatusCode::kPermissionDenied,
      "incarnation {} asked for {} with {} ticket, so it gets nothing. The controller gives "
      "tickets to those who are to ask, and to nobody else",
      from, what, shown ? "a wrong" : "no");
}

}  // namespace

PortKey RandomPortKey() {
  const std::string random = RandomSecret();
  PortKey key;
  static_assert(sizeof(key) == 16);
  std::memcpy(&key, random.data(), sizeof(key));
  if (!key) return RandomPortKey();
  GangTicket(key);  // a process that cannot make tickets ends here, at its start
  return key;
}

Ticket TicketFor(const PortKey& key, TransferId transfer, Incarnation receiver) {
  return Mac(key, transfer.value, receiver.value);
}

// No transfer has the id 0.
Ticket GangTicket(const PortKey& key) { return Mac(key, 0, 0); }

absl::Status CheckTicket(const PortKey& key, TransferId transfer, Incarnation receiver,
                         const Ticket& shown) {
  if (Same(shown, TicketFor(key, transfer, receiver)) || Planted(Bug::kAnyTicket))
    return absl::OkStatus();
  return Refused(receiver, fmt::format("bytes of transfer {}", transfer), shown);
}

absl::Status CheckGangTicket(const Ticket& right, Incarnation from, const Ticket& shown) {
  if (Same(shown, right)) return absl::OkStatus();
  return Refused(from, "the exchange of gangs", shown);
}

}  // namespace fairway
