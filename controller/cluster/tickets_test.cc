// SPDX-License-Identifier: Apache-2.0
// The tickets in commands: each for the port that is asked, the transfer and the receiver.
#include <string>
#include <utility>
#include <vector>

#include "base/ticket.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"

namespace fairway {
namespace {

class TicketsTest : public ClusterTest {
 protected:
  static ClusterOptions WithKey() {
    ClusterOptions options = AtOnce();
    options.data_key = kController;
    return options;
  }
  TicketsTest() : ClusterTest(WithKey()) {}
  // Island ia of wa and wc, island ib of wb, each with one device.
  void SetUp() override {
    a = Up("wa", "ia", 2, kA);
    c = Up("wc", "ia", 2, kC);
    b = Up("wb", "ib", 1, kB);
    session = actions.Open(cluster);
    actions.weigh = [this](const Command& command) {
      commands.push_back(command);
      return 0;
    };
  }
  ExecutorId Up(const std::string& name, const std::string& island, int workers,
                const PortKey& key) {
    ExecutorSpec spec = Worker(name, island, 1);
    spec.island_workers = workers;
    spec.data_key = key;
    return cluster.fleet().ExecutorUp(spec).value();
  }
  template <typename T>
  std::vector<T> Sent() {
    std::vector<T> out;
    for (const Command& command : commands) {
      if (const T* one = std::get_if<T>(&command)) out.push_back(*one);
    }
    return out;
  }
  // Array 1: a shard on wa, and one on wc.
  PrepareReceive PutOnTwo() {
    constexpr int64_t kElements = 1 << 20;
    const auto put = cluster.arrays().Put(
        session, 1,
        {DType::kF32, Shape{{2 * kElements}}, Sharding::Tiled({0, 1}, {2}, {0, 1}).value()},
        {0, 1});
    for (const int32_t blob : {0, 1})
      cluster.arrays().ProvideUpload(put->upload, blob, BytesRef(Blob::Make(4 * kElements)));
    End(a, 1);
    End(c, 1);
    return Sent<PrepareReceive>().at(0);
  }

  static constexpr PortKey kController{9, 9}, kA{1, 1}, kB{2, 2}, kC{3, 3};
  static constexpr Incarnation kReceiver{7};  // of all executors
  ExecutorId c;
  std::vector<Command> commands;
};

TEST_F(TicketsTest, AnUploadTakesOneForTheControllersPort) {
  const PrepareReceive upload = PutOnTwo();
  ASSERT_EQ(upload.sources.size(), 1u);
  ASSERT_EQ(upload.sources[0].kind, ShardSource::Kind::kController);
  EXPECT_EQ(upload.sources[0].ticket, TicketFor(kController, upload.transfer, kReceiver));
}

TEST_F(TicketsTest, EachSourceOfACopyHasOneForItsOwnPort) {
  PutOnTwo();
  commands.clear();
  const ArraySpec whole{DType::kF32, Shape{{2 << 20}}, Sharding::SingleDevice(2)};
  const auto made =
      cluster.arrays().Reshard(session, {1}, {whole}, CopySemantics::kAlwaysCopy, {2});
  ASSERT_TRUE(made.ok()) << made.status();
  RunTurns();
  const auto receives = Sent<PrepareReceive>();
  ASSERT_EQ(receives.size(), 1u);
  const PrepareReceive& receive = receives[0];
  ASSERT_EQ(receive.sources.size(), 2u);
  EXPECT_EQ(receive.sources[0].endpoint, "wa:1");
  EXPECT_EQ(receive.sources[0].ticket, TicketFor(kA, receive.transfer, kReceiver));
  EXPECT_EQ(receive.sources[1].endpoint, "wc:1");
  EXPECT_EQ(receive.sources[1].ticket, TicketFor(kC, receive.transfer, kReceiver));
}

TEST_F(TicketsTest, TheMembersOfAGangHaveOneForEachPort) {
  const uint64_t f = Define(1, {0, 1}, {}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {}, {}, {1}).ok());
  const auto installs = Sent<InstallExecutable>();
  ASSERT_EQ(installs.size(), 2u);
  for (const InstallExecutable& install : installs) {
    ASSERT_EQ(install.members.size(), 2u);
    EXPECT_EQ(install.members[0].ticket, GangTicket(kA));
    EXPECT_EQ(install.members[1].ticket, GangTicket(kC));
  }
}

}  // namespace
}  // namespace fairway
