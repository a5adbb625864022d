// SPDX-License-Identifier: Apache-2.0
#include "controller/compile/compile_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cluster/executable_spec.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/fleet.h"
#include "controller/cluster/sessions.h"
#include "controller/ifrt/test_cluster.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

v1::CompileOptions Options(int partitions) {
  v1::CompileOptions options;
  options.set_num_replicas(1);
  options.set_num_partitions(partitions);
  options.add_devices(99);  // ignored
  return options;
}

KnownProgram Known(std::string program) {
  return KnownProgram(std::make_shared<const std::string>(std::move(program)));
}

class CompileServiceTest : public testing::Test {
 protected:
  CompileServiceTest() {
    session_ = cluster_.cluster().sessions().Open("t").value();
    devices_ = cluster_.cluster().sessions().Devices(session_);
  }
  void Compile(const std::string& program, int first, int count, bool portable = false) {
    v1::CompileOptions options = Options(count);
    options.set_portable(portable);
    std::vector<DeviceId> devices;
    for (int i = first; i < first + count; ++i) devices.push_back(devices_[i].device);
    cluster_.compiler().Compile(
        Known(program), options, {session_, devices_[first].island_id, devices},
        [this](absl::StatusOr<CompiledProgram> result) { results_.push_back(result); });
  }
  TestCluster cluster_;
  SessionId session_;
  std::vector<VirtualDevice> devices_;
  std::vector<absl::StatusOr<CompiledProgram>> results_;
};

TEST_F(CompileServiceTest, RequestsInFlightAreJoinedAndLaterOnesCached) {
  Compile("p", 0, 2);
  Compile("p", 0, 2);
  EXPECT_EQ(cluster_.open_compilations(), 1u);
  cluster_.AnswerCompile(TestCode(1, 1, 2));
  Compile("p", 0, 2);
  ASSERT_EQ(results_.size(), 3u);
  for (const auto& result : results_) EXPECT_EQ(result.value().id, results_[0].value().id);
  EXPECT_TRUE(cluster_.cluster().executables().Has(results_[0]->id));
  EXPECT_EQ(cluster_.compiler().compilations(), 1u);
  EXPECT_EQ(cluster_.compiler().cache_hits(), 2u);
}

TEST_F(CompileServiceTest, OneCompilationServesEveryPlacement) {
  Compile("p", 0, 2);
  EXPECT_THAT(cluster_.last_options().devices(), testing::ElementsAre(0, 1));
  cluster_.AnswerCompile(TestCode(1, 1, 2));
  Compile("p", 2, 2);  // the other island
  EXPECT_EQ(cluster_.open_compilations(), 0u);
  ASSERT_EQ(results_.size(), 2u);
  EXPECT_NE(results_[0]->id, results_[1].value().id);
  EXPECT_TRUE(cluster_.cluster().executables().Bind(session_, 0, results_[1]->id, {2, 3}).ok());
  EXPECT_FALSE(cluster_.cluster().executables().Bind(session_, 0, results_[1]->id, {0, 1}).ok());
}

// The version names the plugin and the processor (pjrt::Client::platform_version).
TEST_F(CompileServiceTest, AnIslandOfAnotherVersionHasItsOwnCode) {
  Cluster& cluster = cluster_.cluster();
  ExecutorSpec other = cluster.fleet().Executors()[1].spec;
  cluster.fleet().ExecutorLost(cluster_.b, absl::UnavailableError("its host is replaced"));
  other.incarnation = Incarnation(8);
  other.platform_version += "; CPU 2";
  ASSERT_TRUE(cluster.fleet().ExecutorUp(other).ok());
  Compile("p", 0, 1, /*portable=*/true);
  cluster_.AnswerCompile(TestCode(1, 1, 1));
  Compile("p", 2, 1, /*portable=*/true);
  EXPECT_EQ(cluster_.open_compilations(), 1u);
  EXPECT_EQ(cluster_.compiler()
                .Place(results_.at(0).value().id, devices_[2].island_id, {devices_[2].device})
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
}

// A program with unreduced shardings (docs/design/0022-unreduced.md).
TEST_F(CompileServiceTest, CodeThatNamesItsDevicesIsCompiledForEachPlacement) {
  CompiledCode code = TestCode(1, 1, 2);
  code.metadata.set_names_devices(true);
  const auto compile = [&](std::vector<int> places) {
    std::vector<DeviceId> devices;
    for (const int place : places) devices.push_back(devices_[place].device);
    cluster_.compiler().Compile(
        Known("p"), Options(2), {session_, devices_[places[0]].island_id, devices},
        [this](absl::StatusOr<CompiledProgram> result) { results_.push_back(result); });
  };
  compile({0, 1});
  compile({1, 0});  // waits for the same compilation, in vain
  EXPECT_EQ(cluster_.open_compilations(), 1u);
  cluster_.AnswerCompile(code);
  EXPECT_EQ(results_.size(), 1u);
  EXPECT_EQ(cluster_.open_compilations(), 1u);
  EXPECT_THAT(cluster_.last_options().devices(), testing::ElementsAre(1, 0));
  cluster_.AnswerCompile(code);
  ASSERT_EQ(results_.size(), 2u);
  EXPECT_NE(results_[0].value().id, results_[1].value().id);
  compile({1, 0});
  compile({0, 1});
  compile({3, 2});  // another island, but the same ordinals
  EXPECT_EQ(cluster_.open_compilations(), 0u);
  ASSERT_EQ(results_.size(), 5u);
  EXPECT_EQ(results_[2].value().id, results_[1]->id);
  EXPECT_EQ(results_[3].value().id, results_[0]->id);
  EXPECT_TRUE(
      cluster_.cluster().executables().Bind(session_, 0, results_[4].value().id, {3, 2}).ok());
}

TEST_F(CompileServiceTest, OtherProgramsAndOptionsAreCompiledAnew) {
  Compile("p", 0, 1);
  Compile("q", 0, 1);
  Compile("p", 0, 2);
  EXPECT_EQ(cluster_.open_compilations(), 3u);
}

// Whoever has taken over a compile process of its own may have made it answer with false code.
TEST_F(CompileServiceTest, TenantsShareNoCode) {
  for (const char* tenant : {"red", "blue", "red"}) {
    const SessionId session = cluster_.cluster().sessions().Open(tenant).value();
    cluster_.compiler().Compile(
        Known("p"), Options(1), {session, devices_[0].island_id, {devices_[0].device}},
        [this](absl::StatusOr<CompiledProgram> result) { results_.push_back(result); });
  }
  EXPECT_EQ(cluster_.open_compilations(), 2u);
  EXPECT_EQ(cluster_.compiler().cache_hits(), 1u);
}

TEST_F(CompileServiceTest, FailuresReachAllWhoWaitAndAreNotKept) {
  Compile("p", 0, 1);
  Compile("p", 0, 1);
  cluster_.AnswerCompile(absl::InvalidArgumentError("line 1"));
  ASSERT_EQ(results_.size(), 2u);
  EXPECT_EQ(results_[1].status().code(), absl::StatusCode::kInvalidArgument);
  Compile("p", 0, 1);
  EXPECT_EQ(cluster_.open_compilations(), 1u);
}

TEST_F(CompileServiceTest, NothingIsCompiledForADrainedIslandOrByItsWorkers) {
  auto& fleet = cluster_.cluster().fleet();
  const std::string drained = devices_[2].island;
  const auto is_drained = [](const absl::Status& status) {
    return status.code() == absl::StatusCode::kUnavailable &&
           Text(status).find("is drained: op cordoned it on") != std::string::npos;
  };
  Compile("q", 2, 1);
  ASSERT_TRUE(fleet.DrainIsland(drained, Cordon{.by = "op"})->drained);
  // Neither is code that was being compiled for it.
  cluster_.AnswerCompile(TestCode(1, 1, 1));
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_TRUE(is_drained(results_[0].status())) << results_[0].status();
  Compile("q", 2, 1);
  Compile("p", 2, 1);
  EXPECT_EQ(cluster_.open_compilations(), 0u);
  ASSERT_EQ(results_.size(), 3u);
  EXPECT_TRUE(is_drained(results_[1].status())) << results_[1].status();
  EXPECT_TRUE(is_drained(results_[2].status())) << results_[2].status();
  // Its workers are not asked in the place of those of another one.
  Compile("p", 0, 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(cluster_.last_island(), devices_[0].island_id);
    cluster_.AnswerCompile(absl::UnavailableError("gone"));
  }
  ASSERT_EQ(results_.size(), 4u);
  EXPECT_THAT(Text(results_[3].status()), testing::HasSubstr("gone"));
  // Nor once more if it has been drained meanwhile.
  Compile("r", 0, 1);
  ASSERT_TRUE(fleet.DrainIsland(devices_[0].island, Cordon{.by = "op"})->drained);
  cluster_.AnswerCompile(absl::UnavailableError("gone"));
  EXPECT_EQ(cluster_.open_compilations(), 0u);
  EXPECT_EQ(results_.size(), 5u);
}

TEST_F(CompileServiceTest, WhatAWorkerDidNotEndIsAskedAgainHereAndThenElsewhere) {
  const absl::Status gone = absl::UnavailableError("worker w0 went away while it compiled");
  Compile("p", 0, 1);
  const IslandId here = cluster_.last_island();
  cluster_.AnswerCompile(gone);
  EXPECT_EQ(cluster_.last_island(), here);
  cluster_.AnswerCompile(gone);
  EXPECT_NE(cluster_.last_island(), here);
  EXPECT_TRUE(results_.empty());
  cluster_.AnswerCompile(TestCode(1, 1, 1));
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_TRUE(results_[0].ok()) << results_[0].status();
  // The code is for devices of the island that was asked for first.
  EXPECT_TRUE(cluster_.cluster().executables().Bind(session_, 0, results_[0]->id, {0}).ok());
}

TEST_F(CompileServiceTest, WhatMakesWorkersGoAwayIsNotAskedForEver) {
  Compile("p", 0, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(results_.empty());
    cluster_.AnswerCompile(absl::UnavailableError("gone"));
  }
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0].status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(cluster_.open_compilations(), 0u);
}

TEST_F(CompileServiceTest, AnotherIslandIsAskedOnlyWhenItIsOfTheSamePlatform) {
  Cluster& cluster = cluster_.cluster();
  ExecutorSpec other = cluster.fleet().Executors()[1].spec;
  cluster.fleet().ExecutorLost(cluster_.b, absl::UnavailableError("its host is replaced"));
  other.incarnation = Incarnation(8);
  other.platform_version += "; CPU 2";
  ASSERT_TRUE(cluster.fleet().ExecutorUp(other).ok());
  Compile("p", 0, 1);
  cluster_.AnswerCompile(absl::UnavailableError("gone"));
  cluster_.AnswerCompile(absl::UnavailableError("nobody is there"));
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0].status().message(), "nobody is there");
}

// An executor would refuse every command on them, which would end its registration.
TEST_F(CompileServiceTest, ArraysThatNoExecutorTakesAreRefused) {
  const auto refused = [&](const std::string& program, const std::vector<int64_t>& dims) {
    CompiledCode code = TestCode(1, 1, 1);
    v1::ValueSpec* result = code.metadata.mutable_outputs(0);
    result->mutable_global_dims()->Assign(dims.begin(), dims.end());
    result->mutable_shard_dims()->Assign(dims.begin(), dims.end());
    Compile(program, 0, 1);
    cluster_.AnswerCompile(std::move(code));
    return results_.back().status();
  };
  const absl::Status rank = refused("p", std::vector<int64_t>(65, 1));
  EXPECT_EQ(rank.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Text(rank), HasSubstr("an array of 65 dimensions; at most 64 are served"));
  const int64_t large = int64_t{1} << 40;
  EXPECT_EQ(refused("q", {large, large, 0}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(refused("r", std::vector<int64_t>(64, 1)).ok());
}

// A call of it would hold up everybody.
TEST_F(CompileServiceTest, CodeThatTakesAndMakesTooManyArraysIsRefused) {
  const auto many = [&](const std::string& program, size_t values) {
    CompiledCode code = TestCode(1, 1, 1);
    code.metadata.set_name(program);
    while (static_cast<size_t>(code.metadata.outputs_size()) < values - 1)
      *code.metadata.add_outputs() = code.metadata.outputs(0);
    Compile(program, 0, 1);
    cluster_.AnswerCompile(std::move(code));
    return results_.back().status();
  };
  EXPECT_TRUE(many("all", kMaxCallValues).ok());
  const absl::Status refused = many("more", kMaxCallValues + 1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(refused),
              HasSubstr("more takes 1 arrays and makes 65536: one call may have 65536 of both "
                        "together. Put them into fewer, larger arrays"));
}

TEST_F(CompileServiceTest, PortableCodeIsPlacedOnAnyDevice) {
  Compile("p", 0, 1, /*portable=*/true);
  EXPECT_EQ(cluster_.last_options().devices_size(), 0);
  cluster_.AnswerCompile(TestCode(1, 1, 1));
  const ExecutableId id = results_.at(0).value().id;
  const ExecutableId placed =
      cluster_.compiler().Place(id, devices_[3].island_id, {devices_[3].device}).value();
  EXPECT_NE(placed, id);
  EXPECT_EQ(cluster_.compiler().Place(placed, devices_[0].island_id, {devices_[0].device}).value(),
            id);
  EXPECT_EQ(
      cluster_.compiler().Place(ExecutableId(4711), devices_[0].island_id, {}).status().code(),
      absl::StatusCode::kNotFound);
}

TEST_F(CompileServiceTest, CodeThatNobodyHasGoesWhenTheCacheIsFull) {
  Cluster& cluster = cluster_.cluster();
  struct Backend : CompileBackend {
    void Compile(SessionId, IslandId, std::shared_ptr<const std::string> program,
                 v1::CompileOptions,
                 std::function<void(absl::StatusOr<CompiledCode>)> done) override {
      CompiledCode code = TestCode(1, 1, 1);
      code.code = std::string(1000, (*program)[0]);
      done(std::move(code));
    }
  } backend;
  CompileService service(&cluster, &backend, 3500);  // room for three of them
  const auto compile = [&](const std::string& program) {
    ExecutableId out;
    service.Compile(Known(program), Options(1),
                    {session_, devices_[0].island_id, {devices_[0].device}},
                    [&](absl::StatusOr<CompiledProgram> result) { out = result.value().id; });
    return out;
  };
  const ExecutableId a = compile("a");
  const uint64_t held = cluster.executables().Bind(session_, 0, a, {0}).value();
  const ExecutableId b = compile("b");
  const ExecutableId c = compile("c");
  EXPECT_EQ(compile("b"), b);
  EXPECT_TRUE(cluster.executables().Has(c));
  EXPECT_LE(service.bytes(), 3500);
  const ExecutableId d = compile("d");
  EXPECT_TRUE(cluster.executables().Has(a)) << "a session has it";
  EXPECT_TRUE(cluster.executables().Has(b)) << "asked for after c";
  EXPECT_FALSE(cluster.executables().Has(c));
  EXPECT_TRUE(cluster.executables().Has(d));
  EXPECT_LE(service.bytes(), 3500);
  EXPECT_EQ(service.compilations(), 4u);
  EXPECT_NE(compile("c"), c) << "compiled anew";
  EXPECT_EQ(service.compilations(), 5u);

  EXPECT_TRUE(cluster.executables().Release(session_, held).ok());
  compile("e");
  EXPECT_FALSE(cluster.executables().Has(a));
}

// The description of 60,000 results held the loop for 30 ms.
TEST_F(CompileServiceTest, CodeOfManyResultsIsDescribedElsewhere) {
  Cluster& cluster = cluster_.cluster();
  struct Backend : CompileBackend {
    void Compile(SessionId, IslandId, std::shared_ptr<const std::string>, v1::CompileOptions,
                 std::function<void(absl::StatusOr<CompiledCode>)> done) override {
      CompiledCode code = TestCode(1, 2000, 1);
      code.metadata.mutable_outputs(1999)->set_dtype(bad ? 4711 : code.metadata.outputs(0).dtype());
      done(std::move(code));
    }
    bool bad = false;
  } backend;
  std::vector<std::pair<std::function<void()>, std::function<void()>>> elsewhere;
  CompileService service(&cluster, &backend, 1, nullptr, [&](SessionId, auto work, auto then) {
    elsewhere.emplace_back(std::move(work), std::move(then));
  });
  std::vector<absl::StatusOr<CompiledProgram>> results;
  const auto compile = [&](const std::string& program) {
    service.Compile(Known(program), Options(1),
                    {session_, devices_[0].island_id, {devices_[0].device}},
                    [&](absl::StatusOr<CompiledProgram> result) { results.push_back(result); });
  };
  const auto next = [&] {
    const auto [work, then] = std::move(elsewhere.at(0));
    elsewhere.erase(elsewhere.begin());
    work();
    then();
  };
  compile("p");
  compile("p");  // asks for the same placement before it is known
  EXPECT_TRUE(results.empty());
  EXPECT_GT(service.bytes(), 0) << "it is in use, though the cache has no room";
  next();
  next();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].value().id, results[1].value().id);
  EXPECT_EQ(cluster.executables().Find(results[0]->id)->outputs.size(), 2000u);
  compile("p");
  EXPECT_EQ(results.size(), 3u) << "it is known";
  backend.bad = true;
  compile("q");
  next();
  EXPECT_THAT(Describe(results.at(3).status()), HasSubstr("element type 4711"));
  EXPECT_TRUE(elsewhere.empty());
}

TEST_F(CompileServiceTest, ASessionHasNoMoreCodeThanItLeavesToOthers) {
  Cluster& cluster = cluster_.cluster();
  struct Backend : CompileBackend {
    void Compile(SessionId, IslandId, std::shared_ptr<const std::string>, v1::CompileOptions,
                 std::function<void(absl::StatusOr<CompiledCode>)> done) override {
      waiting.push_back(std::move(done));
    }
    void Answer() {
      CompiledCode code = TestCode(1, 1, 1);
      code.code = std::string(1000, 'c');
      std::exchange(waiting, {}).at(0)(std::move(code));
    }
    std::vector<std::function<void(absl::StatusOr<CompiledCode>)>> waiting;
  } backend;
  const auto memory = std::make_shared<MemoryBudget>(8000);
  CompileService service(&cluster, &backend, CompileService::kCacheBytes, memory);
  const SessionId other = cluster.sessions().Open("t").value();
  std::map<SessionId, std::string> said;
  const auto ask = [&](SessionId session, const std::string& program) {
    service.Compile(Known(program), Options(1),
                    {session, devices_[0].island_id, {devices_[0].device}},
                    [&, session](absl::StatusOr<CompiledProgram> result) {
                      said[session] = Describe(result.status());
                      if (result.ok())
                        (void)cluster.executables().Bind(session, 0, result->id, {0}).value();
                    });
  };
  const auto compile = [&](SessionId session, const std::string& program) {
    ask(session, program);
    backend.Answer();
    return said[session];
  };
  EXPECT_EQ(compile(session_, "a"), "OK");
  EXPECT_EQ(compile(session_, "b"), "OK");
  EXPECT_EQ(compile(session_, "c"), "OK");
  EXPECT_THAT(compile(session_, "d"),
              HasSubstr("RESOURCE_EXHAUSTED: jit_f: its compiled code takes"));
  EXPECT_EQ(compile(other, "e"), "OK") << "it left some to others";

  // What two want is paid by the one that can.
  ask(session_, "f");
  ask(other, "f");
  const int64_t before = memory->used();
  backend.Answer();
  EXPECT_EQ(said[session_], "OK");
  EXPECT_EQ(said[other], "OK");
  EXPECT_GT(memory->used(), before + 1000);

  // Code that nobody has goes when somebody needs the room.
  cluster.sessions().Close(session_);
  const SessionId third = cluster.sessions().Open("t").value();
  EXPECT_EQ(compile(third, "g"), "OK");
  EXPECT_EQ(compile(third, "h"), "OK");
  EXPECT_LE(memory->used(), 6000);
}

TEST_F(CompileServiceTest, CodeThatNobodyHasIsUnloadedOldestFirstAndComesBackUncompiled) {
  Cluster& cluster = cluster_.cluster();
  for (const char* program : {"a", "b", "c", "d"}) {
    Compile(program, 0, 1);
    cluster_.AnswerCompile(TestCode(1, 1, 1));
  }
  Compile("a", 2, 1);  // on the other island
  std::vector<ExecutableId> ids;
  for (const auto& result : results_) ids.push_back(result.value().id);
  ASSERT_TRUE(cluster.executables().Bind(session_, 0, ids[1], {0}).ok());
  const auto there = [&] {
    std::string out;
    for (const ExecutableId id : ids) out += cluster.executables().Has(id) ? '1' : '0';
    return out;
  };
  EXPECT_EQ(there(), "11111");
  results_.clear();  // each result held its code
  cluster_.compiler().UnloadUnused(devices_[0].island_id);
  EXPECT_EQ(there(), "11001") << "c and d are older than a, which was asked for again; b is held";
  cluster_.compiler().UnloadUnused(devices_[0].island_id);
  EXPECT_EQ(there(), "01001");
  cluster_.compiler().UnloadUnused(devices_[0].island_id);
  EXPECT_EQ(there(), "01001");
  Compile("c", 0, 1);
  EXPECT_EQ(cluster_.compiler().compilations(), 4u);
  const ExecutableId held = results_.back().value().id;
  cluster_.compiler().UnloadUnused(devices_[0].island_id);
  EXPECT_TRUE(cluster.executables().Has(held)) << "its caller is still to bind it";
  results_.clear();
  cluster_.compiler().UnloadUnused(devices_[0].island_id);
  EXPECT_FALSE(cluster.executables().Has(held));
}

TEST_F(CompileServiceTest, ContradictionsOfTheCompilerAreInternalErrors) {
  Compile("p", 0, 2);
  CompiledCode code = TestCode(1, 1, 2);
  code.metadata.mutable_parameters(0)->set_shard_dims(0, 3);
  cluster_.AnswerCompile(code);
  EXPECT_EQ(results_.at(0).status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Text(results_[0].status()), HasSubstr("f32[3]"));
  // A negative size would lower what is reserved on the devices.
  Compile("q", 0, 2);
  code = TestCode(1, 1, 2);
  code.metadata.mutable_memory()->set_temp(-1024);
  cluster_.AnswerCompile(code);
  EXPECT_EQ(results_.at(1).status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Text(results_[1].status()), HasSubstr("-1024 bytes of temporary memory"));
  Compile("r", 0, 2);
  code = TestCode(1, 1, 2);
  code.metadata.mutable_memory()->set_argument(-1);
  cluster_.AnswerCompile(code);
  EXPECT_EQ(results_.at(2).status().code(), absl::StatusCode::kInternal);
}

// A program waits for its executor anyway, so it may as well be compiled meanwhile.
TEST_F(CompileServiceTest, AnIslandIsCompiledForWhileItsExecutorIsAway) {
  cluster_.cluster().fleet().ExecutorLost(cluster_.a, absl::DataLossError("killed by signal 9"));
  Compile("p", 0, 1, /*portable=*/true);
  ASSERT_EQ(cluster_.open_compilations(), 1u);
  cluster_.AnswerCompile(TestCode(1, 1, 1));
  const ExecutableId id = results_.at(0).value().id;
  EXPECT_TRUE(cluster_.cluster().executables().Bind(session_, 0, id, {0}).ok());
  EXPECT_TRUE(
      cluster_.compiler().Place(id, devices_[1].island_id, {devices_[1].device}).status().ok());
  EXPECT_EQ(cluster_.compiler().Place(id, IslandId(99), {devices_[1].device}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(CompileServiceTest, ABackendLearnsWhoseProgramItCompiles) {
  const SessionId other = cluster_.cluster().sessions().Open("t").value();
  Compile("p", 0, 1);
  EXPECT_EQ(cluster_.last_compiled_for(), session_);
  cluster_.compiler().Compile(
      Known("q"), Options(1), {other, devices_[0].island_id, {devices_[0].device}},
      [this](absl::StatusOr<CompiledProgram> result) { results_.push_back(result); });
  EXPECT_EQ(cluster_.last_compiled_for(), other);
  cluster_.AnswerCompile(TestCode(1, 1, 1));
  cluster_.AnswerCompile(absl::UnavailableError("its worker went away"));
  ASSERT_EQ(cluster_.open_compilations(), 1u) << "asked again";
  EXPECT_EQ(cluster_.last_compiled_for(), other);
}

TEST_F(CompileServiceTest, ReplicasAreRefused) {
  v1::CompileOptions options = Options(1);
  options.set_num_replicas(2);
  cluster_.compiler().Compile(
      Known("p"), options,
      {session_, devices_[0].island_id, {devices_[0].device, devices_[1].device}},
      [this](absl::StatusOr<CompiledProgram> result) { results_.push_back(result); });
  EXPECT_EQ(results_.at(0).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace fairway
