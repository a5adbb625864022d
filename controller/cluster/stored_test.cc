// SPDX-License-Identifier: Apache-2.0
// Small uploads stay with the controller until something uses them.
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"

namespace fairway {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::string_view kText = "aaaabbbbccccdddd";  // f32[4]

ArraySpec OnDevice(int32_t device, int64_t elements = 4, const std::string& kind = "") {
  return {DType::kF32, Shape{{elements}}, Sharding::SingleDevice(device, kind)};
}

class StoredTest : public ClusterTest {
 protected:
  explicit StoredTest(ClusterOptions options = ClusterOptions())
      : ClusterTest(std::move(options)) {}

  NodeId Put(uint64_t handle, const ArraySpec& spec, std::vector<int32_t> blobs = {0}) {
    const auto put = cluster.arrays().Put(session, handle, spec, std::move(blobs));
    EXPECT_TRUE(put.ok()) << put.status();
    return put->upload;
  }
  // Uploads f32[4] to a device.
  void Upload(uint64_t handle, int32_t device) {
    cluster.arrays().ProvideUpload(Put(handle, OnDevice(device)), 0, Bytes(kText));
  }
  absl::Status Copy(uint64_t from, int32_t device, uint64_t to,
                    CopySemantics semantics = CopySemantics::kReuseInput) {
    return cluster.arrays()
        .Copy(session, {from}, std::vector<int32_t>{device}, std::nullopt, semantics, {to})
        .status();
  }
  int64_t Used() const {
    int64_t used = 0;
    for (const DeviceUsage& usage : cluster.fleet().Usage()) used += usage.used;
    return used;
  }
  std::string Fetched(uint64_t handle) {
    actions.Take();
    cluster.arrays().Fetch(session, 99, handle);
    const Lines lines = actions.Take();
    EXPECT_THAT(lines, ElementsAre(StartsWith("s1 fetched 99: ")));
    return lines.empty() ? "" : lines[0].substr(lines[0].find(": ") + 2);
  }
};

TEST_F(StoredTest, AnUploadThatNothingUsesAsksNoExecutor) {
  Start();
  const NodeId upload = Put(1, OnDevice(0));
  cluster.arrays().Watch(session, 5, {1});
  cluster.arrays().Fetch(session, 6, 1);
  EXPECT_THAT(actions.Take(), IsEmpty());
  cluster.arrays().ProvideUpload(upload, 0, Bytes(kText));
  EXPECT_THAT(actions.Take(), ElementsAre("s1 watched 5: OK", "s1 fetched 6: aaaabbbbccccdddd"));
  EXPECT_EQ(Fetched(1), kText);
  EXPECT_EQ(cluster.inspection().counts().executor_fetches, 0u);
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
  EXPECT_EQ(Used(), 0);
  EXPECT_GE(cluster.inspection().counts().stored_bytes, kText.size());
  EXPECT_TRUE(cluster.arrays().Destruct(session, {1}).ok());
  EXPECT_THAT(actions.Take(), IsEmpty());
  EXPECT_EQ(cluster.inspection().counts().stored_bytes, 0u);
  EXPECT_EQ(cluster.inspection().counts().groups, 0u);
}

TEST_F(StoredTest, TheFirstComputationThatReadsItTakesItAlongAndItStaysThere) {
  Start();
  Upload(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  EXPECT_THAT(actions.Take(),
              ElementsAre("e1 <- receive n2 g2 from [inline 16B] for its reader",
                          "e1 <- install x1", "e1 <- prepare n3 x1 in [2:0] out [3] on [0]"));
  Installed(a, 1);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- launch n3 id 1 ahead keep [] inline [3:0]"));
  End(a, 2);
  End(a, 3);
  actions.Take();
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {3}).ok());
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- prepare n4 x1 in [2:0] out [4] on [0]",
                                          "e1 <- launch n4 id 2 keep [] inline [4:0]"));
  End(a, 4);
  EXPECT_EQ(Fetched(1), kText);
  EXPECT_TRUE(cluster.arrays().Destruct(session, {1, 2, 3}).ok());
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- free [2, 3, 4]"));
  EXPECT_EQ(Used(), 0);
}

TEST_F(StoredTest, ACopyToAnotherIslandIsAnotherStoredArray) {
  Start();
  Upload(1, 0);
  ASSERT_TRUE(Copy(1, 2, 2).ok());
  EXPECT_EQ(Fetched(2), kText);
  const uint64_t g = Define(2, {2}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, g, {2}, {}, {3}).ok());
  const Lines lines = actions.Take();
  EXPECT_THAT(lines, Each(StartsWith("e2 <- ")));
  EXPECT_THAT(lines, Contains(HasSubstr("from [inline 16B]")));
}

TEST_F(StoredTest, ADeviceWithoutMemoryIsNotWaitedForByThoseWhoDoNotUseIt) {
  Start(128);
  const uint64_t fill = Define(1, {0}, {}, {F32({32})});
  ASSERT_TRUE(cluster.executables().Execute(session, fill, {}, {}, {9}).ok());  // never ends
  Upload(1, 0);
  cluster.arrays().Watch(session, 5, {1});
  ASSERT_TRUE(Copy(1, 3, 2).ok());
  const uint64_t g = Define(2, {3}, {F32({4})}, {F32({4})});
  actions.Take();
  ASSERT_TRUE(cluster.executables().Execute(session, g, {2}, {}, {3}).ok());
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e2 <- receive n")));
  Installed(b, 2);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e2 <- launch n5")));
  End(b, 4);
  End(b, 5);
}

TEST_F(StoredTest, ALostExecutorTakesNoUploadThatNothingUsedThere) {
  Start();
  Upload(1, 0);
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  EXPECT_EQ(Fetched(1), kText);
  ASSERT_TRUE(Copy(1, 2, 2).ok());
  const uint64_t g = Define(2, {2}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, g, {2}, {}, {3}).ok());
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e2 <- receive n")));
  cluster.fleet().IslandGivenUp(cluster.sessions().Devices(session)[0].island_id,
                                absl::UnavailableError("away"));
  EXPECT_EQ(Fetched(1), kText);
  Upload(4, 1);
  EXPECT_EQ(Fetched(4), kText);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {5}).ok());
  cluster.arrays().Watch(session, 6, {5});
  EXPECT_THAT(actions.Take(),
              Contains(AllOf(HasSubstr("watched 6: UNAVAILABLE"), HasSubstr("away"))));
}

TEST_F(StoredTest, WhatWasLostOnItsDeviceIsPutThereAnew) {
  Start();
  Upload(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  Installed(a, 1);
  End(a, 2);
  End(a, 3);
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  actions.Take();
  cluster.arrays().Watch(session, 5, {2});
  EXPECT_THAT(actions.Take(), ElementsAre(HasSubstr("watched 5: DATA_LOSS")));
  ASSERT_TRUE(cluster.fleet().ExecutorUp(Worker("wa", "ia", 2)).ok());
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {3}).ok());
  EXPECT_THAT(actions.Take(), Contains("e1 <- receive n4 g4 from [inline 16B] for its reader"));
  Installed(a, 1);
  End(a, 4);
  End(a, 5);
  cluster.arrays().Watch(session, 6, {3});
  EXPECT_THAT(actions.Take(), Contains("s1 watched 6: OK"));
}

TEST_F(StoredTest, WhatIsLostOnItsWayIsLostWithTheComputationBehindIt) {
  Start();
  Upload(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  Installed(a, 1);
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("launch n3")));
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("killed"));
  cluster.arrays().Watch(session, 5, {2});
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("watched 5: DATA_LOSS")));
  EXPECT_EQ(Fetched(1), kText);
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
  EXPECT_EQ(Used(), 0);
}

TEST_F(StoredTest, AComputationWaitsForBytesThatHaveNotCome) {
  Start();
  const NodeId upload = Put(1, OnDevice(0));
  ASSERT_TRUE(Copy(1, 2, 2).ok());
  const uint64_t g = Define(2, {2}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, g, {2}, {}, {3}).ok());
  EXPECT_THAT(actions.Take(), Not(Contains(HasSubstr("receive"))));
  EXPECT_FALSE(cluster.sessions().BacklogOf(session).waits_for_memory);
  EXPECT_TRUE(cluster.sessions().BacklogOf(session).waits_for_bytes);
  cluster.arrays().ProvideUpload(upload, 0, Bytes(kText));
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e2 <- receive")));
}

TEST_F(StoredTest, BytesThatFailFailWhatIsMadeOfThemWithTheirError) {
  Start();
  const NodeId upload = Put(1, OnDevice(0));
  ASSERT_TRUE(Copy(1, 2, 2).ok());
  const uint64_t g = Define(2, {2}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, g, {2}, {}, {3}).ok());
  cluster.arrays().Watch(session, 5, {3});
  actions.Take();
  cluster.arrays().ProvideUpload(upload, 0, absl::DataLossError("half of it"));
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("s1 watched 5: DATA_LOSS: half of it")));
  EXPECT_EQ(Fetched(2), "DATA_LOSS: half of it");
  EXPECT_EQ(cluster.inspection().counts().stored_bytes, 0u);
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
}

TEST_F(StoredTest, ItIsCutAndJoinedByTheController) {
  Start();
  const ArraySpec halves{DType::kF32, Shape{{4}}, Sharding::Tiled({2, 3}, {2}, {0, 1}).value()};
  const ArraySpec all{DType::kF32, Shape{{4}}, Sharding::Replicated({0, 1, 3})};
  Upload(1, 0);
  ASSERT_TRUE(
      cluster.arrays().Reshard(session, {1}, {halves}, CopySemantics::kReuseInput, {2}).ok());
  ASSERT_TRUE(cluster.arrays().Disassemble(session, 2, CopySemantics::kReuseInput, {3, 4}).ok());
  EXPECT_EQ(Fetched(3), "aaaabbbb");
  EXPECT_EQ(Fetched(4), "ccccdddd");
  ASSERT_TRUE(cluster.arrays().Reshard(session, {2}, {all}, CopySemantics::kAlwaysCopy, {5}).ok());
  EXPECT_EQ(Fetched(5), kText);
  const ArraySpec bytes{DType::kU8, Shape{{16}}, Sharding::SingleDevice(0)};
  ASSERT_TRUE(
      cluster.arrays().Bitcast(session, {1}, {bytes}, CopySemantics::kReuseInput, {6}).ok());
  EXPECT_EQ(Fetched(6), kText);
  EXPECT_EQ(cluster.inspection().counts().executor_fetches, 0u);
  EXPECT_EQ(Used(), 0);
}

TEST_F(StoredTest, WhatIsMadeOfItAndOfOthersIsMadeOnDevices) {
  Start();
  Upload(1, 0);
  const uint64_t f = Define(1, {1}, {}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {}, {}, {2}).ok());
  const ArraySpec two{DType::kF32, Shape{{8}}, Sharding::Tiled({0, 1}, {2}, {0, 1}).value()};
  ASSERT_TRUE(cluster.arrays().Assemble(session, two, {1, 2}, CopySemantics::kReuseInput, 3).ok());
  actions.Take();
  ASSERT_TRUE(cluster.arrays()
                  .Reshard(session, {3}, {OnDevice(2, 8)}, CopySemantics::kReuseInput, {4})
                  .ok());
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e1 <- receive n3 g4 from [inline 16B]")));
}

TEST_F(StoredTest, ItIsDonatedAsOthersAre) {
  Start(64);
  Upload(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4}, true)}, {F32({4})});
  const uint64_t g = Define(2, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  EXPECT_FALSE(cluster.executables().Execute(session, g, {1}, {}, {3}).ok());
  Installed(a, 1);
  EXPECT_THAT(actions.Take(), Contains("e1 <- launch n3 id 1 ahead keep [] inline [3:0]"));
  End(a, 2);
  End(a, 3);
  EXPECT_EQ(Used(), 64);
  EXPECT_EQ(cluster.inspection().counts().stored_bytes, 0u);
  EXPECT_TRUE(*cluster.arrays().IsDeleted(session, 1));
}

TEST_F(StoredTest, DeletingItFreesItOnItsDeviceToo) {
  Start();
  Upload(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  Installed(a, 1);
  End(a, 2);
  End(a, 3);
  actions.Take();
  EXPECT_TRUE(cluster.arrays().Delete(session, {1}).ok());
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- free [2]"));
  EXPECT_EQ(cluster.inspection().counts().stored_bytes, 0u);
}

TEST_F(StoredTest, ASessionThatEndsLeavesNothing) {
  Start();
  Upload(1, 0);
  Put(2, OnDevice(2));  // its bytes never come
  ASSERT_TRUE(Copy(2, 0, 3).ok());
  const uint64_t f = Define(1, {0}, {F32({4}), F32({4})}, {F32({})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1, 3}, {}, {4}).ok());
  cluster.sessions().Close(session);
  End(a, 4);  // the put of array 1 had been sent
  EXPECT_EQ(cluster.inspection().counts().nodes, 0u);
  EXPECT_EQ(cluster.inspection().counts().groups, 0u);
  EXPECT_EQ(Used(), 0);
}

TEST_F(StoredTest, AMemoryThatTheDeviceDoesNotHaveIsRefusedAtOnce) {
  Start();
  EXPECT_EQ(cluster.arrays().Put(session, 1, OnDevice(0, 4, "moon"), {0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cluster.arrays().Put(session, 1, OnDevice(7), {0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(StoredTest, ALargerUploadGoesToItsDeviceAtOnce) {
  Start();
  const int64_t elements = (64 << 10) / 4;
  cluster.arrays().ProvideUpload(Put(1, OnDevice(0, elements)), 0,
                                 BytesRef(Blob::Make(4 * elements)));
  EXPECT_THAT(actions.Take(), IsEmpty());
  const NodeId larger = Put(2, OnDevice(0, elements + 1));
  cluster.arrays().ProvideUpload(larger, 0, BytesRef(Blob::Make(4 * elements + 4)));
  EXPECT_THAT(actions.Take(), Contains(HasSubstr("e1 <- receive")));
}

class StoredShareTest : public StoredTest {
 protected:
  static ClusterOptions Small() {
    ClusterOptions options;
    options.stored_session_bytes = 1000;
    return options;
  }
  StoredShareTest() : StoredTest(Small()) {}
};

TEST_F(StoredShareTest, BeyondTheSessionsShareUploadsGoToTheirDevicesAtOnce) {
  Start();
  Upload(1, 0);
  Upload(2, 0);
  EXPECT_THAT(actions.Take(), IsEmpty());
  Upload(3, 0);
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- receive n3 g3 from [inline 16B]"));
  ASSERT_TRUE(Copy(1, 2, 4).ok());  // array 1 goes to its own device first
  EXPECT_THAT(actions.Take(), ElementsAre("e1 <- receive n4 g5 from [inline 16B] for its reader",
                                          HasSubstr("e1 <- send"), HasSubstr("e2 <- receive n5")));
  EXPECT_LE(cluster.inspection().counts().stored_bytes, 1000u);
  EXPECT_TRUE(cluster.arrays().Destruct(session, {2}).ok());
  actions.Take();
  Upload(5, 0);
  EXPECT_THAT(actions.Take(), IsEmpty());
}

}  // namespace
}  // namespace fairway
