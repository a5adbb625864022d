// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/array_table.h"

#include <optional>
#include <string>
#include <vector>

#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/session.h"
#include "controller/cluster/sessions.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

Array OnDevices(std::vector<int32_t> devices) {
  return {ArraySpec{DType::kF32, Shape{{4}}, Sharding::Replicated(std::move(devices))}, {}, {}};
}

TEST(ArrayTableTest, CountsWhatIsInItAndInTheTotal) {
  size_t total = 0;
  {
    ArrayTable table(&total);
    table.emplace(1, OnDevices({0}));
    EXPECT_EQ(table.bytes(), ArrayTable::kSmallest);
    table.emplace(1, OnDevices({0}));  // does nothing: the handle is in the table
    EXPECT_EQ(total, ArrayTable::kSmallest);
    table.emplace(2, OnDevices({0, 1, 2}));
    EXPECT_EQ(total, 2 * ArrayTable::kSmallest + 2 * sizeof(ShardRef));
    table.at(2).shards.clear();  // given away: its record stays
    ArrayTable moved = std::move(table);
    EXPECT_EQ(total, 2 * ArrayTable::kSmallest + 2 * sizeof(ShardRef));
    moved.Take(1);
    moved.TakeFirst();
    EXPECT_EQ(total, 0u);
    moved.emplace(3, OnDevices({0}));
  }
  EXPECT_EQ(total, 0u);
}

class RecordMemoryTest : public ::testing::Test {
 protected:
  RecordMemoryTest() {
    ClusterOptions options;
    options.stored_array_bytes = -1;
    options.record_memory = 400 * ArrayTable::kSmallest;
    cluster_.emplace(options, &actions_);
    actions_.cluster = &*cluster_;
    EXPECT_TRUE(cluster_->fleet().ExecutorUp(Worker("wa", "ia", 1)).ok());
    one_ = actions_.Open(*cluster_);
    other_ = actions_.Open(*cluster_);
  }
  // Makes error arrays, which take nothing but their records, until one is refused, which must
  // happen. Returns how many were made.
  int Fill(SessionId session, uint64_t first) {
    const ArraySpec spec{DType::kF32, Shape{{4}}, Sharding::Replicated({0})};
    for (int made = 0; made < 1000; ++made) {
      const auto array =
          cluster_->arrays().MakeError(session, first + made, spec, absl::AbortedError(""));
      if (array.ok()) continue;
      EXPECT_EQ(array.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(std::string(array.status().message()),
                  HasSubstr("give up arrays that are no longer needed"));
      return made;
    }
    ADD_FAILURE() << "none was refused";
    return 0;
  }
  Recorder actions_;
  std::optional<Cluster> cluster_;
  SessionId one_, other_;
};

TEST_F(RecordMemoryTest, OneSessionsArraysHoldAsMuchAsIsLeftToOthers) {
  EXPECT_EQ(Fill(one_, 1), 200);
  EXPECT_EQ(Fill(other_, 1), 100);
  EXPECT_EQ(Fill(one_, 1000), 0);
  // A session can always give arrays up, and then make others.
  EXPECT_TRUE(cluster_->arrays().Destruct(one_, {1, 2, 3, 4, 5}).ok());
  EXPECT_EQ(Describe(cluster_->inspection().CheckInvariants()), "OK");
  EXPECT_GT(Fill(other_, 1000), 0);
  cluster_->sessions().Close(one_);
  while (cluster_->sessions().RecordRoom() < 60 * ArrayTable::kSmallest) cluster_->Turn();
  EXPECT_GT(Fill(other_, 2000), 10);
}

TEST_F(RecordMemoryTest, WhatAFrontDoorHoldsCountsWithTheRecords) {
  constexpr size_t kHalf = 200 * ArrayTable::kSmallest;
  EXPECT_TRUE(cluster_->sessions().CountDoor(one_, kHalf).ok());
  EXPECT_EQ(Fill(one_, 1), 0);
  EXPECT_EQ(cluster_->sessions().CountDoor(one_, kHalf + 2000).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(cluster_->sessions().CountDoor(other_, 1000).ok());
  EXPECT_EQ(Describe(cluster_->inspection().CheckInvariants()), "OK");
  EXPECT_TRUE(cluster_->sessions().CountDoor(one_, 0).ok());
  EXPECT_GT(Fill(one_, 1), 150);
}

TEST_F(RecordMemoryTest, SessionsWithTheSameDevicesShareTheirList) {
  const auto list = [&](SessionId session) {
    return cluster_->sessions().SharedDevices(session).begin();
  };
  EXPECT_EQ(list(one_), list(other_));
  ASSERT_TRUE(cluster_->fleet().ExecutorUp(Worker("wb", "ib", 1)).ok());
  const SessionId later = actions_.Open(*cluster_);
  EXPECT_NE(list(later), list(one_));
  EXPECT_EQ(cluster_->sessions().Devices(one_).size(), 1u);
  EXPECT_EQ(cluster_->sessions().Devices(later).size(), 2u);
}

TEST_F(RecordMemoryTest, ARequestOfManyArraysIsRefusedWhole) {
  const ArraySpec spec{DType::kF32, Shape{{4}}, Sharding::Replicated({0})};
  ASSERT_TRUE(cluster_->arrays().Put(one_, 1, spec, {0}).ok());
  const std::vector<uint64_t> many(240, 1);
  std::vector<uint64_t> results;
  for (uint64_t i = 0; i < many.size(); ++i) results.push_back(100 + i);
  EXPECT_EQ(cluster_->arrays()
                .Copy(one_, many, std::nullopt, std::nullopt, CopySemantics::kReuseInput, results)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cluster_->inspection().counts().arrays, 1u);
}

// What a request has made counts before it is in any table.
TEST_F(RecordMemoryTest, ARequestWhoseNodesTakeMoreThanIsLeftIsRefusedWhole) {
  const ArraySpec spec{DType::kF32, Shape{{4}}, Sharding::Replicated({0})};
  ASSERT_TRUE(cluster_->arrays().Put(one_, 1, spec, {0}).ok());
  const size_t before = cluster_->sessions().RecordRoom();
  const absl::Status refused = cluster_->arrays()
                                   .Copy(one_, std::vector<uint64_t>(50, 1), std::nullopt,
                                         std::nullopt, CopySemantics::kAlwaysCopy, {})
                                   .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(refused), HasSubstr("what this request makes hold"));
  EXPECT_EQ(cluster_->sessions().RecordRoom(), before);
  EXPECT_EQ(Describe(cluster_->inspection().CheckInvariants()), "OK");
}

TEST_F(RecordMemoryTest, TheTextsOfErrorArraysCount) {
  const ArraySpec spec{DType::kF32, Shape{{4}}, Sharding::Replicated({0})};
  const size_t before = cluster_->sessions().RecordRoom();
  ASSERT_TRUE(
      cluster_->arrays().MakeError(one_, 1, spec, absl::AbortedError(std::string(4000, 'x'))).ok());
  EXPECT_LE(cluster_->sessions().RecordRoom(), before - 4000);
  EXPECT_TRUE(cluster_->arrays().Destruct(one_, {1}).ok());
  EXPECT_EQ(cluster_->sessions().RecordRoom(), before);
}

TEST_F(RecordMemoryTest, TheTextsOfFailedWorkCount) {
  const ArraySpec spec{DType::kF32, Shape{{4}}, Sharding::Replicated({0})};
  const auto put = cluster_->arrays().Put(one_, 1, spec, {0});
  ASSERT_TRUE(put.ok());
  const size_t before = cluster_->sessions().RecordRoom();
  cluster_->arrays().ProvideUpload(put->upload, 0, absl::AbortedError(std::string(4000, 'x')));
  // The node is over.
  EXPECT_LE(cluster_->sessions().RecordRoom(), before - 2500);
  EXPECT_EQ(Describe(cluster_->inspection().CheckInvariants()), "OK");
}

TEST_F(RecordMemoryTest, WatchesCountUntilTheyAreAnsweredAndOneArrayKnowsEachOnce) {
  const ArraySpec spec{DType::kF32, Shape{{4}}, Sharding::Replicated({0})};
  const auto put = cluster_->arrays().Put(one_, 1, spec, {0});
  ASSERT_TRUE(put.ok());
  const size_t before = cluster_->sessions().RecordRoom();
  for (uint64_t token = 1; token <= 10; ++token)
    cluster_->arrays().Watch(one_, token, std::vector<uint64_t>(100, 1));
  EXPECT_EQ(cluster_->sessions().RecordRoom(),
            before - 10 * (PendingWatch::kWatch + PendingWatch::kWatcher));
  // Above the least that it may have, and what is left, a watch is answered with an error at once.
  for (uint64_t token = 11; token <= 2000; ++token) cluster_->arrays().Watch(one_, token, {1});
  EXPECT_THAT(actions_.lines, ::testing::Contains(::testing::StartsWith(
                                  "s1 watched 2000: RESOURCE_EXHAUSTED: this session waits for")));
  EXPECT_EQ(Describe(cluster_->inspection().CheckInvariants()), "OK");
  actions_.lines.clear();
  cluster_->arrays().ProvideUpload(put->upload, 0, absl::AbortedError("no bytes"));
  while (cluster_->sessions().RecordRoom() < before) cluster_->Turn();
  EXPECT_THAT(actions_.lines,
              ::testing::Contains(::testing::StartsWith("s1 watched 1: ABORTED: no bytes")));
}

TEST_F(RecordMemoryTest, SmallUploadsCountWithTheirBytesUntilTheyHaveEnded) {
  const ArraySpec spec{DType::kF32, Shape{{250}}, Sharding::Replicated({0})};
  const auto put = cluster_->arrays().Put(one_, 1, spec, {0});
  ASSERT_TRUE(put.ok());
  const size_t before = cluster_->sessions().BacklogOf(one_).record_bytes;
  cluster_->arrays().ProvideUpload(put->upload, 0, BytesRef(Blob::Make(1000)));
  EXPECT_EQ(cluster_->sessions().BacklogOf(one_).record_bytes, before + 2000);
  Report report;
  report.finished_through = 1;
  cluster_->fleet().OnReport(ExecutorId(1), Incarnation(7), report);
  EXPECT_EQ(cluster_->sessions().BacklogOf(one_).record_bytes, 0u);
}

class FewRecordsTest : public ClusterTest {
 protected:
  FewRecordsTest() : ClusterTest(Few()) {}
  static ClusterOptions Few() {
    ClusterOptions options = AtOnce();
    options.record_memory = 4 << 20;
    return options;
  }
};

// As a training step does whose results are the next one's arguments: no handle is left, but the
// device has yet to make what was asked for.
TEST_F(FewRecordsTest, WhoAsksForManyResultsAheadWaitsBeforeAnyIsRefused) {
  constexpr uint64_t kResults = 100;
  Start();
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, std::vector<ValueType>(kResults, F32({4})));
  int launches = 0;
  for (auto has = cluster.sessions().BacklogOf(session); has.record_bytes <= has.record_room;
       has = cluster.sessions().BacklogOf(session)) {  // SessionCaps::MayRead
    ASSERT_LT(++launches, 1000);
    std::vector<uint64_t> results;
    for (uint64_t r = 0; r < kResults; ++r) results.push_back(100 + launches * kResults + r);
    const auto run = cluster.executables().Execute(session, f, {1}, {}, results);
    ASSERT_TRUE(run.ok()) << launches << ": " << run.status();
    ASSERT_TRUE(cluster.arrays().Destruct(session, results).ok());
  }
  EXPECT_GT(launches, 20);
}

}  // namespace
}  // namespace fairway
