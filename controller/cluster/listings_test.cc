// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/listings.h"

#include <numeric>
#include <set>

#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster_fixture_for_test.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/inspection.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/sessions.h"
#include "graph/lowering.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ListingsTest : public ClusterTest {
 protected:
  explicit ListingsTest(ClusterOptions options = AtOnce()) : ClusterTest(std::move(options)) {}

  using Asked = Cluster::Listings::Asked;

  // One line for each row of the first page.
  Lines Sessions(const Asked& asked = {}) const {
    Lines lines;
    for (const SessionRow& row : cluster.listings().Sessions(asked).rows) {
      lines.push_back(
          fmt::format("s{} {}: {}, {} devices, {} arrays, {} programs, {} computations, "
                      "{} nodes, {} B",
                      row.id, row.tenant, row.state, row.devices, row.arrays, row.programs,
                      row.computations, row.nodes, row.device_bytes));
    }
    return lines;
  }
  Lines Arrays(const Asked& asked = {}) const {
    Lines lines;
    for (const ArrayRow& row : cluster.listings().Arrays(asked).rows) {
      lines.push_back(fmt::format("s{} {} {} {}, {} shards on [{}], {} B{}{}", row.session,
                                  row.handle, row.type, row.state, row.shards,
                                  fmt::join(row.islands, ","), row.bytes,
                                  row.error.empty() ? "" : ": ", row.error));
    }
    return lines;
  }
  Lines Programs(const Asked& asked = {}) const {
    Lines lines;
    for (const ProgramRow& row : cluster.listings().Programs(asked).rows) {
      lines.push_back(fmt::format("s{} {} {} {}, {} steps on [{}]", row.session, row.handle,
                                  row.is_program ? "program" : "computation", row.name, row.steps,
                                  fmt::join(row.islands, ",")));
    }
    return lines;
  }
  Lines Nodes(const Asked& asked = {}) const {
    Lines lines;
    for (const NodeRow& row : cluster.listings().Nodes(asked).rows) {
      lines.push_back(fmt::format("n{} of s{} {} {} {}: [{}] to {}, {} B, waits for {}", row.id,
                                  row.session, row.kind, row.name, row.state,
                                  fmt::join(row.from, ","), row.island, row.bytes, row.waits_for));
    }
    return lines;
  }
};

class StoredListingsTest : public ListingsTest {
 protected:
  StoredListingsTest() : ListingsTest(ClusterOptions()) {}
};

TEST_F(ListingsTest, SessionsSayWhatTheyHaveAndWaitFor) {
  Start();
  EXPECT_THAT(
      Sessions(),
      ElementsAre("s1 t: idle, 4 devices, 0 arrays, 0 programs, 0 computations, 0 nodes, 0 B"));
  PutReady(1, 0);
  Define(1, {0}, {F32({4})}, {F32({4})});
  const auto put =
      cluster.arrays().Put(session, 2, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(1)}, {0});
  ASSERT_TRUE(put.ok());
  actions.Open(cluster, "other");
  EXPECT_THAT(Sessions(), ElementsAre("s1 t: waits for bytes, 4 devices, 2 arrays, 0 programs, 1 "
                                      "computations, 1 nodes, 64 B",
                                      "s2 other: idle, 4 devices, 0 arrays, 0 programs, 0 "
                                      "computations, 0 nodes, 0 B"));
  EXPECT_EQ(Sessions({.tenant = "other"}).size(), 1u);
  EXPECT_EQ(Sessions({.session = SessionId(1)}).size(), 1u);
  EXPECT_THAT(Sessions({.session = SessionId(1), .tenant = "other"}), IsEmpty());
  EXPECT_THAT(Sessions({.session = SessionId(7)}), IsEmpty());
  EXPECT_GT(cluster.listings().Sessions({}).rows[0].record_bytes, 0u);
}

TEST_F(ListingsTest, ArraysSayTheirTypePlaceStateAndError) {
  Start();
  PutReady(1, 0);
  PutReady(2, 2, 8);
  const auto put =
      cluster.arrays().Put(session, 3, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(3)}, {0});
  ASSERT_TRUE(put.ok());
  PutReady(4, 0);
  ASSERT_TRUE(cluster.arrays().Delete(session, {4}).ok());
  ASSERT_TRUE(cluster.arrays()
                  .MakeError(session, 5, {DType::kF32, Shape{{2}}, Sharding::SingleDevice(0)},
                             absl::InternalError("broken"))
                  .ok());
  const auto both = cluster.arrays().Assemble(
      session, {DType::kF32, Shape{{8}}, Sharding::Tiled({0, 3}, {2}, {0, 1}).value()}, {1, 3},
      CopySemantics::kReuseInput, 6);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_THAT(Arrays(), ElementsAre("s1 1 f32[4] ready, 1 shards on [ia], 16 B",
                                    "s1 2 f32[8] ready, 1 shards on [ib], 32 B",
                                    "s1 3 f32[4] pending, 1 shards on [ib], 16 B",
                                    "s1 4 f32[4] deleted, 1 shards on [ia], 16 B",
                                    "s1 5 f32[2] failed, 0 shards on [], 0 B: broken",
                                    "s1 6 f32[8] pending, 2 shards on [ia,ib], 32 B"));
  cluster.fleet().ExecutorLost(a, absl::UnavailableError("gone"));
  RunTurns();
  EXPECT_THAT(Arrays({.after = {1, 5}}),
              ElementsAre(::testing::StartsWith("s1 6 f32[8] failed, 2 shards")));
  actions.Open(cluster, "other");
  EXPECT_THAT(Arrays({.tenant = "other"}), IsEmpty());
  EXPECT_THAT(Arrays({.session = SessionId(2)}), IsEmpty());
}

TEST_F(StoredListingsTest, AnUploadThatLiesWithTheControllerSaysSo) {
  Start();
  const auto put =
      cluster.arrays().Put(session, 1, {DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)}, {0});
  ASSERT_TRUE(put.ok());
  EXPECT_THAT(Nodes(), ElementsAre("n1 of s1 upload put of f32[4] waiting: [] to ia, 0 B, "
                                   "waits for bytes of its client"));
  cluster.arrays().ProvideUpload(put->upload, 0, Bytes("aaaabbbbccccdddd"));
  EXPECT_THAT(Arrays(), ElementsAre("s1 1 f32[4] stored, 1 shards on [ia], 16 B"));
}

TEST_F(ListingsTest, NodesSayWhatTheyDoAndWaitFor) {
  Start(150);  // an array takes 64 bytes
  PutReady(1, 0);
  const uint64_t f = Define(1, {0}, {F32({4})}, {F32({4})});
  ASSERT_TRUE(cluster.executables().Execute(session, f, {1}, {}, {2}).ok());
  ASSERT_TRUE(cluster.executables().Execute(session, f, {2}, {}, {3}).ok());
  ASSERT_TRUE(cluster.arrays()
                  .Copy(session, {1}, std::vector<int32_t>{2}, std::nullopt,
                        CopySemantics::kAlwaysCopy, {4})
                  .ok());
  cluster.arrays().Fetch(session, 9, 2);
  EXPECT_THAT(
      Nodes(),
      ElementsAre("n2 of s1 launch f1 prepared: [] to ia, 64 B, waits for its code",
                  "n3 of s1 launch f1 queued: [] to ia, 64 B, waits for memory",
                  "n4 of s1 move copy of f32[4] prepared: [ia] to ib, 64 B, waits for bytes",
                  "n5 of s1 fetch fetch queued: [] to ia, 16 B, waits for node 2"));
  Installed(a, 1);
  EXPECT_THAT(
      Nodes(),
      ElementsAre("n2 of s1 launch f1 launched: [] to ia, 64 B, waits for worker wa",
                  "n3 of s1 launch f1 queued: [] to ia, 64 B, waits for memory",
                  "n4 of s1 move copy of f32[4] prepared: [ia] to ib, 64 B, waits for bytes",
                  "n5 of s1 fetch fetch queued: [] to ia, 16 B, waits for node 2"));
  EXPECT_THAT(
      Nodes({.transfers = true}),
      ElementsAre("n4 of s1 move copy of f32[4] prepared: [ia] to ib, 64 B, waits for bytes",
                  "n5 of s1 fetch fetch queued: [] to ia, 16 B, waits for node 2"));
  EXPECT_EQ(Nodes({.session = session}), Nodes());
  EXPECT_THAT(Nodes({.tenant = "other"}), IsEmpty());
  EXPECT_EQ(cluster.listings().Nodes({}).total, 4u);
}

TEST_F(ListingsTest, ComputationsAndProgramsAreInOneListByTheirHandles) {
  Start();
  const uint64_t f = Define(1, {2}, {F32({4})}, {F32({4})});
  const ArraySpec type{DType::kF32, Shape{{4}}, Sharding::SingleDevice(0)};
  Program program;
  program.name = "p";
  program.slices = {{"a", 1}};
  Computation computation;
  computation.code = std::make_shared<const std::string>("code");
  computation.parameters = computation.results = {type};
  program.computations.push_back(computation);
  program.graphs.resize(1);
  Graph& graph = program.graphs[0];
  graph.nodes.push_back({"", "", ArgumentNode{{0, type}, false}});
  graph.nodes.push_back({"", "", ComputeNode{0, 0, {{0, 0}}}});
  graph.results.push_back({1, 0});
  ProgramBinding binding;
  binding.code[{0, 0}] = {ExecutableId(1), {{DType::kF32, Shape{{4}}, ""}}, {}, 64};
  binding.places = {0};
  const auto plan = Lower(program, *CheckProgram(program), binding);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(cluster.programs().Bind(session, 7, {"p", *plan, {{0}}, false}).ok());
  EXPECT_THAT(Programs(), ElementsAre("s1 7 program p, 1 steps on [ia]",
                                      fmt::format("s1 {} computation f1, 1 steps on [ib]", f)));
  EXPECT_THAT(Programs({.after = {1, 7}}),
              ElementsAre(fmt::format("s1 {} computation f1, 1 steps on [ib]", f)));
  EXPECT_EQ(cluster.listings().Programs({}).total, 2u);
  EXPECT_THAT(Programs({.tenant = "other"}), IsEmpty());
}

TEST_F(ListingsTest, ManyRowsComeInPagesEachOnce) {
  Start();
  const ArraySpec spec{DType::kF32, Shape{{1}}, Sharding::SingleDevice(0)};
  const SessionId other = actions.Open(cluster, "other");
  for (uint64_t i = 1; i <= 600; ++i) {
    ASSERT_TRUE(cluster.arrays().Put(i % 3 == 0 ? other : session, i, spec, {0}).ok());
    actions.Take();
  }
  const auto through = [&](Asked asked, auto page_of, auto id_of) {
    std::set<uint64_t> seen;
    size_t pages = 0, rows = 0;
    for (bool more = true; more; ++pages) {
      const auto page = page_of(asked);
      EXPECT_LE(page.rows.size(), Cluster::Listings::kMostRows);
      for (const auto& row : page.rows) seen.insert(id_of(row));
      rows += page.rows.size();
      more = page.next.has_value();
      if (more) asked.after = *page.next;
    }
    EXPECT_EQ(rows, seen.size()) << "a row came twice";
    return std::pair(rows, pages);
  };
  const auto arrays = [&](const Asked& asked) { return cluster.listings().Arrays(asked); };
  const auto handle = [](const ArrayRow& row) { return row.handle; };
  EXPECT_EQ(through({}, arrays, handle), std::pair(size_t{600}, size_t{3}));
  EXPECT_EQ(through({.session = other}, arrays, handle), std::pair(size_t{200}, size_t{1}));
  EXPECT_EQ(through({.tenant = "t"}, arrays, handle), std::pair(size_t{400}, size_t{2}));
  EXPECT_EQ(cluster.listings().Arrays({.after = {1, 599}}).total, 600u);
  const auto nodes = [&](const Asked& asked) { return cluster.listings().Nodes(asked); };
  const auto id = [](const NodeRow& row) { return row.id.value; };
  EXPECT_EQ(through({}, nodes, id), std::pair(size_t{600}, size_t{3}));
  EXPECT_EQ(through({.session = other}, nodes, id).first, 200u);
  EXPECT_EQ(through({.tenant = "other", .transfers = true}, nodes, id).first, 200u);
  for (int i = 0; i < 300; ++i) actions.Open(cluster, "third");
  const auto sessions = [&](const Asked& asked) { return cluster.listings().Sessions(asked); };
  const auto number = [](const SessionRow& row) { return row.id.value; };
  EXPECT_EQ(through({}, sessions, number), std::pair(size_t{302}, size_t{2}));
  EXPECT_EQ(through({.tenant = "third"}, sessions, number), std::pair(size_t{300}, size_t{2}));
}

TEST_F(ListingsTest, APageOfLargeRowsEndsSooner) {
  constexpr int kDevices = 1000;
  cluster.fleet().ExecutorUp(Worker("wide", "i", kDevices)).value();
  session = actions.Open(cluster);
  std::vector<int32_t> devices, blobs;
  std::vector<Shape> shapes;  // of two kinds, so each shard has its own
  for (int32_t i = 0; i < kDevices; ++i) {
    devices.push_back(i);
    blobs.push_back(i % 2);
    shapes.push_back(Shape{{1 + i % 2}});
  }
  const ArraySpec spec{DType::kF32, Shape{{kDevices * 3 / 2}},
                       Sharding::Concrete(devices, shapes).value()};
  for (uint64_t i = 1; i <= 10; ++i) {
    ASSERT_TRUE(cluster.arrays().Put(session, i, spec, blobs).ok());
    actions.Take();
  }
  size_t rows = 0, pages = 0;
  for (Asked asked; pages == 0 || asked.after.id != 0; ++pages) {
    const auto page = cluster.listings().Arrays(asked);
    EXPECT_LE(page.rows.size(), 3u);
    rows += page.rows.size();
    for (const ArrayRow& row : page.rows) EXPECT_EQ(row.bytes, 6 * kDevices);
    asked.after = page.next.value_or(ListingCursor());
  }
  EXPECT_EQ(rows, 10u);
  EXPECT_GE(pages, 4u);
}

}  // namespace
}  // namespace fairway
