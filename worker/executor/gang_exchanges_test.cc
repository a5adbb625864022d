// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/gang_exchanges_fixture_for_test.h"

#include <cmath>
#include <numeric>

namespace fairway {
namespace {

using ::testing::HasSubstr;

TEST_F(GangExchangesTest, EveryMemberGetsTheSumOfAllBothWays) {
  for (const size_t count : {2, 3, 5}) {
    for (const int64_t push : {int64_t{0}, int64_t{1} << 20}) {
      Make(count);
      for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{1000}}) {
        SCOPED_TRACE(fmt::format("{} members, {} floats, pushed up to {}", count, size, push));
        std::vector<std::vector<Sum>> got(count);
        std::vector<std::thread> gangs;
        for (size_t m = 0; m < count; ++m) {
          gangs.emplace_back([&, m] {
            std::vector<float> values(size);
            std::iota(values.begin(), values.end(), static_cast<float>(m));
            for (const uint64_t launch : {10 * size + 1, 10 * size + 2}) {
              for (const uint32_t round : {1u, 2u})
                got[m].push_back(Run(m, launch, round, values, push));
              peers_[m].exchange->End(launch, absl::OkStatus());
            }
          });
        }
        for (std::thread& gang : gangs) gang.join();
        std::vector<float> want(size);
        const auto n = static_cast<float>(count);
        for (size_t i = 0; i < size; ++i) want[i] = n * static_cast<float>(i) + n * (n - 1) / 2;
        for (const auto& sums : got) {
          for (const Sum& sum : sums) {
            ASSERT_TRUE(sum.ok()) << sum.status();
            EXPECT_EQ(ToFloats(sum), want);
          }
        }
      }
      TearDown();
      peers_.clear();
    }
  }
}

// Of values whose sum depends on the order, and of two NaNs, of which one is the sum.
TEST_F(GangExchangesTest, AllMembersGetTheSameBitsOnAnyNumberOfHosts) {
  uint32_t random = 1;
  const auto next = [&] { return random = random * 1664525 + 1013904223; };
  for (const auto& [count, hosts] : std::vector<std::pair<size_t, size_t>>{{2, 2},
                                                                           {3, 3},
                                                                           {5, 5},
                                                                           {6, 6},
                                                                           {7, 7},
                                                                           {8, 8},
                                                                           {9, 9},
                                                                           {6, 4},
                                                                           {8, 3},
                                                                           {8, 2},
                                                                           {8, 1}}) {
    SCOPED_TRACE(fmt::format("{} members on {} hosts", count, hosts));
    Make(count, hosts);
    EXPECT_EQ(peers_[0].exchange->hosts().size(), hosts);
    for (uint64_t launch = 1; launch <= 20; ++launch) {
      std::vector<std::vector<float>> values(count, std::vector<float>(launch * launch * 5));
      double first = 0;
      for (auto& of_member : values) {
        for (float& value : of_member)
          value = std::ldexp(static_cast<float>(next() >> 8), static_cast<int>(next() >> 26) - 32);
        first += of_member[0];
      }
      for (size_t m = 0; m < count; m += 1 + next() % count) {
        const uint32_t nan = 0x7fc00000 + static_cast<uint32_t>(m);
        std::memcpy(&values[m].back(), &nan, sizeof nan);
      }
      const auto got = RunAll(launch, values);
      for (const auto& sum : got) {
        ASSERT_TRUE(sum->ok()) << sum->status();
        EXPECT_EQ((**sum)->view(), (**got[0])->view());
      }
      EXPECT_NEAR(ToFloats(*got[0])[0] / first, 1, 1e-5);
    }
    TearDown();
    peers_.clear();
  }
}

TEST_F(GangExchangesTest, NeighboursPushThroughMemoryAndOthersDoNot) {
  const std::vector<std::vector<float>> ones(4, std::vector<float>(1000, 1));
  for (const size_t hosts : {1, 2, 4}) {
    Make(4, hosts);
    // At first they may not know each other's memory yet.
    int frames = 0;
    const int by_connection = hosts == 1 ? 0 : hosts == 2 ? 2 : 8;
    for (uint64_t launch = 1; launch <= 1000; ++launch) {
      const int before = frames_;
      for (const auto& sum : RunAll(launch, ones))
        EXPECT_EQ(ToFloats(*sum), std::vector<float>(1000, 4));
      frames = frames_ - before;
      if (launch > 10 && frames == by_connection) break;
    }
    EXPECT_EQ(frames, by_connection);
    TearDown();
    peers_.clear();
  }
}

TEST_F(GangExchangesTest, NeighboursSleepTogetherAndTheLastOneWakesAll) {
  Make(4);
  std::string address;
  peers_[0].all->OnPull({TransferId(), 0, Incarnation(1000), 1},
                        [&](absl::StatusOr<DataView> view) { address = view->bytes; });
  const auto first = LaneWriter::Open(address).value();
  const auto rung = [&] { return first->all().rung(); };
  const std::vector<std::vector<float>> ones(4, {1});
  // Until all know each other's memory, and that all others do.
  uint64_t launch = 0;
  for (uint32_t before = rung(); launch < 10 || rung() == before; ++launch) {
    ASSERT_LT(launch, 1000u);
    before = rung();
    RunAll(launch + 1, ones);
  }
  for (const uint64_t end = launch + 20; launch < end; ++launch) {
    const uint32_t before = rung();
    for (const auto& sum : RunAll(launch + 1, ones))
      EXPECT_EQ(ToFloats(*sum), std::vector<float>{4});
    EXPECT_GE(rung() - before, 1u);
  }
  // Whoever sleeps so hears of a failure, too.
  ++launch;
  std::optional<Sum> got;
  std::thread gang([&] { got = Run(1, launch, 1, {1}, 1 << 20); });
  peers_[1].all->Abandon(launch, launch, absl::DataLossError("worker w1 was lost"));
  gang.join();
  EXPECT_THAT(Text(got->status()), HasSubstr("w1 was lost"));
}

// Waits until what is small is broadcast. Heard by one more neighbour of the first member.
TEST_F(GangExchangesTest, NeighboursBroadcastWhatIsSmall) {
  Make(3);
  std::string address;
  peers_[0].all->OnPull({TransferId(), 0, Incarnation(1000), 1},
                        [&](absl::StatusOr<DataView> view) { address = view->bytes; });
  const auto first = LaneWriter::Open(address).value();
  const auto heard = [&](uint64_t launch) {
    uint32_t slot = 0;
    return first->Heard({launch, 1, 0, {}}, slot).has_value();
  };
  uint64_t launch = 1;
  for (; launch == 1 || !heard(launch - 1); ++launch) {
    ASSERT_LT(launch, 1000u);
    RunAll(launch, {{1}, {1}, {1}});
  }
  // Large and small ones in turns, and one that fails in between.
  for (const uint64_t end = launch + 40; launch < end; ++launch) {
    const size_t values = launch % 3 == 0 ? 27 : 26;
    const float number = static_cast<float>(launch);
    if (launch % 10 == 0) {
      for (Peer& peer : peers_) peer.all->Abandon(launch, launch, absl::AbortedError("stop"));
      for (const auto& sum : RunAll(launch, std::vector(3, std::vector<float>(values, 9))))
        EXPECT_THAT(Text(sum->status()), HasSubstr("stop"));
      continue;
    }
    for (const auto& sum :
         RunAll(launch, {std::vector<float>(values, number), std::vector<float>(values, 1),
                         std::vector<float>(values, 2)}))
      EXPECT_EQ(ToFloats(*sum), std::vector<float>(values, number + 3));
    if (values == 27) EXPECT_FALSE(heard(launch));
  }
  for (int i = 0; i < 4 && !heard(launch - 1); ++i, ++launch) RunAll(launch, {{1}, {1}, {1}});
  EXPECT_TRUE(heard(launch - 1));
}

// Each set of neighbours holds a slot until it swaps again: there are more sets than slots.
TEST_F(GangExchangesTest, GangsOfManySetsOfNeighboursTakeTurns) {
  Make(5);
  std::vector<std::vector<size_t>> sets = {{0, 1, 2, 3, 4}};
  for (size_t other = 1; other < 5; ++other) sets.push_back({0, other});
  sets.push_back({0, 1, 2});
  sets.push_back({0, 3, 4});
  std::vector<std::vector<std::shared_ptr<Exchange>>> exchanges(sets.size());
  for (size_t s = 0; s < sets.size(); ++s) {
    GangExchanges::Members members;
    for (const size_t m : sets[s])
      members.push_back(MemberAt(*peers_[m].plane, Incarnation(100 + m)));
    for (size_t i = 0; i < sets[s].size(); ++i)
      exchanges[s].push_back(peers_[sets[s][i]].all->Make(members, i));
  }
  // Sets in an order that repeats some; each member runs its launches without waiting for others.
  const auto set_of = [&](uint64_t launch) { return launch * launch / 3 % sets.size(); };
  std::vector<std::thread> gangs;
  for (size_t m = 0; m < 5; ++m) {
    gangs.emplace_back([&, m] {
      for (uint64_t launch = 1; launch <= 2000; ++launch) {
        const size_t s = set_of(launch);
        const auto at = std::ranges::find(sets[s], m);
        if (at == sets[s].end()) continue;
        Exchange& exchange = *exchanges[s][at - sets[s].begin()];
        const float value = static_cast<float>(launch + m);
        const Sum sum = AllReduceOver(exchange, launch, 1, DType::kF32,
                                      Blob::Copy({reinterpret_cast<const char*>(&value), 4}), 64);
        exchange.End(launch, sum.status());
        float all = 0;
        for (const size_t other : sets[s]) all += static_cast<float>(launch + other);
        ASSERT_EQ(ToFloats(sum), std::vector<float>{all}) << launch << " " << sum.status();
      }
    });
  }
  for (std::thread& gang : gangs) gang.join();
}

// As those do that were started anew again and again.
TEST_F(GangExchangesTest, NeighboursThatAreGoneTakeNoMemoryFromOthers) {
  Make(2);
  for (uint64_t i = 0; i < 2 * lanes::kMaxLanes; ++i) {
    peers_[0].all->OnPull({TransferId(), 0, Incarnation(1000 + i), 1},
                          [](absl::StatusOr<DataView>) {});
  }
  auto late = std::make_shared<GangExchanges>();
  std::atomic<int> frames = 0;
  auto plane = *MakeTcpDataPlane(
      loop_, "127.0.0.1:0", "127.0.0.1", Incarnation(150), KeyOf(Incarnation(150)),
      [](PullRequest, DataPlane::Answer) {}, {},
      [&](PullRequest request, DataPlane::Answer answer) {
        late->OnPull(request, std::move(answer));
      },
      [&](const PushName& name, std::shared_ptr<Blob>& bytes) {
        ++frames;
        return late->OnPush(name, bytes);
      });
  late->Open(plane.get());
  const GangExchanges::Members members{MemberAt(*peers_[0].plane, Incarnation(100)),
                                       MemberAt(*plane, Incarnation(150))};
  const auto here = peers_[0].all->Make(members, 0);
  const auto there = late->Make(members, 1);
  int before = -1;
  for (uint64_t launch = 1; launch <= 1000 && before != frames_ + frames; ++launch) {
    before = launch > 10 ? frames_ + frames : -1;
    std::thread other([&] {
      EXPECT_TRUE(AllReduceOver(*there, launch, 1, DType::kF32, Blob::Copy("1234")).ok());
    });
    EXPECT_TRUE(AllReduceOver(*here, launch, 1, DType::kF32, Blob::Copy("1234")).ok());
    other.join();
  }
  EXPECT_EQ(before, frames_ + frames) << "it still sends frames";
  late->Close(absl::UnavailableError("closed"));
  plane.reset();
}

TEST_F(GangExchangesTest, WhatIsPushedToMemoryThatWasTakenBackIsNotLost) {
  Make(2);
  uint64_t launch = 0;
  const std::vector<std::vector<float>> ones(2, {1});
  const auto until_no_frames = [&] {
    int before = -1;
    for (const uint64_t first = launch; before != frames_ && launch < first + 1000;) {
      before = launch > first + 10 ? frames_.load() : -1;
      RunAll(++launch, ones);
    }
    EXPECT_EQ(before, frames_);
  };
  until_no_frames();
  // Both unload the code, member 1 loads other code; and others want its memory.
  const GangExchanges::Members members{MemberAt(*peers_[0].plane, Incarnation(100)),
                                       MemberAt(*peers_[1].plane, Incarnation(101))};
  peers_[0].exchange = peers_[0].all->Make(members, 0);
  peers_[1].exchange = nullptr;
  (void)peers_[1].all->Make({MemberAt(*peers_[1].plane, Incarnation(101))}, 0);
  for (uint64_t i = 0; i < lanes::kMaxLanes; ++i) {
    peers_[1].all->OnPull({TransferId(), 0, Incarnation(1000 + i), 1},
                          [](absl::StatusOr<DataView>) {});
  }
  const int frames = frames_;
  std::optional<Sum> sum;
  std::thread ahead([&] { sum = Run(0, launch + 1, 1, {1}, 1 << 20); });
  EXPECT_TRUE(RunUntil(loop_, [&] { return frames_ > frames; }));
  peers_[1].exchange = peers_[1].all->Make(members, 1);
  EXPECT_EQ(ToFloats(Run(1, launch + 1, 1, {1}, 1 << 20)), std::vector<float>{2});
  ahead.join();
  EXPECT_EQ(ToFloats(*sum), std::vector<float>{2}) << sum->status();
  ++launch;
  until_no_frames();
}

TEST_F(GangExchangesTest, AMemberThatRunsFarAheadWaitsAndNothingIsLost) {
  Make(2);
  // 5 launches fail at member 0 by what the other does not know, in the middle of its pushes.
  std::vector<absl::Status> ended;
  std::thread ahead([&] {
    for (uint64_t launch = 1; launch <= 40; ++launch) {
      const Sum sum = Run(0, launch, 1, {1}, 1 << 20);
      peers_[0].exchange->End(launch, sum.status());
      ended.push_back(sum.status());
    }
  });
  for (uint64_t launch = 1; launch <= 40; ++launch) {
    if (launch % 3 == 0) peers_[0].all->Abandon(launch, launch, absl::DataLossError("lost"));
  }
  std::vector<absl::Status> other;
  for (uint64_t launch = 1; launch <= 40; ++launch) {
    const Sum sum = Run(1, launch, 1, {1}, 1 << 20);
    peers_[1].exchange->End(launch, sum.status());
    other.push_back(sum.status());
    if (launch % 3 != 0) EXPECT_TRUE(sum.ok()) << launch << ": " << sum.status();
  }
  ahead.join();
  for (uint64_t launch = 3; launch <= 40; ++launch) {
    if (launch % 3 != 0) EXPECT_TRUE(ended[launch - 1].ok()) << ended[launch - 1];
  }
}

// Pushes come before the code is loaded, or without end: they wait in the connection.
TEST_F(GangExchangesTest, WhatComesTooEarlyIsTakenWhenItIsWanted) {
  Make(2);
  GangExchanges::Members members{MemberAt(*peers_[0].plane, Incarnation(100)),
                                 MemberAt(*peers_[1].plane, Incarnation(101))};
  auto sender = std::make_shared<GangExchanges>();
  auto plane = *MakeTcpDataPlane(
      loop_, "127.0.0.1:0", "127.0.0.1", Incarnation(150), KeyOf(Incarnation(150)),
      [](PullRequest, DataPlane::Answer) {}, {},
      [&](PullRequest request, DataPlane::Answer answer) {
        sender->OnPull(request, std::move(answer));
      });
  sender->Open(plane.get());
  members.push_back(MemberAt(*plane, Incarnation(150)));
  const auto exchange = sender->Make(members, 2);
  std::vector<absl::Status> pushed;
  std::thread pusher([&] {
    for (int32_t part = 0; part < 500; ++part) {
      pushed.push_back(exchange->Push(7, 1, part, 0, std::string(Exchange::kMaxPushBytes, 'x')));
    }
  });
  // They may also come through memory, which nobody sees.
  (void)RunUntil(
      loop_, [&] { return frames_ > 0; }, std::chrono::milliseconds(100));
  const auto receiver = peers_[0].all->Make(members, 0);
  for (int32_t part = 0; part < 500; ++part) {
    size_t bytes = 0;
    const absl::Status status =
        receiver->Receive(7, 1, part, {2}, Exchange::kMaxPushBytes,
                          [&](size_t, std::string_view got) { bytes = got.size(); });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(bytes, Exchange::kMaxPushBytes);
  }
  pusher.join();
  for (const absl::Status& status : pushed) EXPECT_TRUE(status.ok()) << status;
  sender->Close(absl::UnavailableError("closed"));
  plane.reset();
}

// Gangs of pairs fail one after the other, so that each memory is full of pushes that its owner
// does not want. The members of the next gang all push before they look at what has come.
TEST_F(GangExchangesTest, PushesThatNobodyWantsHoldNobody) {
  Make(3);
  uint64_t launch = 0;
  const std::vector<std::vector<float>> ones(3, {1});
  // Until all know the memory of the others.
  for (int frames = -1; frames != frames_ || launch < 10;) {
    frames = frames_;
    RunAll(++launch, ones);
  }
  const absl::Status cause = absl::InternalError("left out");
  for (size_t m = 0; m < 3; ++m) {
    const size_t other = (m + 1) % 3;
    const auto pair = PairOf(m, other);
    for (size_t i = 0; i < kLaneSlots; ++i) {
      ++launch;
      peers_[other].all->LeaveOut(launch, launch, cause);
      const absl::Status status =
          AllReduceOver(*pair, launch, 1, DType::kF32, Blob::Copy("1234")).status();
      EXPECT_EQ(status, cause);
      pair->End(launch, status);
    }
  }
  std::atomic<int> ended = 0;
  std::vector<std::optional<Sum>> got(3);
  std::vector<std::thread> gangs;
  ++launch;
  for (size_t m = 0; m < 3; ++m) {
    gangs.emplace_back([&, m] {
      got[m] = Run(m, launch, 1, {1}, 1 << 20);
      ++ended;
    });
  }
  EXPECT_TRUE(RunUntil(loop_, [&] { return ended == 3; }));
  for (Peer& peer : peers_) peer.all->Abandon(launch, launch, absl::CancelledError("it hangs"));
  for (std::thread& gang : gangs) gang.join();
  for (const auto& sum : got) EXPECT_EQ(ToFloats(*sum), std::vector<float>{3}) << sum->status();
}

// Each question waits at its member until the launch has ended there.
TEST_F(GangExchangesTest, AMemberIsAskedOnceHowALaunchEnds) {
  Make(2);
  std::vector<Sum> got;
  std::thread waits([&] {
    for (uint32_t round = 1; round <= 4; ++round) got.push_back(Run(0, 1, round, {1}, 1 << 20));
  });
  for (uint32_t round = 1; round <= 4; ++round) {
    const int before = watches_;
    (void)RunUntil(
        loop_, [&] { return watches_ > before; }, 3 * GangExchanges::kQuiet);
    EXPECT_TRUE(Run(1, 1, round, {1}, 1 << 20).ok());
  }
  waits.join();
  for (const Sum& sum : got) EXPECT_EQ(ToFloats(sum), std::vector<float>{2}) << sum.status();
  EXPECT_LE(watches_, 1);
}

TEST_F(GangExchangesTest, AMemberMayBeSlowAfterAnotherHasEndedTheLaunch) {
  Make(3);
  std::atomic<bool> given_up = false;
  std::optional<absl::Status> got;
  std::thread waits([&] {
    got = peers_[0].exchange->Receive(1, 1, 0, {1, 2}, 4, [](size_t, std::string_view) {});
    given_up = !got->ok();
  });
  ASSERT_TRUE(RunUntil(loop_, [&] { return watches_ == 2; }));
  EXPECT_TRUE(peers_[1].exchange->Push(1, 1, 0, 0, "1234").ok());
  peers_[1].exchange->End(1, absl::OkStatus());
  EXPECT_FALSE(RunUntil(
      loop_, [&] { return given_up.load(); }, GangExchanges::kLost + 5 * GangExchanges::kQuiet));
  EXPECT_TRUE(peers_[2].exchange->Push(1, 1, 0, 0, "1234").ok());
  waits.join();
  EXPECT_EQ(got, absl::OkStatus());
}

TEST_F(GangExchangesTest, APushOfAnotherSizeIsAnError) {
  Make(2);
  ASSERT_TRUE(peers_[1].exchange->Push(1, 1, 0, 0, "12345").ok());
  EXPECT_EQ(Run(0, 1, 1, {1}, 1 << 20).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(peers_[0].exchange->Push(1, 1, 0, 1, std::string(70000, 'x')).code(),
            absl::StatusCode::kInternal);
}

// A connection broke, say.
TEST_F(GangExchangesTest, APushThatNeverComesIsGivenUpWhenItsSenderHasEndedTheLaunch) {
  Make(2);
  peers_[1].exchange->End(1, absl::OkStatus());
  const absl::Status status = Run(0, 1, 1, {1}, 1 << 20).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(Text(status), HasSubstr("were lost"));
}

TEST_F(GangExchangesTest, AfterAFailureTheNextOnesAreToldAtOnce) {
  Make(2);
  peers_[0].all->LeaveOut(1, 200, absl::InternalError("a branch"));
  int at_once = 0;  // most, however busy the machine is
  for (uint64_t launch = 1; launch <= 200; ++launch) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(Run(1, launch, 1, {1}, 1 << 20).status(), absl::InternalError("a branch"));
    peers_[1].exchange->End(launch, absl::InternalError("a branch"));
    at_once += std::chrono::steady_clock::now() - begin < GangExchanges::kQuiet ? 1 : 0;
  }
  EXPECT_GT(at_once, 100);
  for (const auto& sum : RunAll(201, {{1}, {2}})) EXPECT_EQ(ToFloats(*sum), std::vector<float>{3});
}

TEST_F(GangExchangesTest, TheErrorOfOneMemberIsThatOfAllWhetherItComesFirstOrLast) {
  Make(3);
  const absl::Status cause = absl::ResourceExhaustedError("no memory for a value");
  for (const uint64_t launch : {1, 2}) {
    std::vector<std::optional<Sum>> got(3);
    const auto run = [&](size_t m) {
      got[m] = Run(m, launch, 1, {1, 2}, 1 << 20);
      peers_[m].exchange->End(launch, got[m]->status());
    };
    if (launch == 1) peers_[0].exchange->End(launch, cause);
    std::thread one(run, 1), two(run, 2);
    if (launch == 2) peers_[0].exchange->End(launch, cause);
    one.join();
    two.join();
    EXPECT_EQ(got[1]->status(), cause);
    EXPECT_EQ(got[2]->status(), cause);
  }
  // Nothing of the launch is left for later launches.
  std::vector<std::thread> gangs;
  std::vector<std::optional<Sum>> got(3);
  for (size_t m = 0; m < 3; ++m)
    gangs.emplace_back([&, m] { got[m] = Run(m, 3, 1, {1}, 1 << 20); });
  for (std::thread& gang : gangs) gang.join();
  for (const auto& sum : got) EXPECT_EQ(ToFloats(*sum), std::vector<float>{3});
}

TEST_F(GangExchangesTest, AMemberThatGoesAwayEndsTheWaitOfTheOthers) {
  Make(3);
  std::vector<std::optional<Sum>> got(3);
  std::thread one([&] { got[1] = Run(1, 1, 1, {1}, 1 << 20); });
  Close(0);
  one.join();
  EXPECT_EQ(got[1]->status().code(), absl::StatusCode::kUnavailable) << got[1]->status();
  EXPECT_EQ(Run(2, 1, 1, {1}, 1 << 20).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(GangExchangesTest, AnAbandonedLaunchFailsAndPassesTheCauseOn) {
  Make(2);
  std::optional<Sum> got;
  std::thread gang([&] {
    got = Run(0, 7, 1, {1}, 1 << 20);
    peers_[0].exchange->End(7, got->status());
  });
  peers_[0].all->Abandon(7, 7, absl::DataLossError("worker w1 was lost"));
  gang.join();
  EXPECT_THAT(Text(got->status()), HasSubstr("w1 was lost"));
  // What it had pushed by then is all that the other needs of it; of a launch that is abandoned
  // before it begins, nothing is pushed.
  peers_[0].all->Abandon(8, 8, absl::DataLossError("worker w1 was lost"));
  EXPECT_THAT(Text(Run(0, 8, 1, {1}, 1 << 20).status()), HasSubstr("w1 was lost"));
  EXPECT_THAT(Text(Run(1, 8, 1, {1}, 1 << 20).status()), HasSubstr("w1 was lost"));
}

// A member may leave out any number of steps before one that it runs.
TEST_F(GangExchangesTest, WhatIsLeftOutIsAnsweredWithItsCauseAndNothingElseIs) {
  Make(2);
  std::optional<Sum> early;
  std::thread gang([&] {
    early = Run(1, 2000, 1, {1}, 1 << 20);
    peers_[1].exchange->End(2000, early->status());
  });
  peers_[0].all->LeaveOut(2000, 2000, absl::InternalError("step 2000"));
  gang.join();
  EXPECT_EQ(early->status(), absl::InternalError("step 2000"));
  for (uint64_t id = 2001; id < 4000; id += 2) {
    peers_[0].all->LeaveOut(id, id, Error(absl::StatusCode::kInternal, "step {}", id));
    peers_[0].exchange->End(id + 1, absl::OkStatus());
  }
  peers_[0].all->LeaveOut(4001, 5000, absl::InternalError("a branch"));
  for (const uint64_t id : {2001, 2003, 3999})
    EXPECT_EQ(Run(1, id, 1, {1}, 1 << 20).status(),
              Error(absl::StatusCode::kInternal, "step {}", id));
  for (const uint64_t id : {4001, 4500, 5000})
    EXPECT_EQ(Run(1, id, 1, {1}, 1 << 20).status(), absl::InternalError("a branch"));
  std::vector<std::thread> gangs;
  std::vector<std::optional<Sum>> got(2);
  for (size_t m = 0; m < 2; ++m)
    gangs.emplace_back([&, m] { got[m] = Run(m, 5001, 1, {1}, 1 << 20); });
  for (std::thread& thread : gangs) thread.join();
  for (const auto& sum : got) EXPECT_EQ(ToFloats(*sum), std::vector<float>{2});
}

TEST_F(GangExchangesTest, TheFirstCauseStaysWhereStretchesOverlap) {
  Make(2);
  peers_[0].all->LeaveOut(5, 6, absl::InternalError("first"));
  peers_[0].all->LeaveOut(9, 9, absl::InternalError("first"));
  peers_[0].all->Abandon(3, 12, absl::DataLossError("lost"));
  peers_[0].all->LeaveOut(1, 15, absl::InternalError("last"));
  std::string text;
  for (uint64_t id = 1; id <= 15; ++id) {
    const absl::Status status = Run(1, id, 1, {1}, 1 << 20).status();
    text += status == absl::InternalError("first")  ? 'f'
            : status == absl::DataLossError("lost") ? 'l'
            : status == absl::InternalError("last") ? 'a'
                                                    : '?';
  }
  EXPECT_EQ(text, "aallffllflllaaa");
}

// Steps without an exchange come before it, so that its id is not the next one.
TEST_F(GangExchangesTest, AnAbandonedSequenceFailsAtWhicheverStepItIs) {
  Make(2);
  peers_[0].all->Abandon(5, 20, absl::DataLossError("worker w1 was lost"));
  EXPECT_THAT(Text(Run(0, 12, 1, {1}, 1 << 20).status()), HasSubstr("w1 was lost"));
  EXPECT_THAT(Text(Run(1, 17, 1, {1}, 1 << 20).status()), HasSubstr("w1 was lost"));
}

}  // namespace
}  // namespace fairway
