// SPDX-License-Identifier: Apache-2.0
#include "controller/events/event_ring.h"

#include <memory>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EventRingTest : public ::testing::Test {
 protected:
  void Add(EventKind kind, const std::string& owner, const std::string& text,
           const std::string& reason = "R") {
    ring_->Add({.kind = kind, .reason = reason, .object = "o", .text = text, .owner = owner},
               Now());
  }
  void AddOfSession(uint64_t session, const std::string& tenant, const std::string& text) {
    ring_->Add({.kind = EventKind::kSessions,
                .reason = "R",
                .object = fmt::format("session {}", session),
                .text = text,
                .owner = tenant,
                .tenant = tenant,
                .session = session},
               Now());
  }
  EventRing::Time Now() { return EventRing::Time(std::chrono::milliseconds(now_++)); }
  std::vector<std::string> Texts(const EventRing::Asked& asked = {}) const {
    std::vector<std::string> texts;
    for (const Event& event : ring_->List(asked).events) texts.push_back(event.what.text);
    return texts;
  }
  size_t CountOf(EventKind kind, const std::string& owner) const {
    size_t count = 0;
    for (uint64_t after = 0;;) {
      const EventRing::Page page = ring_->List({.after = after});
      for (const Event& event : page.events)
        count += event.what.kind == kind && event.what.owner == owner ? 1 : 0;
      if (!page.more) return count;
      after = page.events.back().id;
    }
  }

  std::unique_ptr<EventRing> ring_ = std::make_unique<EventRing>();
  int64_t now_ = 1;
};

TEST_F(EventRingTest, ARepeatedEventIsTheSameOneAndTheLatest) {
  Add(EventKind::kFleet, "i0", "is down (pid 7)", "Lost");
  Add(EventKind::kFleet, "i0", "is up", "Up");
  Add(EventKind::kFleet, "i1", "is down (pid 9)", "Lost");
  Add(EventKind::kFleet, "i0", "is down (pid 8)", "Lost");
  EXPECT_THAT(Texts(), ElementsAre("is up", "is down (pid 9)", "is down (pid 8)"));
  const Event last = ring_->List({}).events.back();
  EXPECT_EQ(last.what.owner, "i0");
  EXPECT_EQ(last.count, 2u);
  EXPECT_EQ(last.first, EventRing::Time(std::chrono::milliseconds(1)));
  EXPECT_EQ(last.last, EventRing::Time(std::chrono::milliseconds(4)));
  // Whoever has seen all before sees it again.
  EXPECT_THAT(Texts({.after = 3}), ElementsAre("is down (pid 8)"));
  EXPECT_THAT(Texts({.after = last.id}), IsEmpty());
  // Of refusals the text counts.
  for (const char* text : {"w0 is twice there", "w1 is too old", "w0 is twice there"})
    Add(EventKind::kRefusals, "host", text);
  EXPECT_THAT(Texts({.after = last.id}), ElementsAre("w1 is too old", "w0 is twice there"));
}

TEST_F(EventRingTest, WhoeverDoesMostLosesItsOldestEventsAndNobodyElseDoes) {
  for (int i = 0; i < 10; ++i) {
    Add(EventKind::kFleet, "i0", "x", fmt::format("{}", i));
    AddOfSession(i, "quiet", fmt::format("opened {}", i));
  }
  const size_t most = EventRing::kRooms[static_cast<size_t>(EventKind::kSessions)];
  for (size_t i = 0; i < 3 * most; ++i) AddOfSession(100 + i, "loud", fmt::format("opened {}", i));
  for (size_t i = 0; i < 3 * most; ++i) Add(EventKind::kRefusals, "host", fmt::format("{}", i));
  EXPECT_EQ(CountOf(EventKind::kFleet, "i0"), 10u);
  EXPECT_EQ(CountOf(EventKind::kSessions, "quiet"), 10u);
  EXPECT_EQ(CountOf(EventKind::kSessions, "loud"), most - 10);
  EXPECT_EQ(CountOf(EventKind::kRefusals, "host"),
            EventRing::kRooms[static_cast<size_t>(EventKind::kRefusals)]);
  EXPECT_THAT(Texts({.session = 100 + 3 * most - 1}),
              ElementsAre(fmt::format("opened {}", 3 * most - 1)));
  EXPECT_THAT(Texts({.session = 100}), IsEmpty());
}

TEST_F(EventRingTest, OfOwnersWithAsManyTheOldestEventGoes) {
  const size_t most = EventRing::kRooms[static_cast<size_t>(EventKind::kRefusals)];
  for (size_t i = 0; i < most + 3; ++i)
    Add(EventKind::kRefusals, fmt::format("host {}", i * 7919 % 16), fmt::format("{}", i));
  EXPECT_EQ(ring_->size(), most);
  EXPECT_EQ(Texts().front(), "3");
}

TEST_F(EventRingTest, WhoeverNamesManyTenantsLeavesOthersTheirParts) {
  for (int i = 0; i < 100; ++i) AddOfSession(i, "quiet", fmt::format("opened {}", i));
  const size_t most = EventRing::kRooms[static_cast<size_t>(EventKind::kSessions)];
  for (size_t i = 0; i < 3 * most; ++i)
    AddOfSession(100 + i, fmt::format("tenant {}", i), "opened");
  EXPECT_EQ(ring_->size(), most);
  // The least that one has who came before them.
  EXPECT_GE(CountOf(EventKind::kSessions, "quiet"), 30u);
  // All are still told by their tenants.
  EXPECT_THAT(Texts({.tenant = fmt::format("tenant {}", 3 * most - 1)}), ElementsAre("opened"));
}

TEST_F(EventRingTest, TenantsOfTokensHaveAPartEachHoweverManyThereAre) {
  ring_ = std::make_unique<EventRing>(EventRing::Tenants::kOfTokens);
  constexpr int kTenants = 200;
  for (int tenant = 0; tenant < kTenants; ++tenant) {
    for (int i = 0; i < 5; ++i)
      AddOfSession(static_cast<uint64_t>(100 * tenant + i), fmt::format("tenant {}", tenant),
                   "opened");
  }
  for (int i = 0; i < 5000; ++i)
    AddOfSession(static_cast<uint64_t>(1'000'000 + i), "noisy", "opened");
  for (int tenant = 0; tenant < kTenants; ++tenant)
    EXPECT_EQ(CountOf(EventKind::kSessions, fmt::format("tenant {}", tenant)), 5u) << tenant;
  const size_t most = EventRing::kRooms[static_cast<size_t>(EventKind::kSessions)];
  EXPECT_EQ(CountOf(EventKind::kSessions, "noisy"), most - 5 * kTenants);
}

TEST_F(EventRingTest, AnEventOfOneWithoutAPartIsRepeatedToo) {
  const size_t most = EventRing::kRooms[static_cast<size_t>(EventKind::kSessions)];
  for (size_t i = 0; i < most / 2; ++i) AddOfSession(i, fmt::format("tenant {}", i), "opened");
  AddOfSession(5000, "late", "opened");
  AddOfSession(5000, "late", "opened");
  EXPECT_EQ(ring_->List({.session = 5000}).events.back().count, 2u);
  EXPECT_EQ(ring_->size(), most / 2 + 1);
}

TEST_F(EventRingTest, ATenantSeesItsOwnEventsAndOpenOnes) {
  AddOfSession(1, "red", "of red");
  AddOfSession(2, "blue", "of blue");
  AddOfSession(3, "", "of nobody");
  Add(EventKind::kRefusals, "host", "refused");
  ring_->Add({.reason = "R", .object = "island i0", .text = "is up", .owner = "i0", .open = true},
             Now());
  EXPECT_THAT(Texts({.tenant = "red"}), ElementsAre("of red", "is up"));
  EXPECT_THAT(Texts({.tenant = "blue"}), ElementsAre("of blue", "is up"));
  EXPECT_THAT(Texts({.tenant = "green"}), ElementsAre("is up"));
  EXPECT_THAT(Texts({.tenant = "red", .session = 2}), IsEmpty());
  EXPECT_THAT(Texts({.tenant = ""}), ElementsAre("of nobody", "is up"));
  EXPECT_EQ(Texts().size(), 5u);
}

TEST_F(EventRingTest, TextsAreCutAndPagesAreShort) {
  Add(EventKind::kFleet, std::string(10000, 'o'), std::string(100000, 't'));
  const Event event = ring_->List({}).events.front();
  EXPECT_LE(event.what.text.size(), EventRing::kMostText);
  EXPECT_LE(event.what.owner.size(), EventRing::kMostName);
  for (size_t i = 0; i < 2 * EventRing::kMostRows; ++i)
    Add(EventKind::kFleet, "i0", "x", fmt::format("{}", i));
  const EventRing::Page first = ring_->List({});
  EXPECT_EQ(first.events.size(), EventRing::kMostRows);
  EXPECT_TRUE(first.more);
  const EventRing::Page second = ring_->List({.after = first.events.back().id});
  EXPECT_EQ(second.events.size(), EventRing::kMostRows);
  const EventRing::Page last = ring_->List({.after = second.events.back().id});
  EXPECT_EQ(last.events.size(), 1u);
  EXPECT_FALSE(last.more);
}

}  // namespace
}  // namespace fairway
