// SPDX-License-Identifier: Apache-2.0
// Golden dialogues: every request with a success and its errors.
#include "controller/native/session.h"

#include <google/protobuf/text_format.h>

#include "controller/cluster/fleet.h"
#include "controller/native/dialogue.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kEightFloats[] = "aaaabbbbccccddddeeeeffffgggghhhh";

TEST_F(NativeDialogue, HelloIsAnsweredWithSlicesAndDevices) {
  EXPECT_EQ(Ask("hello { min_version: 1 max_version: 9 }"),
            "1 welcome { version: 1 server: \"test\" "
            "slices { name: \"ia\" runtime: \"fake\" platform_name: \"cpu\" platform_version: "
            "\"fake 1\" device_kind: \"cpu\" memory_kinds: \"device\" memory_kinds: "
            "\"pinned_host\" } "
            "slices { name: \"ib\" runtime: \"fake\" platform_name: \"cpu\" platform_version: "
            "\"fake 1\" device_kind: \"cpu\" memory_kinds: \"device\" memory_kinds: "
            "\"pinned_host\" } "
            "devices { worker: \"wa\" } devices { local_ordinal: 1 worker: \"wa\" } "
            "devices { slice: 1 worker: \"wb\" } "
            "devices { slice: 1 local_ordinal: 1 worker: \"wb\" } }");
  EXPECT_EQ(Ask("hello { min_version: 1 max_version: 1 }"),
            "2 INVALID_ARGUMENT: hello was said before");
}

TEST_F(NativeDialogue, ClientsOfOtherVersionsAreToldBothSidesVersions) {
  EXPECT_EQ(Ask("hello { min_version: 2 max_version: 3 }"),
            "1 FAILED_PRECONDITION: this client speaks versions 2 to 3 of fairway.v1.Client, test "
            "speaks 1 to 1");
}

TEST_F(NativeDialogue, PingIsAnswered) {
  EXPECT_EQ(Ask("ping {}"), "1 done");
  EXPECT_EQ(Ask("id: 0 ping {}"), "");
  EXPECT_EQ(Ask(""), "3 UNIMPLEMENTED: a request of a kind that Fairway does not know");
}

TEST_F(NativeDialogue, BytesThatAreInThePutComeBack) {
  EXPECT_EQ(Ask("put { array: 5 @f32(2 | 3) bytes { data: \"aaaabbbb\" } }"), "1 done");
  EXPECT_EQ(Ask("fetch { array: 5 }"), "");
  EXPECT_EQ(Run(), "2 bytes 0: aaaabbbb");
  EXPECT_EQ(Ask("put { array: 5 @f32(2 | 3) bytes { data: \"aaaabbbb\" } }"),
            "3 ALREADY_EXISTS: handle 5 is in use");
  EXPECT_EQ(Ask("release { arrays: 5 }"), "4 done");
  EXPECT_THAT(Ask("fetch { array: 5 }"), StartsWith("5 NOT_FOUND: there is no array 5"));
}

TEST_F(NativeDialogue, ManyBytesThatAreInThePutAreTakenAsTheyLie) {
  v1::Request request;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "put { array: 5 spec { dtype: 11 dims: 262144 sharding { devices: 3 } } }", &request));
  request.mutable_put()->add_bytes()->set_data(std::string(1 << 20, 'x'));
  const char* const bytes = request.put().bytes(0).data().data();
  session_->Handle(request);
  EXPECT_EQ(Ask("fetch { array: 5 }"), "");
  Run();
  EXPECT_EQ(last_bytes_->data(), bytes);
}

TEST_F(NativeDialogue, BytesThatCameByUploadMakeTheArrayBeforeOrAfterThePut) {
  session_->Uploaded(71, Blob::Copy("aaaa"));
  EXPECT_EQ(Ask("put { array: 5 @cut(2 | 1 3) bytes { upload: 71 size: 4 } bytes { upload: 72 "
                "size: 4 } }"),
            "1 done");
  EXPECT_EQ(Ask("fetch { array: 5 shards: 1 shards: 0 }"), "");
  EXPECT_EQ(Run(), "2 bytes 1: aaaa");
  session_->Uploaded(72, Blob::Copy("bbbb"));
  EXPECT_EQ(Run(), "2 bytes 0: bbbb");
  EXPECT_EQ(Ask("put { array: 6 @f32(1 | 0) bytes { upload: 73 size: 4 } }"), "3 done");
  session_->Uploaded(73, absl::ResourceExhaustedError("no disk"));
  EXPECT_THAT(Ask("watch { arrays: 6 }"), HasSubstr("RESOURCE_EXHAUSTED: no disk"));
}

TEST_F(NativeDialogue, AWrongPutIsAnErrorArrayAndItsBytesAreDropped) {
  EXPECT_EQ(Ask("put { array: 5 @f32(2 | 0) bytes { upload: 71 size: 12 } }"),
            "1 INVALID_ARGUMENT: put: shard 0 is f32[2], which is 8 bytes, but 12 were given");
  session_->Uploaded(71, Blob::Copy("aaaabbbbcccc"));
  EXPECT_THAT(Ask("watch { arrays: 5 }"), StartsWith("2 INVALID_ARGUMENT: put: shard 0 is"));
  EXPECT_EQ(Ask("id: 0 put { array: 6 @f32(1 | 9) bytes { data: \"aaaa\" } }"), "");
  EXPECT_EQ(Ask("fetch { array: 6 }"),
            "4 INVALID_ARGUMENT: there is no device 9: this session has devices 0 to 3");
  EXPECT_EQ(Ask("put { array: 7 @cut(2 | 0 1) bytes { data: \"aaaa\" } bytes_of_shard: [0, 1] }"),
            "5 INVALID_ARGUMENT: put: bytes 1 for shard 1, but 1 were given");
  EXPECT_EQ(Ask("put { array: 8 @f32(1 | 0) bytes { data: \"aaaa\" } bytes { data: \"bbbb\" } "
                "bytes_of_shard: 1 }"),
            "6 INVALID_ARGUMENT: put: bytes 0 are of no shard");
  EXPECT_EQ(Ask("put { @f32(1 | 0) bytes { data: \"aaaa\" } }"),
            "7 INVALID_ARGUMENT: 0 is no handle");
  EXPECT_EQ(Ask("put { array: 1152921504606846976 @f32(1 | 0) bytes { data: \"aaaa\" } }"),
            "8 INVALID_ARGUMENT: handle 1152921504606846976 is in the server's range; clients make "
            "theirs below 2^60");
}

TEST_F(NativeDialogue, ErrorArraysAreValues) {
  EXPECT_EQ(Ask("make_error { array: 5 @f32(8 | 0) error { code: 10 text: \"no\" } }"), "1 done");
  EXPECT_EQ(Ask("watch { arrays: 5 }"), "2 ABORTED: no");
  EXPECT_EQ(Ask("id: 0 copy { arrays: 5 results: 6 devices: 1 }"), "");
  EXPECT_EQ(Ask("fetch { array: 6 }"), "4 ABORTED: no");
  Compiled(7, "0", 1, 1);
  EXPECT_EQ(Ask("call { executable: 7 arguments: 5 results: 8 }"), "6 ABORTED: no");
  EXPECT_EQ(Ask("fetch { array: 8 shards: 0 }"), "7 ABORTED: no");
}

TEST_F(NativeDialogue, CopyAndReshardMoveArrays) {
  Put(5, 0, kEightFloats);
  EXPECT_EQ(Ask("copy { arrays: 5 results: 6 devices: 3 }"), "2 done");
  EXPECT_EQ(Ask("reshard { arrays: 6 results: 7 shardings { devices: [0, 2] tiles: 2 } }"),
            "3 done");
  EXPECT_EQ(Ask("fetch { array: 7 shards: [0, 1] }"), "");
  EXPECT_EQ(Run(), "4 bytes 0: aaaabbbbccccdddd\n4 bytes 1: eeeeffffgggghhhh");
  EXPECT_EQ(Ask("copy { arrays: 7 results: 8 devices: 1 }"),
            "5 INVALID_ARGUMENT: the sharding has 2 shards, but 1 devices were given");
  EXPECT_EQ(
      Ask("reshard { arrays: 99 results: 9 shardings { devices: 0 } }"),
      "6 NOT_FOUND: there is no array 99 in this session: it was never made, or its handle was "
      "given up");
  EXPECT_EQ(Ask("copy { arrays: 5 }"), "7 INVALID_ARGUMENT: 1 arrays, but 0 results");
  EXPECT_EQ(Ask("copy { arrays: 8 results: 10 devices: 0 }"),
            "8 INVALID_ARGUMENT: the sharding has 2 shards, but 1 devices were given");
}

TEST_F(NativeDialogue, ADonatingCopyDeletesItsInput) {
  Put(5, 0, kEightFloats);
  EXPECT_EQ(Ask("copy { arrays: 5 results: 6 devices: 3 semantics: COPY_SEMANTICS_DONATE }"),
            "2 done");
  EXPECT_THAT(Ask("fetch { array: 5 }"), HasSubstr("FAILED_PRECONDITION"));
}

TEST_F(NativeDialogue, AssembleAndDisassembleMoveNothing) {
  Put(5, 0, "aaaa");
  Put(6, 1, "bbbb");
  EXPECT_EQ(Ask("assemble { arrays: [5, 6] result: 7 @cut(2 | 0 1) }"), "3 done");
  EXPECT_EQ(Ask("disassemble { array: 7 results: [8, 9] }"), "4 done");
  EXPECT_EQ(Ask("fetch { array: 9 }"), "");
  EXPECT_EQ(Run(), "5 bytes 0: bbbb");
  EXPECT_EQ(Ask("disassemble { array: 7 results: 10 }"),
            "6 INVALID_ARGUMENT: disassemble: 1 results named for 2 shards");
  EXPECT_THAT(Ask("assemble { arrays: [6, 5] result: 11 @cut(2 | 0 1) }"),
              HasSubstr("does not lie on device 0"));
}

TEST_F(NativeDialogue, FetchesOfSeveralShardsAskForThem) {
  Ask("put { array: 5 @cut(2 | 0 1) bytes { data: \"aaaa\" } bytes { data: \"bbbb\" } }");
  EXPECT_THAT(Ask("fetch { array: 5 }"),
              StartsWith("2 INVALID_ARGUMENT: fetch: array 5 has 2 different shards"));
  EXPECT_EQ(Ask("fetch { array: 5 shards: 2 }"),
            "3 INVALID_ARGUMENT: fetch: shard 2 of an array of 2");
  EXPECT_EQ(Ask("fetch { array: 5 shards: [0, 0] }"), "4 INVALID_ARGUMENT: fetch: shard 0 twice");
  EXPECT_EQ(Ask("id: 0 fetch { array: 5 shards: 0 }"), "");
}

TEST_F(NativeDialogue, AFetchThatFailsIsAnsweredOnce) {
  cluster_.fail_next = absl::DataLossError("gone");
  Ask("put { array: 5 @cut(2 | 0 1) bytes { data: \"aaaa\" } bytes { data: \"bbbb\" } }");
  Ask("fetch { array: 5 shards: [0, 1] }");
  EXPECT_THAT(Run(), testing::MatchesRegex("2 DATA_LOSS: [^\n]*gone"));
}

TEST_F(NativeDialogue, CompileIsAnsweredWithWhatTheProgramTakesAndMakes) {
  EXPECT_EQ(Ask("compile { executable: 7 stablehlo: \"p\" devices: [1, 0] }"), "");
  EXPECT_EQ(cluster_.last_options().ShortDebugString(),
            "num_replicas: 1 num_partitions: 2 devices: 0 devices: 1 tenant: \"tenant\"");
  cluster_.AnswerCompile(TestCode(1, 1, 2, {0}));
  EXPECT_EQ(Take(),
            "1 compiled { name: \"jit_f\" "
            "parameters { dtype: 11 dims: 8 sharding { devices: 1 devices: 0 tiles: 2 } } "
            "results { dtype: 11 dims: 8 sharding { devices: 1 devices: 0 tiles: 2 } } "
            "donated: true memory { generated_code: 4 temp: 64 } cost { key: \"flops\" value: 8 } "
            "}");
}

TEST_F(NativeDialogue, WrongCompilesAreRefusedByName) {
  const auto compile = [&](const std::string& rest) {
    return Ask("compile { executable: 7 " + rest + " }");
  };
  EXPECT_EQ(compile("stablehlo: \"p\""), "1 INVALID_ARGUMENT: no device was named");
  EXPECT_EQ(compile("stablehlo: \"p\" devices: 4"),
            "2 INVALID_ARGUMENT: there is no device 4: this session has devices 0 to 3");
  EXPECT_THAT(
      compile("stablehlo: \"p\" devices: [0, 2]"),
      StartsWith("3 INVALID_ARGUMENT: one computation cannot span the devices of 2 island"));
  EXPECT_EQ(compile("stablehlo: \"p\" devices: [0, 0]"),
            "4 INVALID_ARGUMENT: a program is to run on 2 devices, but a device is named twice");
  EXPECT_EQ(compile("stablehlo: \"p\" devices: 0 options { num_partitions: 2 }"),
            "5 INVALID_ARGUMENT: a program of 1 replicas x 2 partitions for 1 devices");
  EXPECT_EQ(compile("devices: 0"), "6 INVALID_ARGUMENT: there is no program to compile");
  EXPECT_EQ(compile("stablehlo: \"p\" devices: 0 options { compiler_options { name: "
                    "\"xla_dump_to\" text: \"/etc\" } }"),
            "7 UNIMPLEMENTED: compiler option \"xla_dump_to\" is not served: it names files, and "
            "the program is compiled on a worker");
  EXPECT_EQ(Ask("compile { stablehlo: \"p\" devices: 0 }"), "8 INVALID_ARGUMENT: 0 is no handle");
  EXPECT_EQ(compile("native { name: \"n\" } devices: 0"), "");
  cluster_.AnswerCompile(absl::InvalidArgumentError("step 3: bad\xff"));
  EXPECT_EQ(Take(), "9 INVALID_ARGUMENT: step 3: bad?");
}

TEST_F(NativeDialogue, CallsMakeTheirResultsAtOnceAndAreAnsweredWhenTheyEnd) {
  Compiled(7, "0", 1, 1);
  Put(5, 0, kEightFloats);
  EXPECT_EQ(Ask("id: 0 call { executable: 7 arguments: 5 results: 6 }"), "");
  EXPECT_EQ(Ask("call { executable: 7 arguments: 6 results: 8 }"), "");
  EXPECT_EQ(Ask("fetch { array: 8 }"), "");
  EXPECT_EQ(Run(), std::string("4 done\n5 bytes 0: ") + kEightFloats);
}

TEST_F(NativeDialogue, ErrorsOfCallsAreInTheirResults) {
  Compiled(7, "0", 1, 1);
  EXPECT_EQ(Ask("id: 0 call { executable: 7 arguments: 99 results: 6 }"), "");
  EXPECT_THAT(Ask("watch { arrays: 6 }"),
              StartsWith("3 NOT_FOUND: jit_f: argument 0: there is no array 99"));
  EXPECT_EQ(Ask("call { executable: 4711 results: 8 }"),
            "4 NOT_FOUND: there is no executable 4711 in this session");
  EXPECT_EQ(Ask("fetch { array: 8 }"), "5 NOT_FOUND: there is no executable 4711 in this session");
  EXPECT_EQ(Ask("call { executable: 7 arguments: 6 }"),
            "6 INVALID_ARGUMENT: 1 results, but 0 handles were given for them");
  Put(5, 0, "aaaa");
  EXPECT_EQ(Ask("call { executable: 7 arguments: 5 results: 9 }"),
            "8 INVALID_ARGUMENT: jit_f: shard 0 of argument 0 is f32[1], expected f32[8]");
  Put(10, 0, kEightFloats);
  EXPECT_EQ(Ask("call { executable: 7 arguments: 10 results: 10 }"),
            "10 ALREADY_EXISTS: handle 10 is in use");
  cluster_.fail_next = absl::InternalError("the kernel failed");
  EXPECT_EQ(Ask("call { executable: 7 arguments: 10 results: 11 }"), "");
  EXPECT_THAT(Run(), HasSubstr("11 INTERNAL: "));
  EXPECT_THAT(Ask("fetch { array: 11 }"), HasSubstr("the kernel failed"));
}

TEST_F(NativeDialogue, DonatedArgumentsAreGoneUnlessKept) {
  Compiled(7, "0", 1, 1, {0});
  Put(5, 0, kEightFloats);
  Ask("call { executable: 7 arguments: 5 results: 6 non_donatable: 0 }");
  Ask("call { executable: 7 arguments: 5 results: 8 }");
  EXPECT_THAT(Ask("call { executable: 7 arguments: 5 results: 9 }"),
              HasSubstr("FAILED_PRECONDITION"));
}

TEST_F(NativeDialogue, ReleaseAndDelete) {
  Compiled(7, "0", 1, 1);
  Put(5, 0, kEightFloats);
  EXPECT_EQ(Ask("delete { arrays: 5 }"), "3 done");
  EXPECT_THAT(Ask("watch { arrays: 5 }"), HasSubstr("deleted"));
  EXPECT_EQ(Ask("release { arrays: [5, 98, 99] executables: 7 }"),
            "5 NOT_FOUND: no such arrays to give up: 98, 99");
  EXPECT_EQ(Ask("release { executables: 7 }"),
            "6 NOT_FOUND: there is no executable 7 in this session");
  EXPECT_THAT(Ask("delete { arrays: 5 }"), StartsWith("7 NOT_FOUND: there is no array 5"));
}

TEST_F(NativeDialogue, AnotherSessionsHandlesAreOutOfReach) {
  Compiled(7, "0", 1, 1);
  Put(5, 0, kEightFloats);
  NativeSession* const first = session_;
  session_ = door_.Open("other", this).value();
  EXPECT_THAT(Ask("fetch { array: 5 }"), HasSubstr("NOT_FOUND: there is no array 5"));
  EXPECT_THAT(Ask("call { executable: 7 arguments: 5 results: 6 }"),
              HasSubstr("NOT_FOUND: there is no executable 7"));
  EXPECT_THAT(Ask("release { arrays: 5 }"), HasSubstr("NOT_FOUND: no such arrays"));
  door_.Close(session_->session());
  session_ = first;
  EXPECT_EQ(Ask("fetch { array: 5 }"), "");
}

TEST_F(NativeDialogue, ARefusedSessionAnswersAllThatWaitsAndAllThatComes) {
  Compiled(7, "0", 1, 1);
  Put(5, 0, kEightFloats);
  Ask("call { executable: 7 arguments: 5 results: 6 }");
  Ask("fetch { array: 6 shards: 0 }");
  session_->Refuse(absl::UnavailableError("the controller is shutting down"));
  EXPECT_EQ(Take(),
            "3 UNAVAILABLE: the controller is shutting down\n"
            "4 UNAVAILABLE: the controller is shutting down");
  EXPECT_EQ(Ask("ping {}"), "5 UNAVAILABLE: the controller is shutting down");
  EXPECT_EQ(Ask("id: 0 ping {}"), "");
}

// A session that may have three calls waiting, and has executable 7.
class CappedDialogue : public NativeDialogue {
 protected:
  void SetUp() override {
    first_ = std::exchange(session_, door_of_three_.Open("tenant", this).value());
    Compiled(7, "0", 1, 1);
  }
  void TearDown() override {
    door_of_three_.Close(std::exchange(session_, first_)->session());
    NativeDialogue::TearDown();
  }

 private:
  NativeDoor door_of_three_{&cluster_.cluster(),
                            &cluster_.compiler(),
                            {.caps = {.max_queued_nodes = 3}, .server = "test"}};
  NativeSession* first_ = nullptr;
};

TEST_F(CappedDialogue, ReadingStopsWhileTooManyCallsWait) {
  Ask("id: 0 put { array: 5 @f32(8 | 0) bytes { data: \"aaaabbbbccccddddeeeeffffgggghhhh\" } }");
  Run();
  for (int i = 5; i < 8; ++i)
    Ask(fmt::format("id: 0 call {{ executable: 7 arguments: {} results: {} }}", i == 5 ? 5 : i + 4,
                    i + 5));
  EXPECT_TRUE(session_->MayRead());
  Ask("id: 0 call { executable: 7 arguments: 12 results: 13 }");
  EXPECT_FALSE(session_->MayRead());
  Run();
  EXPECT_TRUE(session_->MayRead());
}

// The bytes that the calls wait for may be among the next requests.
TEST_F(CappedDialogue, MoreIsReadWhileCallsWaitForBytesOfTheClients) {
  Ask("id: 0 put { array: 5 @f32(8 | 0) bytes { upload: 71 size: 32 } }");
  for (int result = 10; result < 14; ++result)
    Ask(fmt::format("id: 0 call {{ executable: 7 arguments: 5 results: {} }}", result));
  EXPECT_TRUE(session_->MayRead());
  session_->Uploaded(71, Blob::Copy(kEightFloats));
  EXPECT_FALSE(session_->MayRead());
  Run();
  EXPECT_TRUE(session_->MayRead());
}

TEST_F(NativeDialogue, ListsOfHandlesHaveABound) {
  v1::Request request;
  request.set_id(1);
  google::protobuf::RepeatedField<uint64_t> handles;
  handles.Resize((1 << 20) + 1, 3);
  const auto refused = [&](const std::string& field) {
    session_->Handle(request);
    EXPECT_EQ(Take(), "1 INVALID_ARGUMENT: fairway.v1." + field +
                          " names 1048577 handles; at most 1048576 are served in one request");
  };
  *request.mutable_delete_()->mutable_arrays() = handles;
  refused("Delete.arrays");
  *request.mutable_release()->mutable_executables() = handles;
  refused("Release.executables");
  *request.mutable_watch()->mutable_arrays() = handles;
  refused("Watch.arrays");
  *request.mutable_call()->mutable_results() = handles;
  refused("Call.results");
}

// f32[8] cut in two -> the same, twice, on a slice of two devices.
std::string TwoCalls(const std::string& devices, const std::string& inputs = "node: 1") {
  const std::string type = "{ dtype: 11 dims: 8 tiles: 2 }";
  return fmt::format(
      "bind_program {{ executable: 7 program {{ program {{ name: \"p\" slices {{ name: \"a\" "
      "devices: 2 }} computations {{ name: \"f\" stablehlo: \"a program of 1 and 1\" devices: 2 "
      "parameters {0} results {0} }} graphs {{ nodes {{ argument {{ type {{ array {0} }} }} }} "
      "nodes {{ compute {{ inputs {{}} }} }} nodes {{ name: \"y\" source: \"a.py:3\" compute "
      "{{ inputs {{ {2} }} }} }} results {{ node: 2 }} }} }} slices {{ devices: [{1}] }} }} }}",
      type, devices, inputs);
}

TEST_F(NativeDialogue, AProgramIsBoundAndRunByOneCall) {
  EXPECT_EQ(AskAndRun(TwoCalls("0, 1")), "");
  cluster_.AnswerCompile(TestCode(1, 1, 2, {}));
  EXPECT_THAT(Run(), StartsWith("1 compiled { name: \"p\" parameters { dtype: 11 dims: 8"));
  EXPECT_EQ(Ask("put { array: 5 @cut(8 | 0 1) bytes { data: \"aaaabbbbccccdddd\" } bytes { data: "
                "\"eeeeffffgggghhhh\" } }"),
            "2 done");
  Run();
  cluster_.log.clear();
  EXPECT_EQ(Ask("call { executable: 7 arguments: 5 results: 6 }"), "");
  EXPECT_EQ(Run(), "3 done");
  EXPECT_THAT(cluster_.log, testing::Contains("e1 install a sequence of 3"));
  EXPECT_EQ(Ask("call { executable: 7 results: 8 }"),
            "4 INVALID_ARGUMENT: p takes 1 arguments, but 0 were given");
  EXPECT_EQ(Ask("release { executables: 7 arrays: [5, 6, 8] }"), "5 done");
  EXPECT_THAT(Ask("call { executable: 7 arguments: 5 results: 9 }"), HasSubstr("NOT_FOUND"));
}

TEST_F(NativeDialogue, AnotherThreadSerializesALargeAnswerToAProgram) {
  const std::string result = "results { node: 2 }";
  std::string program = TwoCalls("0, 1"), results;
  for (int i = 0; i < 5000; ++i) results += result;
  program.replace(program.find(result), result.size(), results);
  EXPECT_EQ(AskAndRun(program), "");
  cluster_.AnswerCompile(TestCode(1, 1, 2, {}));
  EXPECT_THAT(Run(), StartsWith("1 compiled { name: \"p\" parameters { dtype: 11 dims: 8"));
  EXPECT_EQ(serialized_, 1);
  EXPECT_EQ(Ask("call { executable: 7 arguments: 5 results: 6 }"),
            "2 INVALID_ARGUMENT: 5000 results, but 1 handles were given for them");
  EXPECT_EQ(AskAndRun("release { executables: 7 }"), "3 done");
}

TEST_F(NativeDialogue, AWrongProgramIsNamed) {
  EXPECT_THAT(
      AskAndRun(TwoCalls("0, 1", "node: 9")),
      StartsWith("1 INVALID_ARGUMENT: node 2 \"y\" (a.py:3): it takes an output of node 9"));
  EXPECT_EQ(AskAndRun(TwoCalls("0")),
            "2 INVALID_ARGUMENT: program p: slice \"a\" has 2 devices, but 1 were given");
  EXPECT_THAT(AskAndRun(TwoCalls("1, 2")),
              StartsWith("3 INVALID_ARGUMENT: program p: slice \"a\": "));
  EXPECT_EQ(AskAndRun(TwoCalls("1, 1")),
            "4 INVALID_ARGUMENT: program p: slice \"a\": a device is given twice");
  EXPECT_EQ(AskAndRun(TwoCalls("0, 1")), "");
  cluster_.AnswerCompile(TestCode(2, 1, 2, {}));
  EXPECT_EQ(Run(),
            "5 INVALID_ARGUMENT: program p: computation \"f\": the program says that it has 1 "
            "parameters, the compiler 2");
}

TEST_F(NativeDialogue, NoProgramIsBoundForADrainedIsland) {
  auto& fleet = cluster_.cluster().fleet();
  const std::string island = fleet.Islands()[0].name;
  const auto drain = [&] { ASSERT_TRUE(fleet.DrainIsland(island, Cordon{.by = "op"})->drained); };
  const std::string refused =
      "UNAVAILABLE: program p: computation \"f\": island " + island + " is drained: op cordoned it";
  drain();
  EXPECT_THAT(AskAndRun(TwoCalls("0, 1")), StartsWith("1 " + refused));
  EXPECT_EQ(cluster_.open_compilations(), 0u);
  // It is drained while the program is being compiled.
  ASSERT_TRUE(fleet.UncordonIsland(island).ok());
  EXPECT_EQ(AskAndRun(TwoCalls("0, 1")), "");
  drain();
  cluster_.AnswerCompile(TestCode(1, 1, 2, {}));
  EXPECT_THAT(Run(), StartsWith("2 " + refused));
  ASSERT_TRUE(fleet.UncordonIsland(island).ok());
  EXPECT_THAT(AskAndRun(TwoCalls("0, 1")), StartsWith("3 compiled"));
}

TEST_F(NativeDialogue, ComputationsThatTheirSlicesDoNotRunAreRefusedWithTheRuntime) {
  ExecutorSpec spec = cluster_.cluster().fleet().Executors()[0].spec;
  for (const std::string runtime : {"host", "pjrt"}) {
    spec.worker = spec.island = spec.runtime = runtime;
    ASSERT_TRUE(cluster_.cluster().fleet().ExecutorUp(spec).ok());
  }
  NativeSession* const first = std::exchange(session_, door_.Open("other", this).value());
  const std::string host = "0, 1", pjrt = "6, 7";  // devices, in the order of names
  const std::string stable_hlo = "stablehlo: \"a program of 1 and 1\"",
                    kernels = "kernels { name: \"n\" }";
  std::string calls = TwoCalls(pjrt);
  calls.replace(calls.find(stable_hlo), stable_hlo.size(), kernels);
  const std::string no_native =
      "slice pjrt does not run native programs: its runtime is pjrt. Give it StableHLO, or use a "
      "slice whose runtime is host or sim";
  const std::string no_stable_hlo =
      "slice host does not run StableHLO: its runtime is host. Give it a native program, or use a "
      "slice whose runtime is pjrt";
  EXPECT_EQ(Ask("compile { executable: 7 native {} devices: 6 }"), "1 UNIMPLEMENTED: " + no_native);
  EXPECT_EQ(AskAndRun(calls), "2 UNIMPLEMENTED: program p: computation \"f\": " + no_native);
  EXPECT_EQ(Ask("compile { executable: 7 stablehlo: \"p\" devices: 0 }"),
            "3 UNIMPLEMENTED: " + no_stable_hlo);
  EXPECT_EQ(AskAndRun(TwoCalls(host)),
            "4 UNIMPLEMENTED: program p: computation \"f\": " + no_stable_hlo);
  EXPECT_EQ(cluster_.open_compilations(), 0u);
  door_.Close(std::exchange(session_, first)->session());
}

// Its result is the sum of the two devices' outputs.
CompiledCode UnreducedCode() {
  CompiledCode code = TestCode(1, 1, 2, {});
  code.metadata.mutable_outputs(0)->set_op_sharding("\x08\x06");  // OpSharding: type UNREDUCED
  code.metadata.mutable_outputs(0)->set_shard_dims(0, 8);
  return code;
}

TEST_F(NativeDialogue, WhatIsUnreducedIsRefusedAsNoShardingCanTellIt) {
  EXPECT_EQ(Ask("compile { executable: 7 stablehlo: \"p\" devices: [1, 0] }"), "");
  cluster_.AnswerCompile(UnreducedCode());
  EXPECT_THAT(Take(), StartsWith("1 UNIMPLEMENTED: jit_f takes or makes an array, f32[8], that is "
                                 "unreduced or manual over its devices"));
  Compiled(7, "0", 1, 1);  // the handle is free
  EXPECT_EQ(AskAndRun(TwoCalls("0, 1")), "");
  cluster_.AnswerCompile(UnreducedCode());
  EXPECT_THAT(Run(), StartsWith("3 UNIMPLEMENTED: program p: computation \"f\": result 0, f32[8], "
                                "is unreduced or manual over axes"));
}

}  // namespace
}  // namespace fairway
