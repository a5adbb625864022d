// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/shared_lanes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string Shown(const absl::StatusOr<std::optional<LaneReader::Front>>& front) {
  if (!front.ok()) return std::string(absl::StatusCodeToString(front.status().code()));
  if (!front->has_value()) return "none";
  const PushName& name = (*front)->name;
  return fmt::format("{}.{}.{}: {}", name.launch, name.round, name.part, (*front)->bytes);
}

class SharedLanesTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(owner_, nullptr); }
  std::unique_ptr<LaneWriter> Writer(uint64_t sender) {
    auto writer = LaneWriter::Open(owner_->AddressFor(Incarnation(sender)).value());
    EXPECT_TRUE(writer.ok()) << writer.status();
    return *std::move(writer);
  }

  std::unique_ptr<SharedLanes> owner_ = SharedLanes::Make();
};

TEST_F(SharedLanesTest, EachSenderHasALaneOfFourSlots) {
  auto one = Writer(1), two = Writer(2);
  LaneReader* of_one = owner_->LaneOf(Incarnation(1));
  LaneReader* of_two = owner_->LaneOf(Incarnation(2));
  EXPECT_EQ(owner_->LaneOf(Incarnation(3)), nullptr);
  EXPECT_EQ(Shown(of_one->Peek()), "none");
  for (uint64_t launch = 1; launch <= kLaneSlots; ++launch) {
    ASSERT_TRUE(one->HasRoom());
    EXPECT_TRUE(one->Write({launch, 2, -3, {}}, "abc"));
  }
  EXPECT_FALSE(one->HasRoom());
  EXPECT_TRUE(two->HasRoom());
  EXPECT_EQ(Shown(of_two->Peek()), "none");
  const std::string longest(kMaxPushBytes, 'x');
  for (uint64_t launch = 1; launch <= 100; ++launch) {
    EXPECT_EQ(Shown(of_one->Peek()),
              fmt::format("{}.2.-3: {}", launch, launch > 4 ? longest : "abc"));
    EXPECT_FALSE(one->HasRoom());
    of_one->Pop();
    ASSERT_TRUE(one->HasRoom());
    EXPECT_TRUE(one->Write({launch + kLaneSlots, 2, -3, {}}, longest));
  }
  // A sender that comes anew goes on where it was.
  one = Writer(1);
  EXPECT_EQ(owner_->LaneOf(Incarnation(1)), of_one);
  EXPECT_FALSE(one->HasRoom());
  of_one->Pop();
  EXPECT_TRUE(one->Write({200, 1, 1, {}}, ""));
  for (uint64_t i = 1; i < kLaneSlots; ++i) of_one->Pop();
  EXPECT_EQ(Shown(of_one->Peek()), "200.1.1: ");
}

TEST_F(SharedLanesTest, AllThatHaveALaneHearWhatTheOwnerBroadcasts) {
  auto one = Writer(1), two = Writer(2);
  EXPECT_TRUE(owner_->LaneOf(Incarnation(1))->SenderListens());
  uint32_t at_one = 0, at_two = 0;
  const PushName name{7, 2, -3, {}};
  EXPECT_EQ(one->Heard(name, at_one), std::nullopt);
  owner_->Broadcast(2, name, "abc");
  EXPECT_EQ(one->Heard(name, at_one), "abc");
  EXPECT_EQ(two->Heard(name, at_two), "abc");
  EXPECT_EQ(at_one, 2u);
  for (const PushName& other : {PushName{8, 2, -3, {}}, {7, 1, -3, {}}, {7, 2, 3, {}}})
    EXPECT_EQ(one->Heard(other, at_one), std::nullopt);
  const std::string longest(kMaxBroadcastBytes, 'x');
  owner_->Broadcast(3, {7, 3, -3, {}}, longest);
  EXPECT_EQ(one->Heard({7, 3, -3, {}}, at_one), longest);
  EXPECT_EQ(one->Heard(name, at_one), "abc");  // it is still in its slot
  owner_->Broadcast(2, {8, 1, 0, {}}, "");
  EXPECT_EQ(one->Heard(name, at_one), std::nullopt);
  EXPECT_EQ(one->Heard({8, 1, 0, {}}, at_one), "");
}

// Rounds of one launch, one after the other in one slot.
TEST_F(SharedLanesTest, WhatIsHeardIsOfTheRoundThatWasAskedFor) {
  constexpr uint32_t kRounds = 500'000;
  auto one = Writer(1);
  std::atomic<uint32_t> heard = 0;
  std::thread owner([&] {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      owner_->Broadcast(0, {7, round, 0, {}}, {reinterpret_cast<const char*>(&round), 4});
      while (heard.load() < round) std::this_thread::yield();
    }
  });
  uint32_t slot = 0, wrong = 0;
  for (uint32_t round = 1; round <= kRounds; ++round) {
    std::optional<std::string_view> bytes;
    while (!bytes.has_value()) bytes = one->Heard({7, round, 0, {}}, slot);
    wrong += *reinterpret_cast<const volatile uint32_t*>(bytes->data()) == round ? 0 : 1;
    heard = round;
  }
  owner.join();
  EXPECT_EQ(wrong, 0u);
}

TEST_F(SharedLanesTest, WhoHasUnmappedItsLaneDoesNotListen) {
  auto one = Writer(1);
  LaneReader* const lane = owner_->LaneOf(Incarnation(1));
  EXPECT_TRUE(lane->SenderListens());
  one.reset();
  EXPECT_FALSE(lane->SenderListens());
  one = Writer(1);
  EXPECT_TRUE(lane->SenderListens());
}

TEST_F(SharedLanesTest, TheBellWakesWithTheLastOfThoseThatAreWaitedFor) {
  auto one = Writer(1), two = Writer(2);
  const auto bell = owner_->bell();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) {
    const uint32_t seen = bell->rung();
    std::thread waiter([&] {
      // One ring alone may wake it if it comes before the wait.
      while (bell->rung() - seen < 2) bell->Wait(seen, 2, milliseconds(200000));
    });
    EXPECT_TRUE(one->Write({1, 1, 1, {}}, "x"));
    EXPECT_TRUE(two->Write({1, 1, 1, {}}, "x"));
    waiter.join();
    owner_->LaneOf(Incarnation(1))->Pop();
    owner_->LaneOf(Incarnation(2))->Pop();
    // What has come before the wait does not let it sleep.
    bell->Wait(seen, 1, milliseconds(200000));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(100000));
  bell->Wait(bell->rung(), 1, milliseconds(1));  // nobody rings for ever
}

TEST_F(SharedLanesTest, OneCallWakesAllThatSleepTogether) {
  auto one = Writer(1), two = Writer(2);
  std::atomic<int> awake = 0;
  const uint32_t seen = owner_->all().rung();
  std::vector<std::thread> sleepers;
  for (Bell* bell : {&one->all(), &two->all(), &owner_->all()}) {
    sleepers.emplace_back([&, bell] {
      while (bell->rung() == seen) bell->Sleep(seen, milliseconds(200000));
      ++awake;
    });
  }
  using Rings = LaneWriter::Rings;
  const uint32_t rung = owner_->bell()->rung();
  EXPECT_TRUE(one->Write({1, 1, 1, {}}, "x", Rings::kAll));
  EXPECT_EQ(owner_->bell()->rung(), rung);
  EXPECT_EQ(awake, 0) << "a push alone wakes nobody";
  two->all().WakeAll();
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_TRUE(two->Write({1, 1, 1, {}}, "x", Rings::kBoth));
  EXPECT_EQ(owner_->bell()->rung(), rung + 1);
  EXPECT_TRUE((*owner_->LaneOf(Incarnation(1))->Peek())->rings_for_all);
  EXPECT_TRUE((*owner_->LaneOf(Incarnation(2))->Peek())->rings_for_all);
  owner_->cpu() = 3;
  EXPECT_EQ(one->cpu(), 3u);
  EXPECT_TRUE(Writer(3)->Write({1, 1, 1, {}}, "x"));
  EXPECT_FALSE((*owner_->LaneOf(Incarnation(3))->Peek())->rings_for_all);
}

TEST_F(SharedLanesTest, ProcessesPassEachOtherMillionsOfBytes) {
  const std::string there = owner_->AddressFor(Incarnation(1)).value();
  auto back = SharedLanes::Make();
  const std::string here = back->AddressFor(Incarnation(2)).value();
  const auto run = [](SharedLanes& mine, Incarnation peer, const std::string& address, char first) {
    auto writer = LaneWriter::Open(address);
    if (!writer.ok()) return false;
    LaneReader* reader = mine.LaneOf(peer);
    const auto bell = mine.bell();
    for (uint64_t i = 1; i <= 2000; ++i) {
      if (!(*writer)->Write({i, 1, 0, {}}, std::string(i * 7 % 3000, first))) return false;
      while (true) {
        const uint32_t seen = bell->rung();
        const auto front = reader->Peek();
        if (!front.ok()) return false;
        if (front->has_value()) {
          const std::string want(i * 7 % 3000, static_cast<char>('a' + 'b' - first));
          if ((*front)->name.launch != i || (*front)->bytes != want) return false;
          break;
        }
        bell->Wait(seen, 1, milliseconds(10000));
      }
      reader->Pop();
    }
    return true;
  };
  const pid_t child = fork();
  if (child == 0) _exit(run(*back, Incarnation(2), there, 'b') ? 0 : 1);
  // The child's memory is that of this process, under another pid.
  EXPECT_TRUE(run(*owner_, Incarnation(1), here, 'a'));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A sender that writes whatever it likes.
TEST_F(SharedLanesTest, ALaneThatIsBrokenIsNotReadAnyMore) {
  const auto map = [&](uint64_t sender) {
    const std::string address = owner_->AddressFor(Incarnation(sender)).value();
    int32_t fd = 0;
    std::memcpy(&fd, address.data() + 8, sizeof fd);
    EXPECT_EQ(ftruncate(fd, 0), -1) << "the file could be taken away under its owner";
    EXPECT_EQ(ftruncate(fd, 2 * lanes::kLaneBytes), -1);
    void* mapped = mmap(nullptr, lanes::kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    return static_cast<lanes::Lane*>(mapped);
  };
  lanes::Lane* lane = map(1);
  LaneReader* reader = owner_->LaneOf(Incarnation(1));
  lane->written = 1;
  lane->slots[0].bytes = kMaxPushBytes;
  EXPECT_EQ(reader->Peek().value()->bytes.size(), kMaxPushBytes);
  lane->slots[0].bytes = kMaxPushBytes + 1;
  EXPECT_EQ(Shown(reader->Peek()), "DATA_LOSS");
  lane->slots[0].bytes = 1;
  EXPECT_EQ(Shown(reader->Peek()), "DATA_LOSS") << "it stays broken";
  munmap(lane, lanes::kPage);

  lane = map(2);
  for (const uint64_t written : {kLaneSlots + 1, ~uint64_t{0}}) {
    lane->written = written;
    EXPECT_EQ(Shown(owner_->LaneOf(Incarnation(2))->Peek()), "DATA_LOSS");
  }
  munmap(lane, lanes::kPage);
  owner_->TakeBack([](Incarnation, LaneReader&) { return true; });
  EXPECT_EQ(owner_->LaneOf(Incarnation(1)), nullptr);
}

TEST_F(SharedLanesTest, NothingButTheOwnersFilesIsOpened) {
  const std::string good = owner_->AddressFor(Incarnation(1)).value();
  const auto with = [&](size_t at, int32_t value) {
    std::string address = good;
    std::memcpy(address.data() + at, &value, sizeof value);
    return Text(LaneWriter::Open(address).status());
  };
  const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int other = memfd_create("other", MFD_CLOEXEC);
  const int same_name = memfd_create("fairway-lanes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  for (const size_t at : {4, 8}) {  // head, lane
    EXPECT_THAT(with(at, file), HasSubstr("is /dev/null"));
    EXPECT_THAT(with(at, other), HasSubstr("is /memfd:other"));
    EXPECT_THAT(with(at, same_name), HasSubstr("is another file"));
    EXPECT_THAT(with(at, 100000), HasSubstr("No such file"));
    EXPECT_THAT(with(at + (at == 4 ? 12 : 16), 0), HasSubstr("is another file")) << "its secret";
  }
  EXPECT_THAT(with(0, 0), HasSubstr("No such file"));
  EXPECT_FALSE(LaneWriter::Open("short").ok());
  for (const int fd : {file, other, same_name}) close(fd);
}

// As where vm.memfd_noexec is set.
TEST_F(SharedLanesTest, AFileMayHaveFurtherSeals) {
  std::string address = owner_->AddressFor(Incarnation(1)).value();
  constexpr unsigned kNoExecSeal = 8;  // MFD_NOEXEC_SEAL
  const int fd = memfd_create("fairway-lanes", MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal);
  if (fd < 0) GTEST_SKIP() << "the kernel has no such seal";
  ASSERT_EQ(ftruncate(fd, lanes::kLaneBytes), 0);
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  ASSERT_EQ(pwrite(fd, address.data() + 24, 8, 0), 8);
  std::memcpy(address.data() + 8, &fd, sizeof fd);
  EXPECT_EQ(LaneWriter::Open(address).status(), absl::OkStatus());
  close(fd);
}

TEST_F(SharedLanesTest, LanesAreBoundedAndNothingOfThemIsLeft) {
  for (uint64_t sender = 1; sender <= lanes::kMaxLanes; ++sender)
    ASSERT_TRUE(owner_->AddressFor(Incarnation(sender)).ok());
  EXPECT_EQ(owner_->AddressFor(Incarnation(1000)).status().code(),
            absl::StatusCode::kResourceExhausted);
  const std::string address = owner_->AddressFor(Incarnation(1)).value();
  const auto bell = owner_->bell();
  auto writer = Writer(1);
  owner_.reset();
  EXPECT_FALSE(LaneWriter::Open(address).ok());
  EXPECT_TRUE(writer->Write({1, 1, 1, {}}, "to nobody"));
  bell->Wake();
}

TEST_F(SharedLanesTest, ALaneIsTakenBackWhenNothingIsLeftInItAndItsSenderIsTold) {
  auto one = Writer(1), two = Writer(2), idle = Writer(3);
  EXPECT_TRUE(one->Write({1, 1, 1, {}}, "a"));
  EXPECT_TRUE(two->Write({1, 1, 1, {}}, "b"));
  owner_->LaneOf(Incarnation(2))->Pop();
  const std::string before = owner_->AddressFor(Incarnation(2)).value();
  owner_->TakeBack([](Incarnation sender, LaneReader&) { return sender != Incarnation(3); });
  EXPECT_EQ(Shown(owner_->LaneOf(Incarnation(1))->Peek()), "1.1.1: a");
  EXPECT_EQ(owner_->LaneOf(Incarnation(2)), nullptr);
  EXPECT_TRUE(one->Write({2, 1, 1, {}}, "c"));
  EXPECT_TRUE(two->HasRoom()) << "it would not find out";
  EXPECT_FALSE(two->Write({2, 1, 1, {}}, "d"));
  EXPECT_TRUE(idle->Write({2, 1, 1, {}}, "e"));
  // What has the number of its file now is another file.
  auto four = Writer(4);
  EXPECT_FALSE(LaneWriter::Open(before).ok());
  EXPECT_EQ(Shown(owner_->LaneOf(Incarnation(4))->Peek()), "none");
  EXPECT_TRUE(Writer(2)->Write({2, 1, 1, {}}, "f"));
  EXPECT_EQ(Shown(owner_->LaneOf(Incarnation(2))->Peek()), "2.1.1: f");
}

}  // namespace
}  // namespace fairway
