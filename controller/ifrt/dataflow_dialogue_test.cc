// SPDX-License-Identifier: Apache-2.0
// Golden dialogues: dataflow programs, which come as plugin programs.
#include <google/protobuf/text_format.h>

#include "controller/ifrt/dialogue.h"
#include "fairway/v1/program.pb.h"

namespace fairway {
namespace {

using DataflowDialogue = Dialogue;

constexpr char kType[] = "dtype: 11 dims: 8";  // f32[8]

// f(x) = (b(a(x)), a(x)): a on slice 0 (device 0), b on slice 1 (device 2). Both share one code.
std::string TwoSlices(const std::string& donated = "") {
  const std::string argument =
      fmt::format("argument {{ type {{ array {{ {} }} }} {} }}", kType, donated);
  return fmt::format(
      R"(program {{ name: "f"
           slices {{ name: "s0" devices: 1 }} slices {{ name: "s1" devices: 1 }}
           computations {{ name: "g" stablehlo: "code" devices: 1
             parameters {{ {0} }} results {{ {0} }} }}
           graphs {{
             nodes {{ name: "x" {1} }}
             nodes {{ name: "a" source: "train.py:3" compute {{ inputs {{ node: 0 }} }} }}
             nodes {{ name: "b" source: "train.py:4" compute {{ slice: 1 inputs {{ node: 1 }} }} }}
             results {{ node: 2 }} results {{ node: 1 }} }} }}
         slices {{ devices: 0 }} slices {{ devices: 2 }})",
      kType, argument);
}

std::string Request(const std::string& data) {
  xla::ifrt::proxy::IfrtRequest request;
  auto* program = request.mutable_compile_request()->mutable_program();
  program->set_type_name("xla::ifrt::PluginProgram");
  program->set_data(data);
  request.mutable_compile_request()->mutable_compile_options()->set_type_name(
      "xla::ifrt::PluginCompileOptions");
  return request.ShortDebugString();
}

std::string BindRequest(const std::string& text) {
  v1::BoundProgram program;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &program)) << text;
  return Request("__serialized_plugin_program fairway.v1.BoundProgram " +
                 program.SerializeAsString());
}

TEST_F(DataflowDialogue, AProgramIsAnExecutableOverItsDevicesAndRunsByOneMessage) {
  EXPECT_EQ(AskAndRun(BindRequest(TwoSlices())), "");
  while (cluster_.open_compilations() > 0) cluster_.AnswerCompile(TestCode(1, 1, 1));
  EXPECT_EQ(
      Run(),
      fmt::format("1 #0 compile_response {{ loaded_executable_handle: {} name: \"f\" num_devices: "
                  "2 addressable_device_ids: 0 addressable_device_ids: 2 fingerprint_value: \"f\" "
                  "ready_future_handle: {} device_ids: 0 device_ids: 2 }}",
                  kFirst, kFuture));
  EXPECT_EQ(Ask(fmt::format("loaded_executable_metadata_request {{ loaded_executable_handle: {} }}",
                            kFirst)),
            "2 #1 loaded_executable_metadata_response { output_memory_kinds { memory_kind_lists { "
            "memory_kinds: \"device\" memory_kinds: \"device\" } } parameter_layouts_list { "
            "layouts { minor_to_major: 0 } } output_layouts_list { layouts { minor_to_major: 0 } "
            "layouts { minor_to_major: 0 } } donated_input_indices { } "
            "compiled_memory_stats_error { code: UNIMPLEMENTED message: \"not known of a dataflow "
            "program\" } }");
  Put(5, 0, "aaaabbbbccccddddeeeeffffgggghhhh");
  EXPECT_EQ(Ask(fmt::format("loaded_executable_execute_request {{ loaded_executable_handle: {} "
                            "args_handles: 5 result_array_handle: 6 result_array_handle: 7 }}",
                            kFirst)),
            "4 #3 loaded_executable_execute_response { }");
  Run();
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 6 value_handles: 7 }"),
            "5 #4 check_value_ready_response { }");
  Ask("copy_to_host_buffer_request { array_handle: 6 host_buffer_handle: 90 }");
  Run();
  EXPECT_EQ(Lookup(90), "aaaabbbbccccddddeeeeffffgggghhhh");
  EXPECT_EQ(Ask(fmt::format("loaded_executable_cost_analysis_request {{ "
                            "loaded_executable_handle: {} }}",
                            kFirst)),
            "7 UNIMPLEMENTED: a dataflow program has no cost analysis");
  EXPECT_EQ(Ask(fmt::format("loaded_executable_destruct_request {{ loaded_executable_handle: {} }}",
                            kFirst)),
            "8 #6 loaded_executable_destruct_response { }");
  EXPECT_EQ(Ask(fmt::format("loaded_executable_metadata_request {{ loaded_executable_handle: {} }}",
                            kFirst)),
            fmt::format("9 NOT_FOUND: there is no executable {} in this session", kFirst));
}

TEST_F(DataflowDialogue, TheFirstRunDescribesItsResultsAndDonatedArgumentsAreNamed) {
  AskAndRun(BindRequest(TwoSlices("donated: true")));
  while (cluster_.open_compilations() > 0) cluster_.AnswerCompile(TestCode(1, 1, 1));
  Run();
  EXPECT_THAT(Ask(fmt::format(
                  "loaded_executable_metadata_request {{ loaded_executable_handle: {} }}", kFirst)),
              testing::HasSubstr("donated_input_indices { donated_input_indices: 0 }"));
  Put(5, 0, "aaaabbbbccccddddeeeeffffgggghhhh");
  const std::string answer =
      Ask(fmt::format("loaded_executable_execute_request {{ loaded_executable_handle: {} "
                      "args_handles: 5 }}",
                      kFirst));
  EXPECT_THAT(answer, testing::HasSubstr("outputs { dtype { kind: KIND_F32 } shape { dims: 8 }"));
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 5 }"),
            "5 #4 is_array_deleted_response { deleted: true }");
}

TEST_F(DataflowDialogue, AnotherThreadDescribesManyResults) {
  constexpr size_t kResults = 300;
  std::string text = TwoSlices();
  const size_t at = text.find("results { node: 2 }");
  ASSERT_NE(at, std::string::npos);
  for (size_t i = 2; i < kResults; ++i) text.insert(at, "results { node: 2 } ");
  const auto count = [](const std::string& answer, std::string_view what) {
    size_t found = 0;
    for (size_t i = answer.find(what); i != std::string::npos; i = answer.find(what, i + 1))
      ++found;
    return found;
  };
  AskAndRun(BindRequest(text));
  while (cluster_.open_compilations() > 0) cluster_.AnswerCompile(TestCode(1, 1, 1));
  Run();
  EXPECT_EQ(Ask(fmt::format("loaded_executable_metadata_request {{ loaded_executable_handle: {} }}",
                            kFirst)),
            "");
  EXPECT_TRUE(session_->Describing());  // so the stream takes no request
  EXPECT_EQ(count(Run(), "minor_to_major"), kResults + 1);
  EXPECT_FALSE(session_->Describing());
  Put(5, 0, "aaaabbbbccccddddeeeeffffgggghhhh");
  EXPECT_EQ(Ask(fmt::format("loaded_executable_execute_request {{ loaded_executable_handle: {} "
                            "args_handles: 5 }}",
                            kFirst)),
            "");
  EXPECT_EQ(count(Run(), "array_handle"), kResults);
}

TEST_F(DataflowDialogue, AWrongArgumentPoisonsTheResultsWithTheReason) {
  AskAndRun(BindRequest(TwoSlices()));
  while (cluster_.open_compilations() > 0) cluster_.AnswerCompile(TestCode(1, 1, 1));
  Run();
  Put(5, 0, "aaaabbbb");
  EXPECT_EQ(Ask(fmt::format("loaded_executable_execute_request {{ loaded_executable_handle: {} "
                            "args_handles: 5 result_array_handle: 6 result_array_handle: 7 }}",
                            kFirst)),
            "3 INVALID_ARGUMENT: f: argument 0 is f32[2], expected f32[8]");
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 7 }"),
            "4 INVALID_ARGUMENT: f: argument 0 is f32[2], expected f32[8]");
}

TEST_F(DataflowDialogue, WhatIsNoProgramOfOursIsRefused) {
  EXPECT_EQ(AskAndRun(Request("__serialized_plugin_program something else")),
            "1 UNIMPLEMENTED: a plugin program that is no fairway.v1.BoundProgram is not served");
  EXPECT_EQ(AskAndRun(Request("__serialized_plugin_program fairway.v1.BoundProgram \xff\xff")),
            "2 INVALID_ARGUMENT: the dataflow program does not parse");
  EXPECT_EQ(
      AskAndRun(BindRequest("program { name: \"f\" graphs { results { node: 3 } } }")),
      "3 INVALID_ARGUMENT: program f: result 0 of graph 0: it takes an output of node 3, which "
      "does not exist");
}

// The types of a program's values grow with its slices, so the slices' devices are checked first.
TEST_F(DataflowDialogue, SlicesAreComparedWithTheirDevicesFirst) {
  EXPECT_EQ(AskAndRun(BindRequest("program { name: \"f\" slices { name: \"a\" devices: 65536 } "
                                  "graphs { results { node: 3 } } } slices { devices: 0 }")),
            "1 INVALID_ARGUMENT: program f: slice \"a\" has 65536 devices, but 1 were given");
}

TEST_F(DataflowDialogue, TheCompilersErrorNamesTheComputation) {
  AskAndRun(BindRequest(TwoSlices()));
  while (cluster_.open_compilations() > 0)
    cluster_.AnswerCompile(absl::InvalidArgumentError("line 3: bad"));
  EXPECT_EQ(Run(), "1 INVALID_ARGUMENT: program f: computation \"g\": line 3: bad");
}

}  // namespace
}  // namespace fairway
