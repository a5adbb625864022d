// SPDX-License-Identifier: Apache-2.0
// Golden dialogues: requests about compiled programs, futures, order and back-pressure.
#include "controller/cluster/inspection.h"
#include "controller/ifrt/dialogue.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ExecutablesDialogue = Dialogue;

constexpr char kEightFloats[] = "aaaabbbbccccddddeeeeffffgggghhhh";

std::string Execute(uint64_t executable, const std::string& rest) {
  return fmt::format("loaded_executable_execute_request {{ loaded_executable_handle: {} {} }}",
                     executable, rest);
}

TEST_F(ExecutablesDialogue, CompileIsAnsweredWhenTheCodeIsThereAndHoldsNobodyUp) {
  EXPECT_EQ(Ask("compile_request { @program(2 1 0) }"), "");
  EXPECT_EQ(Ask("get_default_layout_request { dtype { kind: KIND_F32 } }"),
            "2 #0 get_default_layout_response { serialized_pjrt_layout: \"{}\" }");
  EXPECT_EQ(cluster_.last_options().ShortDebugString(),
            "num_replicas: 1 num_partitions: 2 use_spmd_partitioning: true devices: 0 devices: 1 "
            "tenant: \"tenant\"");
  cluster_.AnswerCompile(TestCode(1, 1, 2));
  EXPECT_EQ(
      Take(),
      fmt::format(
          "1 #1 compile_response {{ loaded_executable_handle: {} name: \"jit_f\" num_devices: 2 "
          "addressable_device_ids: 1 addressable_device_ids: 0 fingerprint_value: \"print\" "
          "ready_future_handle: {} device_ids: 1 device_ids: 0 }}",
          kFirst, kFuture));
  EXPECT_EQ(Ask(fmt::format("check_future_request {{ future_handle: {} }}", kFuture)),
            "3 #2 check_future_response { }");
  EXPECT_EQ(
      Ask(fmt::format("check_future_request {{ future_handle: {} }}", kFuture)),
      fmt::format("4 NOT_FOUND: there is no future {}, or it was asked for already", kFuture));
}

TEST_F(ExecutablesDialogue, CompileErrorsAreTheAnswersErrors) {
  Ask("compile_request { @program(1 0) }");
  cluster_.AnswerCompile(absl::InvalidArgumentError("line 3: bad\xff"));
  EXPECT_EQ(Take(), "1 INVALID_ARGUMENT: line 3: bad?");
  EXPECT_EQ(Ask("compile_request { @program(1 9) }"),
            "2 INVALID_ARGUMENT: there is no device 9: this session has devices 0 to 3");
  EXPECT_EQ(Ask("compile_request { @program(8 0) }"),
            "3 INVALID_ARGUMENT: a program of 1 replicas x 8 partitions cannot run on the 4 "
            "devices of this session");
  EXPECT_EQ(Ask("compile_request { program { type_name: \"xla::ifrt::MpmdProgram\" } }"),
            "4 UNIMPLEMENTED: programs of type \"xla::ifrt::MpmdProgram\" are not served, only "
            "xla::ifrt::XlaProgram");
  EXPECT_THAT(Ask("compile_request { @program(1 0) host_callbacks: \"x\" }"),
              StartsWith("5 UNIMPLEMENTED: host callbacks"));
}

TEST_F(ExecutablesDialogue, AProgramOverTwoIslandsIsRefusedByName) {
  const std::string line = Ask("compile_request { @program(4 0 1 2 3) }");
  EXPECT_THAT(
      line, StartsWith("1 INVALID_ARGUMENT: one computation cannot span the devices of 2 islands"));
  EXPECT_THAT(line, HasSubstr("ia"));
  EXPECT_THAT(line, HasSubstr("ib"));
  EXPECT_THAT(line, HasSubstr("jax.device_put"));
}

TEST_F(ExecutablesDialogue, Metadata) {
  const uint64_t one = Compiled("0", 2, 1, {1});
  EXPECT_EQ(Ask(fmt::format("loaded_executable_metadata_request {{ loaded_executable_handle: {} }}",
                            one)),
            "2 #1 loaded_executable_metadata_response { output_memory_kinds { memory_kind_lists { "
            "memory_kinds: "
            "\"device\" } } parameter_layouts_list { layouts { minor_to_major: 0 } layouts { "
            "minor_to_major: 0 } } "
            "output_layouts_list { layouts { minor_to_major: 0 } } donated_input_indices { "
            "donated_input_indices: 1 } "
            "compiled_memory_stats { generated_code_size_in_bytes: 4 temp_size_in_bytes: 64 } "
            "size_of_generated_code_in_bytes: 4 }");
  EXPECT_EQ(Ask("loaded_executable_metadata_request { loaded_executable_handle: 9 }"),
            "3 NOT_FOUND: there is no executable 9 in this session");
}

TEST_F(ExecutablesDialogue, MetadataOfSeveralDevicesHasShardings) {
  const uint64_t two = Compiled("0 1", 1, 1);
  const std::string line = Ask(
      fmt::format("loaded_executable_metadata_request {{ loaded_executable_handle: {} }}", two));
  EXPECT_THAT(
      line, HasSubstr("parameter_shardings { shardings { type: OTHER tile_assignment_dimensions: 2 "
                      "iota_reshape_dims: 2 } }"));
  EXPECT_THAT(line, HasSubstr("donated_input_indices { }"));
}

TEST_F(ExecutablesDialogue, ExecuteTellsTheOutputsWhenTheClientGaveNoHandles) {
  const uint64_t f = Compiled("0", 1, 1);
  Put(5, 0, kEightFloats);
  const std::string line = Ask(Execute(f, "args_handles: 5"));
  EXPECT_EQ(
      line,
      "3 #2 loaded_executable_execute_response { outputs { dtype { kind: KIND_F32 } shape { dims: "
      "8 } sharding "
      "{ serialized_sharding { type_name: \"xla::ifrt::SingleDeviceSharding\" } } array_handle: "
      "1152921504606846977 } }");
  EXPECT_EQ(Ask("copy_to_host_buffer_request { array_handle: 1152921504606846977 "
                "host_buffer_handle: 6 }"),
            "4 #3 copy_to_host_buffer_response { }");
  Run();
  EXPECT_EQ(Lookup(6), kEightFloats);
}

// A program without arguments that returns a token.
CompiledCode TokenCode(int num_devices) {
  CompiledCode code = TestCode(0, 1, num_devices, {});
  v1::ValueSpec* token = code.metadata.mutable_outputs(0);
  token->set_dtype(static_cast<int32_t>(DType::kPred));
  token->set_token(true);
  token->set_global_dims(0, 0);
  token->set_shard_dims(0, 0);
  return code;
}

TEST_F(ExecutablesDialogue, ATokenIsToldAsOneThoughAnEmptyArrayIsHeldForIt) {
  Ask("compile_request { @program(1 0) }");
  cluster_.AnswerCompile(TokenCode(1));
  Take();
  EXPECT_THAT(Ask(Execute(1152921504606846976, "")),
              HasSubstr("outputs { dtype { kind: KIND_TOKEN } shape { dims: 0 } sharding"));
}

TEST_F(ExecutablesDialogue, TokensOfSeveralDevicesAreTakenApartAndPutTogether) {
  Ask("compile_request { @program(2 0 1) }");
  cluster_.AnswerCompile(TokenCode(2));
  Take();
  EXPECT_THAT(Ask(Execute(1152921504606846976, "")),
              HasSubstr("outputs { dtype { kind: KIND_TOKEN } shape { dims: 0 } sharding"));
  EXPECT_EQ(
      Ask("disassemble_into_single_device_arrays_request { array_handle: 1152921504606846977 "
          "copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: [8, 9] }"),
      "3 #2 disassemble_into_single_device_arrays_response { array_handles: 8 array_handles: 9 }");
  EXPECT_EQ(Ask("assemble_array_from_single_device_arrays_request { shape { dims: 0 } @cut(0 1) "
                "single_device_array_handles: [8, 9] copy_semantics: "
                "ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handle: 10 dtype { kind: KIND_TOKEN } }"),
            "4 #3 assemble_array_from_single_device_arrays_response { array_handle: 10 }");
  Run();
  // Only tokens are assembled in this way.
  Put(11, 0, "aaaa");
  Put(12, 1, "bbbb");
  EXPECT_THAT(Ask("assemble_array_from_single_device_arrays_request { shape { dims: 2 } @cut(0 1) "
                  "single_device_array_handles: [11, 12] copy_semantics: "
                  "ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handle: 13 "
                  "dtype { kind: KIND_TOKEN } }"),
              HasSubstr("INVALID_ARGUMENT: assemble: array 11 is f32, expected pred"));
}

TEST_F(ExecutablesDialogue, ExecuteWithHandlesAnswersAtOnceAndErrorsGoIntoThem) {
  const uint64_t f = Compiled("0", 1, 1);
  EXPECT_EQ(Ask("make_array_from_host_buffer_request { @f32(8) @one(0) host_buffer_handle: 5 "
                "array_handle: 5 }"),
            "2 #1 make_array_from_host_buffer_response { array_handle: 5 }");
  EXPECT_EQ(Ask(Execute(f, "args_handles: 5 result_array_handle: 6")),
            "3 #2 loaded_executable_execute_response { }");
  EXPECT_THAT(Ask(Execute(f, "args_handles: 99 result_array_handle: 7")),
              StartsWith("4 NOT_FOUND: jit_f: argument 0: there is no array 99"));
  EXPECT_THAT(Ask("check_value_ready_request { value_handles: 7 }"),
              StartsWith("5 NOT_FOUND: jit_f: argument 0: there is no array 99"));
  EXPECT_THAT(Ask(Execute(f, "args_handles: 7 result_array_handle: 8")),
              testing::Not(HasSubstr("INTERNAL")));
  EXPECT_THAT(Ask("check_value_ready_request { value_handles: 8 }"),
              HasSubstr("NOT_FOUND: jit_f: argument 0: there is no array 99"));
  EXPECT_EQ(Ask(Execute(4711, "result_array_handle: 9")),
            "8 NOT_FOUND: there is no executable 4711 in this session");
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 9 }"),
            "9 NOT_FOUND: there is no executable 4711 in this session");
}

TEST_F(ExecutablesDialogue, AnArrayThatIsThereStaysWhenAnExecuteNamesItAsAResult) {
  const uint64_t f = Compiled("0", 1, 1);
  Put(5, 0, kEightFloats);
  Run();
  EXPECT_THAT(Ask(Execute(f, "args_handles: 5 result_array_handle: 5")),
              StartsWith("3 ALREADY_EXISTS"));
  EXPECT_THAT(Ask(Execute(4711, "args_handles: 5 result_array_handle: 5")),
              StartsWith("4 NOT_FOUND"));
  Ask("copy_to_host_buffer_request { array_handle: 5 host_buffer_handle: 6 }");
  Run();
  EXPECT_EQ(Lookup(6), kEightFloats);
}

TEST_F(ExecutablesDialogue, TheStatusHandleIsSetOnlyWhenItWasAskedForAndNotGiven) {
  const uint64_t f = Compiled("0", 1, 1);
  Put(5, 0, kEightFloats);
  EXPECT_EQ(Ask(Execute(
                f, "args_handles: 5 result_array_handle: 6 execute_options { fill_status: true }")),
            "3 #2 loaded_executable_execute_response { status_handle: 2305843009213693953 }");
  EXPECT_EQ(
      Ask(Execute(f,
                  "args_handles: 5 result_array_handle: 7 execute_options { fill_status: true } "
                  "result_status_handle: 8")),
      "4 #3 loaded_executable_execute_response { }");
  EXPECT_EQ(Ask("loaded_executable_fetch_execute_result_request { result_status_handle: 8 }"), "");
  EXPECT_EQ(Run(), "5 #4 loaded_executable_fetch_execute_result_response { }");
  EXPECT_EQ(Ask("loaded_executable_fetch_execute_result_request { result_status_handle: "
                "2305843009213693953 }"),
            "6 #5 loaded_executable_fetch_execute_result_response { }");
  EXPECT_EQ(Ask("loaded_executable_fetch_execute_result_request { result_status_handle: 8 }"),
            "7 NOT_FOUND: there is no future 8, or it was asked for already");
  Ask(Execute(f,
              "args_handles: 99 result_array_handle: 9 execute_options { fill_status: true } "
              "result_status_handle: 10"));
  EXPECT_THAT(Ask("loaded_executable_fetch_execute_result_request { result_status_handle: 10 }"),
              StartsWith("9 NOT_FOUND: jit_f: argument 0: there is no array 99"));
}

// Because JAX keeps only the status of the last execution on a device and waits for no other.
TEST_F(ExecutablesDialogue, OnADeviceStatusesComeInTheOrderOfTheExecutions) {
  const uint64_t f = Compiled("", 1, 1);
  Put(6, 0, kEightFloats);
  Put(7, 1, kEightFloats);
  EXPECT_EQ(
      Ask("make_array_from_host_buffer_request { @f32(8) @one(0) host_buffer_handle: 5 "
          "array_handle: 5 }"),
      "4 #3 make_array_from_host_buffer_response { array_handle: 5 }");  // its bytes come later
  const auto execute = [&](int argument, int device, int result, int status) {
    Ask(Execute(f, fmt::format("args_handles: {} device_ids: {} result_array_handle: {} "
                               "execute_options {{ fill_status: true }} result_status_handle: {}",
                               argument, device, result, status)));
  };
  execute(5, 0, 15, 25);
  execute(6, 0, 16, 26);
  execute(7, 1, 17, 27);
  Ask("loaded_executable_fetch_execute_result_request { result_status_handle: 26 }");
  Ask("loaded_executable_fetch_execute_result_request { result_status_handle: 27 }");
  EXPECT_EQ(Run(), "9 #7 loaded_executable_fetch_execute_result_response { }");
  EXPECT_EQ(AskAndRun("check_value_ready_request { value_handles: 16 }"),
            "10 #8 check_value_ready_response { }");
  session_->host_buffers().Store(5, Blob::Copy(kEightFloats));
  EXPECT_EQ(Run(), "8 #9 loaded_executable_fetch_execute_result_response { }");
}

TEST_F(ExecutablesDialogue, AFailedExecutionIsReportedByStatusAndResults) {
  const uint64_t f = Compiled("0", 1, 1);
  Put(5, 0, kEightFloats);
  Ask(Execute(f,
              "args_handles: 5 result_array_handle: 6 execute_options { fill_status: true } "
              "result_status_handle: 7"));
  cluster_.fail_next = absl::InternalError("the kernel failed");
  Run();
  EXPECT_THAT(Ask("loaded_executable_fetch_execute_result_request { result_status_handle: 7 }"),
              HasSubstr("INTERNAL: "));
  EXPECT_THAT(Ask("check_value_ready_request { value_handles: 6 }"),
              HasSubstr("the kernel failed"));
}

TEST_F(ExecutablesDialogue, AnExecutionThatFailsAtOnceIsReportedByItsStatus) {
  const uint64_t f = Compiled("0", 1, 1);
  Ask("make_error_arrays_request { error { code: ABORTED message: \"by the user\" } array_specs { "
      "@f32(8) @one(0) } array_handles: 5 }");
  EXPECT_EQ(Ask(Execute(
                f, "args_handles: 5 result_array_handle: 6 execute_options { fill_status: true }")),
            "3 #2 loaded_executable_execute_response { status_handle: 2305843009213693953 }");
  EXPECT_EQ(Ask("loaded_executable_fetch_execute_result_request { result_status_handle: "
                "2305843009213693953 }"),
            "4 ABORTED: by the user");
}

TEST_F(ExecutablesDialogue, DonatedArgumentsAreGoneUnlessKept) {
  const uint64_t f = Compiled("0", 1, 1, {0});
  Put(5, 0, kEightFloats);
  Put(6, 0, kEightFloats);
  Ask(Execute(f, "args_handles: 5 result_array_handle: 7"));
  Ask(Execute(
      f,
      "args_handles: 6 result_array_handle: 8 execute_options { non_donatable_input_indices: 0 }"));
  EXPECT_THAT(Ask("is_array_deleted_request { array_handle: 5 }"), HasSubstr("deleted: true"));
  EXPECT_THAT(Ask("is_array_deleted_request { array_handle: 6 }"),
              testing::Not(HasSubstr("deleted: true")));
  EXPECT_THAT(Ask(Execute(f, "args_handles: 5 result_array_handle: 9")),
              HasSubstr("FAILED_PRECONDITION"));
}

TEST_F(ExecutablesDialogue, PortableCodeRunsOnTheDeviceNamed) {
  const uint64_t f = Compiled("", 1, 1);
  Put(5, 1, kEightFloats);
  EXPECT_THAT(Ask(Execute(f, "args_handles: 5 device_ids: 1 result_array_handle: 6")),
              StartsWith("3 #2"));
  EXPECT_THAT(Ask(Execute(f, "args_handles: 5 device_ids: [0, 1] result_array_handle: 7")),
              HasSubstr("runs on one device, 2 were named"));
  const uint64_t fixed = Compiled("0", 1, 1);
  EXPECT_THAT(Ask(Execute(fixed, "args_handles: 5 device_ids: 1 result_array_handle: 8")),
              HasSubstr("was compiled for other devices"));
  EXPECT_EQ(Run(), "");
}

TEST_F(ExecutablesDialogue, CostAnalysisAndProgramText) {
  const uint64_t f = Compiled("0", 1, 1);
  EXPECT_EQ(Ask(fmt::format(
                "loaded_executable_cost_analysis_request {{ loaded_executable_handle: {} }}", f)),
            "2 #1 loaded_executable_cost_analysis_response { attributes { attributes { key: "
            "\"flops\" value { "
            "float_value: 8 } } } }");
  EXPECT_EQ(Ask(fmt::format("loaded_executable_human_readable_program_text_request {{ "
                            "loaded_executable_handle: {} }}",
                            f)),
            "3 #2 loaded_executable_human_readable_program_text_response { "
            "human_readable_program_text: \"HloModule jit_f\" "
            "}");
  EXPECT_EQ(Ask("loaded_executable_cost_analysis_request { loaded_executable_handle: 9 }"),
            "4 NOT_FOUND: there is no executable 9 in this session");
  EXPECT_EQ(
      Ask("loaded_executable_human_readable_program_text_request { loaded_executable_handle: 9 }"),
      "5 NOT_FOUND: there is no executable 9 in this session");
}

TEST_F(ExecutablesDialogue, DestructExecutable) {
  const uint64_t f = Compiled("0", 1, 1);
  EXPECT_EQ(
      Ask(fmt::format("loaded_executable_destruct_request {{ loaded_executable_handle: {} }}", f)),
      "2 #1 loaded_executable_destruct_response { }");
  EXPECT_THAT(
      Ask(fmt::format("loaded_executable_destruct_request {{ loaded_executable_handle: {} }}", f)),
      StartsWith("3 NOT_FOUND: there is no executable"));
}

TEST_F(ExecutablesDialogue, ReadinessNamesTheFirstFailedArrayInTheOrderGiven) {
  Put(5, 0, "aaaa");
  Ask("make_error_arrays_request { error { code: ABORTED message: \"six\" } array_specs { @f32(1) "
      "@one(0) } "
      "array_handles: 6 }");
  Ask("make_error_arrays_request { error { code: ABORTED message: \"seven\" } array_specs { "
      "@f32(1) @one(0) } "
      "array_handles: 7 }");
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: [5, 7, 6] }"), "4 ABORTED: seven");
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 5 }"),
            "5 #3 check_value_ready_response { }");
}

TEST_F(ExecutablesDialogue, AThousandExecutionsAndTheirFreesAreAcceptedWhileTheDeviceStands) {
  const uint64_t f = Compiled("0", 1, 1);
  Put(5, 0, kEightFloats);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_THAT(
        Ask(Execute(f, fmt::format("args_handles: {} result_array_handle: {}", 5 + i, 6 + i))),
        HasSubstr("loaded_executable_execute_response { }"));
    Ask(fmt::format("destruct_array_request {{ array_handle: {} }}", 5 + i));
  }
  EXPECT_TRUE(session_->MayRead());
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 1005 }"), "");
  EXPECT_THAT(Run(), HasSubstr("check_value_ready_response"));
  EXPECT_EQ(cluster_.cluster().inspection().counts().arrays, 1u);
}

TEST_F(ExecutablesDialogue, ARefusedSessionAnswersAllThatWaitsAndAllThatComes) {
  const uint64_t f = Compiled("0", 1, 1);
  Put(5, 0, kEightFloats);
  Ask(Execute(f,
              "args_handles: 5 result_array_handle: 6 execute_options { fill_status: true } "
              "result_status_handle: 9"));
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 6 }"), "");
  EXPECT_EQ(Ask("loaded_executable_fetch_execute_result_request { result_status_handle: 9 }"), "");
  session_->Refuse(absl::UnavailableError("the controller is shutting down"));
  EXPECT_EQ(Take(),
            "4 UNAVAILABLE: the controller is shutting down\n"
            "5 UNAVAILABLE: the controller is shutting down");
  EXPECT_EQ(Ask("init_request {}"), "6 UNAVAILABLE: the controller is shutting down");
  EXPECT_EQ(Run(), "");
}

TEST_F(ExecutablesDialogue, ReadingStopsAboveTheCapUntilWorkEnds) {
  TestCluster cluster;
  IfrtSession* session = nullptr;
  IfrtDoor door(&cluster.cluster(), &cluster.compiler(),
                {.caps = {.max_queued_nodes = 3}, .off_loop_bytes = 1 << 18});
  session = door.Open(1, "t", this).value();
  xla::ifrt::proxy::IfrtRequest request;
  for (uint64_t i = 1; i <= 4; ++i) {
    EXPECT_TRUE(session->MayRead());
    session->host_buffers().Store(i, Blob::Copy("aaaa"));
    auto* make = request.mutable_make_array_from_host_buffer_request();
    make->mutable_dtype()->set_kind(xla::ifrt::DTypeProto::KIND_F32);
    make->mutable_shape()->add_dims(1);
    make->mutable_shape()->mutable_dims()->Truncate(1);
    make->mutable_sharding()->mutable_serialized_sharding()->set_type_name(
        "xla::ifrt::SingleDeviceSharding");
    make->set_host_buffer_handle(i);
    make->set_array_handle(i);
    session->Handle(request);
  }
  EXPECT_FALSE(session->MayRead());
  cluster.RunAll();
  EXPECT_TRUE(session->MayRead());
  Take();
  door.Close(1);
}

TEST_F(ExecutablesDialogue, ReadingStopsAboveTheBytesThatQueuedExecutionsHold) {
  IfrtDoor door(&cluster_.cluster(), &cluster_.compiler(), {.caps = {.max_queued_bytes = 20000}});
  IfrtSession* const other = session_;
  session_ = door.Open(kId + 1, "t", this).value();
  const uint64_t f = Compiled("0", 1, 1);
  Put(5, 0, kEightFloats);
  int executions = 0;
  while (session_->MayRead() && executions < 1000) {
    Ask(Execute(f, fmt::format("args_handles: {} result_array_handle: {}", 5 + executions,
                               6 + executions)));
    ++executions;
  }
  EXPECT_GT(executions, 5);
  EXPECT_LT(executions, 20);
  Run();
  EXPECT_TRUE(session_->MayRead());
  door.Close(kId + 1);
  session_ = other;
}

TEST_F(ExecutablesDialogue, ReadingStopsWhileManyFetchedHostBuffersAreKept) {
  const auto fetched = std::make_shared<MemoryBudget>(4096);
  IfrtDoor door(&cluster_.cluster(), &cluster_.compiler(), {.fetched = fetched});
  IfrtSession* const first = session_;
  IfrtSession* const other = door.Open(kId + 2, "t", this).value();
  session_ = door.Open(kId + 1, "t", this).value();
  Put(5, 0, kEightFloats);
  int kept = 0;
  for (; session_->MayRead() && kept < 100; ++kept)
    Ask(fmt::format("copy_to_host_buffer_request {{ array_handle: 5 host_buffer_handle: {} }}",
                    100 + kept));
  EXPECT_EQ(kept, 4);  // 544 bytes each: half of the budget, and one more
  EXPECT_TRUE(other->MayRead());
  Run();
  EXPECT_FALSE(session_->MayRead());
  EXPECT_TRUE(session_->host_buffers().Delete(100).ok());
  EXPECT_TRUE(session_->MayRead());
  HostBufferStore::Bytes reader = absl::UnknownError("no bytes yet");
  session_->host_buffers().Lookup(101, [&](HostBufferStore::Bytes bytes) { reader = bytes; });
  EXPECT_TRUE(session_->host_buffers().Delete(101).ok());
  EXPECT_EQ(fetched->used(), 3 * 544);  // a reader still has it
  reader = absl::UnknownError("done");
  EXPECT_EQ(fetched->used(), 2 * 544);
  door.Close(kId + 1);
  door.Close(kId + 2);
  EXPECT_EQ(fetched->used(), 0);
  session_ = first;
}

TEST_F(ExecutablesDialogue, ReadingStopsWhileManyProgramsAreCompiled) {
  IfrtDoor door(&cluster_.cluster(), &cluster_.compiler(), {.caps = {.max_compilations = 2}});
  IfrtSession* const other = session_;
  session_ = door.Open(kId + 1, "t", this).value();
  for (const char* program : {"@program(1 0)", "@program(2 1 0)"}) {
    EXPECT_TRUE(session_->MayRead());
    Ask(fmt::format("compile_request {{ {} }}", program));
  }
  EXPECT_FALSE(session_->MayRead());
  cluster_.AnswerCompile(absl::InvalidArgumentError("no such program"));
  EXPECT_TRUE(session_->MayRead());
  cluster_.AnswerCompile(absl::InvalidArgumentError("no such program"));
  door.Close(kId + 1);
  session_ = other;
}

}  // namespace
}  // namespace fairway
