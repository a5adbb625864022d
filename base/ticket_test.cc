// SPDX-License-Identifier: Apache-2.0
#include "base/ticket.h"

#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using testing::HasSubstr;

constexpr PortKey kKey{0x0123456789abcdef, 0xfedcba9876543210};

absl::Status Check(const Ticket& shown, uint64_t transfer = 7, uint64_t receiver = 8,
                   const PortKey& key = kKey) {
  return CheckTicket(key, TransferId(transfer), Incarnation(receiver), shown);
}

TEST(Tickets, AreForOnePortOneTransferAndOneReceiver) {
  const Ticket right = TicketFor(kKey, TransferId(7), Incarnation(8));
  EXPECT_EQ(Check(right), absl::OkStatus());
  for (const absl::Status& refused :
       {Check(right, 6), Check(right, 7, 9), Check(right, 8, 7), Check(right, 7, 8, {1, 2}),
        Check({right.first ^ 1, right.second}),
        Check({right.first, right.second ^ uint64_t{1} << 63}), Check({right.second, right.first}),
        Check(GangTicket(kKey))}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(Text(refused), HasSubstr("with a wrong ticket"));
  }
  EXPECT_THAT(Text(Check({})),
              HasSubstr("incarnation 8 asked for bytes of transfer 7 with no ticket"));
}

TEST(Tickets, ThoseOfGangsOpenNoTransferAndNoOtherPort) {
  const Ticket right = GangTicket(kKey);
  EXPECT_EQ(CheckGangTicket(right, Incarnation(8), GangTicket(kKey)), absl::OkStatus());
  for (const Ticket& wrong :
       {Ticket{}, GangTicket({1, 2}), TicketFor(kKey, TransferId(1), Incarnation(8))}) {
    EXPECT_EQ(CheckGangTicket(right, Incarnation(8), wrong).code(),
              absl::StatusCode::kPermissionDenied);
  }
}

// By another implementation, for the key 00..0f and the message 00..0f.
TEST(Tickets, AreSipHash24Of128Bits) {
  unsigned char bytes[16];
  for (unsigned char i = 0; i < 16; ++i) bytes[i] = i;
  PortKey key;
  uint64_t message[2];
  std::memcpy(&key, bytes, 16);
  std::memcpy(message, bytes, 16);
  const Ticket ticket = TicketFor(key, TransferId(message[0]), Incarnation(message[1]));
  constexpr unsigned char kExpected[] = {0x6e, 0xe2, 0xa4, 0xca, 0x67, 0xb0, 0x54, 0xbb,
                                         0xfd, 0x33, 0x15, 0xbf, 0x85, 0x23, 0x05, 0x77};
  EXPECT_EQ(std::memcmp(&ticket, kExpected, sizeof(kExpected)), 0);
}

TEST(Tickets, AnyThreadMakesTheSame) {
  const Ticket here = GangTicket(kKey);
  Ticket there;
  std::thread([&] { there = GangTicket(kKey); }).join();
  EXPECT_EQ(there, here);
}

TEST(Tickets, KeysAreRandom) {
  std::set<std::pair<uint64_t, uint64_t>> keys;
  for (int i = 0; i < 100; ++i) {
    const PortKey key = RandomPortKey();
    EXPECT_TRUE(key);
    keys.emplace(key.first, key.second);
  }
  EXPECT_EQ(keys.size(), 100u);
}

}  // namespace
}  // namespace fairway
