// SPDX-License-Identifier: Apache-2.0
// Golden dialogues about layouts and kinds of memory.
#include "controller/ifrt/dialogue.h"

namespace fairway {
namespace {

using testing::HasSubstr;

constexpr char kReuse[] = "copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT ";

class PlacingDialogue : public Dialogue {
 protected:
  // Makes array 5, f32[2, 3], with this layout field.
  std::string PutWith(const std::string& layout) {
    session_->host_buffers().Store(5, Blob::Copy("aaaabbbbccccddddeeeeffff"));
    return Ask(
        "make_array_from_host_buffer_request { @f32(2 3) @one(0) host_buffer_handle: 5 "
        "array_handle: 5 " +
        layout + " }");
  }

  // Makes array `handle`, f32[8], in this kind of memory.
  std::string PutIn(const std::string& kind, int handle) {
    session_->host_buffers().Store(handle, Blob::Copy(std::string(32, 'h')));
    const std::string line =
        Ask(fmt::format("make_array_from_host_buffer_request {{ @f32(8) @kept(0 {}) "
                        "host_buffer_handle: {} array_handle: {} }}",
                        kind, handle, handle));
    Run();
    return line;
  }

  std::string Copy(int from, const std::string& to, int result) {
    return Ask(fmt::format("copy_arrays_request {{ array_handles: {} {} {} result_handles: {} }}",
                           from, to, kReuse, result));
  }

  std::string Fetched(int handle, int buffer) {
    Ask(fmt::format("copy_to_host_buffer_request {{ array_handle: {} host_buffer_handle: {} }}",
                    handle, buffer));
    Run();
    return Lookup(buffer);
  }

  // Compiles an executable f32[2,4] -> f32[2,4]; `edit` changes the description of its result.
  uint64_t CompiledMatrix(const std::function<void(v1::ValueSpec&)>& edit) {
    Ask("compile_request { @program(1 0) }");
    CompiledCode code = TestCode(1, 1, 1, {});
    for (v1::ValueSpec* value :
         {code.metadata.mutable_parameters(0), code.metadata.mutable_outputs(0)}) {
      for (auto* dims : {value->mutable_global_dims(), value->mutable_shard_dims()}) {
        dims->Clear();
        dims->Add(2);
        dims->Add(4);
      }
      value->clear_minor_to_major();
    }
    edit(*code.metadata.mutable_outputs(0));
    cluster_.AnswerCompile(std::move(code));
    const std::string line = Take(), name = "loaded_executable_handle: ";
    EXPECT_THAT(line, HasSubstr(name));
    return std::stoull(line.substr(line.find(name) + name.size()));
  }

  std::string Metadata(uint64_t executable) {
    return Ask(fmt::format("loaded_executable_metadata_request {{ loaded_executable_handle: {} }}",
                           executable));
  }
};

TEST_F(PlacingDialogue, AnUploadMayNameTheLayoutThatItHas) {
  const std::string made = "#0 make_array_from_host_buffer_response { array_handle: 5 }";
  EXPECT_EQ(PutWith("@layout(1 0)"), "1 " + made);
  Run();
  EXPECT_EQ(Fetched(5, 6), "aaaabbbbccccddddeeeeffff");
}

TEST_F(PlacingDialogue, AnUploadMayNameItInBothForms) {
  EXPECT_EQ(PutWith("@compact(0 1)"),
            "1 #0 make_array_from_host_buffer_response { array_handle: 5 }");
}

TEST_F(PlacingDialogue, AnUploadInAnotherLayoutIsRefusedAndItsArrayHoldsTheError) {
  const std::string refused =
      "UNIMPLEMENTED: array layouts other than the default (major to minor) are not served";
  EXPECT_EQ(PutWith("@layout(0 1)"), "1 " + refused);
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 5 }"), "2 " + refused);
  EXPECT_EQ(Lookup(5), "NOT_FOUND: there is no host buffer 5");  // the bytes are dropped
  EXPECT_EQ(Ask("destruct_array_request { array_handle: 5 }"), "3 #0 destruct_array_response { }");
  // A layout of another rank than the array's, and a value that is not a layout.
  for (const char* layout :
       {"@compact(1 0)", "@layout(0)", "@compact(0 1 2)", "layout { }",
        "layout { serialized_layout { type_name: \"xla::ifrt::PjRtLayout\" data: \"\\377\" } }"}) {
    EXPECT_THAT(PutWith(layout), HasSubstr(refused)) << layout;
    Ask("destruct_array_request { array_handle: 5 }");
  }
}

TEST_F(PlacingDialogue, LayoutsOfACompiledProgramAreThoseOfTheCompiler) {
  const uint64_t f = CompiledMatrix([](v1::ValueSpec& result) {
    result.add_minor_to_major(0);
    result.add_minor_to_major(1);
  });
  const std::string line = Metadata(f);
  EXPECT_THAT(line, HasSubstr("parameter_layouts_list { layouts { minor_to_major: 1 "
                              "minor_to_major: 0 } }"));
  EXPECT_THAT(line, HasSubstr("output_layouts_list { layouts { minor_to_major: 0 "
                              "minor_to_major: 1 } }"));
}

TEST_F(PlacingDialogue, ArraysArePutIntoTheMemoryThatTheShardingNames) {
  EXPECT_EQ(PutIn("pinned_host", 5),
            "1 #0 make_array_from_host_buffer_response { array_handle: 5 }");
  EXPECT_EQ(Fetched(5, 6), std::string(32, 'h'));
  // A copy into the same memory moves nothing; one into another kind of memory does.
  const size_t actions = cluster_.log.size();
  EXPECT_EQ(Copy(5, "memory_kind: \"pinned_host\"", 7),
            "3 #2 copy_arrays_response { array_handles: 7 }");
  EXPECT_EQ(cluster_.log.size(), actions);
  EXPECT_EQ(Copy(5, "memory_kind: \"device\"", 8),
            "4 #3 copy_arrays_response { array_handles: 8 }");
  EXPECT_EQ(cluster_.log.back(), "e1 receive 1 shards");
  EXPECT_EQ(Fetched(8, 9), std::string(32, 'h'));
  // On another device it stays in its kind of memory, unless the request names one.
  EXPECT_EQ(Copy(5, "device_ids: 2", 10), "6 #5 copy_arrays_response { array_handles: 10 }");
  Run();
  const size_t there = cluster_.log.size();
  EXPECT_EQ(Copy(10, "device_ids: 2 memory_kind: \"pinned_host\"", 11),
            "7 #6 copy_arrays_response { array_handles: 11 }");
  EXPECT_EQ(cluster_.log.size(), there);
}

TEST_F(PlacingDialogue, AMemoryThatTheDeviceLacksIsNamedAndPoisonsTheResult) {
  const std::string moon =
      "INVALID_ARGUMENT: device 0 has no memory of kind \"moon\"; it has: device, pinned_host";
  EXPECT_EQ(PutIn("moon", 5), "1 " + moon);
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 5 }"), "2 " + moon);
  Put(6, 0, "aaaa");
  EXPECT_EQ(Copy(6, "memory_kind: \"moon\"", 7), "4 " + moon);
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 7 }"), "5 " + moon);
  EXPECT_EQ(Ask(fmt::format("reshard_arrays_request {{ array_handles: 6 array_specs {{ @f32(1) "
                            "@kept(0 moon) }} {} result_handles: 8 }}",
                            kReuse)),
            "6 " + moon);
}

TEST_F(PlacingDialogue, ResultsAreInTheMemoryThatTheProgramSays) {
  const uint64_t f =
      CompiledMatrix([](v1::ValueSpec& result) { result.set_memory_kind("pinned_host"); });
  EXPECT_THAT(Metadata(f), HasSubstr("output_memory_kinds { memory_kind_lists { memory_kinds: "
                                     "\"pinned_host\" } }"));
  session_->host_buffers().Store(5, Blob::Copy(std::string(32, 'x')));
  Ask("make_array_from_host_buffer_request { @f32(2 4) @one(0) host_buffer_handle: 5 array_handle: "
      "5 }");
  EXPECT_EQ(Ask(fmt::format("loaded_executable_execute_request {{ loaded_executable_handle: {} "
                            "args_handles: 5 result_array_handle: 6 }}",
                            f)),
            "4 #3 loaded_executable_execute_response { }");
  Run();
  const size_t actions = cluster_.log.size();
  Copy(6, "memory_kind: \"pinned_host\"", 7);
  EXPECT_EQ(cluster_.log.size(), actions);
  Copy(6, "memory_kind: \"device\"", 8);
  EXPECT_EQ(cluster_.log.back(), "e1 receive 1 shards");
  EXPECT_EQ(Fetched(8, 9), std::string(32, 'x'));
}

// jaxlib names the default memory; results leave it unnamed.
TEST_F(PlacingDialogue, AResultMayBeReadAsAnotherTypeInItsMemory) {
  const uint64_t f = Compiled("0", 1, 1);
  EXPECT_THAT(PutIn("device", 5), HasSubstr("array_handle: 5"));
  Ask(
      fmt::format("loaded_executable_execute_request {{ loaded_executable_handle: {} args_handles: "
                  "5 result_array_handle: 6 }}",
                  f));
  const auto bitcast = [&](const std::string& kind, int result) {
    return Ask(
        fmt::format("bitcast_arrays_request {{ array_handles: 6 array_specs {{ dtype {{ kind: "
                    "KIND_U8 }} shape {{ dims: 32 }} @kept(0 {}) }} {} result_handles: {} }}",
                    kind, kReuse, result));
  };
  EXPECT_EQ(bitcast("device", 7), "4 #3 bitcast_arrays_response { array_handles: 7 }");
  EXPECT_EQ(bitcast("pinned_host", 8),
            "5 INVALID_ARGUMENT: bitcast of f32[8] to u8[32]: it stays on its devices and in its "
            "memory");
  Run();
  EXPECT_EQ(Fetched(7, 9), std::string(32, 'h'));
}

}  // namespace
}  // namespace fairway
