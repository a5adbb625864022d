// SPDX-License-Identifier: Apache-2.0
// Golden dialogues: requests about devices and arrays, each with a success and an error.
#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"
#include "controller/ifrt/dialogue.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ArraysDialogue = Dialogue;

TEST_F(ArraysDialogue, InitDescribesVirtualDevices) {
  const std::string line = Ask("init_request {}");
  EXPECT_THAT(
      line,
      StartsWith(
          "1 #0 init_response { platform_name: \"cpu\" platform_version: \"fairway; fake 1\""));
  EXPECT_THAT(line, HasSubstr("runtime_type: \"fairway\""));
  EXPECT_THAT(
      line,
      HasSubstr("all_devices { id: 2 local_hardware_id: 2 device_kind: \"cpu\" debug_string: "
                "\"cpu:2\" to_string: \"CpuDevice(id=2, island=ib)\" "
                "default_memory_id: 4 memory_ids: 4 memory_ids: 5 local_device_id: 2 attributes { "
                "attributes { key: \"controller_version\" value { string_value: \""));
  EXPECT_THAT(
      line,
      HasSubstr("attributes { key: \"island\" value { string_value: \"ib\" } } attributes { key: "
                "\"memory_bytes\" value { int64_value: 0 } } attributes { key: "
                "\"slice_index\" value { int64_value: 1 } } } platform_name: \"cpu\" }"));
  EXPECT_THAT(
      line,
      HasSubstr("addressable_device_ids: 0 addressable_device_ids: 1 addressable_device_ids: 2 "
                "addressable_device_ids: 3 session_id: 77"));
  EXPECT_THAT(line, HasSubstr("memories { id: 5 memory_space_kind: \"pinned_host\" device_ids: 2"));
  EXPECT_THAT(line,
              HasSubstr("key: \"supports_executable_serialization\" value { bool_value: false }"));
  EXPECT_THAT(line, HasSubstr("key: \"serialize_with_sdy\" value { bool_value: true }"));
  // The answer to Init has no number.
  EXPECT_THAT(Ask("get_default_layout_request { dtype { kind: KIND_F32 } }"), StartsWith("2 #0 "));
}

TEST_F(ArraysDialogue, GetDefaultLayout) {
  EXPECT_EQ(
      Ask("get_default_layout_request { dtype { kind: KIND_F32 } dims: [4, 2] device_id: 3 }"),
      "1 #0 get_default_layout_response { serialized_pjrt_layout: \"{1,0}\" }");
  EXPECT_EQ(
      Ask("get_default_layout_request { dtype { kind: KIND_F32 } memory_kind: \"pinned_host\" }"),
      "2 #1 get_default_layout_response { serialized_pjrt_layout: \"{}\" }");
  EXPECT_EQ(Ask("get_default_layout_request { dtype { kind: KIND_F32 } device_id: 4 }"),
            "3 INVALID_ARGUMENT: there is no device 4");
  EXPECT_EQ(Ask("get_default_layout_request { dtype { kind: KIND_F32 } memory_kind: \"moon\" }"),
            "4 INVALID_ARGUMENT: device 0 has no memory of kind \"moon\"");
}

TEST_F(ArraysDialogue, GetDefaultDeviceAssignment) {
  EXPECT_EQ(Ask("get_default_device_assignment_request { num_replicas: 1 num_partitions: 2 }"),
            "1 #0 get_default_device_assignment_response { device_assignment { replica_count: 1 "
            "computation_count: 2 "
            "computation_devices { replica_device_ids: 0 } computation_devices { "
            "replica_device_ids: 1 } } }");
  EXPECT_EQ(Ask("get_default_device_assignment_request { num_replicas: 3 num_partitions: 2 }"),
            "2 INVALID_ARGUMENT: 3 replicas x 2 partitions on 4 devices");
  EXPECT_EQ(Ask("get_default_device_assignment_request { num_replicas: 9223372036854775809 "
                "num_partitions: 2 }"),
            "3 INVALID_ARGUMENT: 9223372036854775809 replicas x 2 partitions on 4 devices");
}

TEST_F(ArraysDialogue, AnArrayMayBeMadeBeforeItsBytesCome) {
  EXPECT_EQ(Ask("make_array_from_host_buffer_request { @f32(2) @one(0) host_buffer_handle: 5 "
                "array_handle: 5 }"),
            "1 #0 make_array_from_host_buffer_response { array_handle: 5 }");
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 5 }"), "");
  EXPECT_EQ(Run(), "");
  session_->host_buffers().Store(5, Blob::Copy("abcdefgh"));
  EXPECT_EQ(Run(), "2 #1 check_value_ready_response { }");
  EXPECT_EQ(session_->host_buffers().size(), 0u);
}

TEST_F(ArraysDialogue, AnArrayMayBeMadeAfterItsBytesCame) {
  session_->host_buffers().Store(5, Blob::Copy("abcdefgh"));
  EXPECT_EQ(Ask("make_array_from_host_buffer_request { @f32(2) @all(0 1) host_buffer_handle: 5 "
                "array_handle: 5 }"),
            "1 #0 make_array_from_host_buffer_response { array_handle: 5 }");
  Run();
  EXPECT_EQ(Ask("copy_to_host_buffer_request { array_handle: 5 host_buffer_handle: 6 }"),
            "2 #1 copy_to_host_buffer_response { }");
  Run();
  EXPECT_EQ(Lookup(6), "abcdefgh");
}

TEST_F(ArraysDialogue, StridedBytesBecomeDenseAndAreFetchedStrided) {
  session_->host_buffers().Store(5, Blob::Copy("aaaaccccbbbbdddd"));
  EXPECT_EQ(Ask("make_array_from_host_buffer_request { @f32(2 2) @one(0) byte_strides { strides: "
                "[4, 8] } "
                "host_buffer_handle: 5 array_handle: 5 }"),
            "1 #0 make_array_from_host_buffer_response { array_handle: 5 }");
  Run();
  Ask("copy_to_host_buffer_request { array_handle: 5 host_buffer_handle: 6 }");
  Ask("copy_to_host_buffer_request { array_handle: 5 host_buffer_handle: 7 byte_strides { strides: "
      "[4, 8] } }");
  Run();
  EXPECT_EQ(Lookup(6), "aaaabbbbccccdddd");
  EXPECT_EQ(Lookup(7), "aaaaccccbbbbdddd");
}

TEST_F(ArraysDialogue, AnImpossibleUploadIsDroppedAndItsArrayHoldsTheError) {
  session_->host_buffers().Store(5, Blob::Copy("abcdefgh"));
  const std::string error =
      "INVALID_ARGUMENT: one host buffer makes an array on one device or a fully replicated one, "
      "not 2 shards";
  EXPECT_EQ(Ask("make_array_from_host_buffer_request { @f32(2) @cut(0 1) host_buffer_handle: 5 "
                "array_handle: 5 }"),
            "1 " + error);
  EXPECT_EQ(session_->host_buffers().size(), 0u);
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 5 }"), "2 " + error);
  EXPECT_EQ(Ask("fully_replicated_shard_request { array_handle: 5 copy_semantics: "
                "ARRAY_COPY_SEMANTICS_REUSE_INPUT "
                "result_handle: 6 }"),
            "3 " + error);
  EXPECT_EQ(Ask("copy_to_host_buffer_request { array_handle: 6 host_buffer_handle: 7 }"),
            "4 " + error);
}

TEST_F(ArraysDialogue, WrongBytesAreAnErrorOfTheArray) {
  session_->host_buffers().Store(5, Blob::Copy("abc"));
  EXPECT_EQ(Ask("make_array_from_host_buffer_request { @f32(2) @one(0) host_buffer_handle: 5 "
                "array_handle: 5 }"),
            "1 #0 make_array_from_host_buffer_response { array_handle: 5 }");
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 5 }"),
            "2 INVALID_ARGUMENT: the host buffer has 3 bytes, expected 8");
  session_->host_buffers().Store(6, absl::DataLossError("8 bytes were announced, 3 came"));
  Ask("make_array_from_host_buffer_request { @f32(2) @one(0) host_buffer_handle: 6 array_handle: 6 "
      "}");
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 6 }"),
            "4 DATA_LOSS: 8 bytes were announced, 3 came");
}

TEST_F(ArraysDialogue, MakeArraysFromHostBufferShards) {
  session_->host_buffers().Store(5, Blob::Copy("aaaa"));
  session_->host_buffers().Store(6, Blob::Copy("bbbb"));
  EXPECT_EQ(
      Ask("make_arrays_from_host_buffer_shards_request { array_handles: 5 specs { array_spec { "
          "@f32(2) @cut(0 1) } "
          "addressable_shard_indices { indices: 0 } host_buffers { @f32(1) host_buffer_handle: 5 } "
          "addressable_shard_indices { indices: 1 } host_buffers { @f32(1) host_buffer_handle: 6 } "
          "} }"),
      "1 #0 make_arrays_from_host_buffer_shards_response { array_handles: 5 }");
  Ask("disassemble_into_single_device_arrays_request { array_handle: 5 copy_semantics: "
      "ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: [7, 8] }");
  Ask("copy_to_host_buffer_request { array_handle: 8 host_buffer_handle: 9 }");
  Run();
  EXPECT_EQ(Lookup(9), "bbbb");
}

TEST_F(ArraysDialogue, AMissingShardFailsAllArraysOfTheRequest) {
  session_->host_buffers().Store(5, Blob::Copy("aaaa"));
  EXPECT_EQ(Ask("make_arrays_from_host_buffer_shards_request { array_handles: 5 specs { array_spec "
                "{ @f32(2) @cut(0 1) } "
                "addressable_shard_indices { indices: 0 } host_buffers { @f32(1) "
                "host_buffer_handle: 5 } } }"),
            "1 INVALID_ARGUMENT: no host buffer for shard 1 of 2");
  EXPECT_EQ(session_->host_buffers().size(), 0u);
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 5 }"),
            "2 INVALID_ARGUMENT: no host buffer for shard 1 of 2");
}

TEST_F(ArraysDialogue, WhatWasMadeBeforeAFailureIsGone) {
  Put(7, 0, "aaaa");
  const std::string one =
      "specs { array_spec { @f32(1) @one(0) } addressable_shard_indices { indices: 0 } "
      "host_buffers { @f32(1) host_buffer_handle: ";
  EXPECT_THAT(Ask("make_arrays_from_host_buffer_shards_request { array_handles: [5, 7] " + one +
                  "5 } } " + one + "6 } } }"),
              HasSubstr("7"));
  Run();
  EXPECT_EQ(cluster_.cluster().inspection().counts().nodes, 0u)
      << "the upload of array 5 waits for no bytes";
}

// The strides ask for a block of 1 GiB for two elements.
TEST_F(ArraysDialogue, StridesThatAskForMuchMoreThanTheArrayAreRefused) {
  Put(5, 0, "aaaabbbb");
  EXPECT_THAT(Ask("copy_to_host_buffer_request { array_handle: 5 host_buffer_handle: 6 "
                  "byte_strides { strides: 1073741824 } }"),
              HasSubstr("the byte strides of f32[2] ask for a block of 1073741828 bytes"));
  EXPECT_EQ(session_->host_buffers().size(), 0u);
}

// Overlapping elements can make many bytes of few: the result's size decides what leaves the loop.
TEST_F(ArraysDialogue, OverlappingElementsAreLaidOutOffTheLoop) {
  session_->host_buffers().Store(5, Blob::Copy(std::string(4 * 1023, 'x')));
  Ask("make_array_from_host_buffer_request { dtype { kind: KIND_F32 } shape { dims: [512, 512] } "
      "byte_strides { strides: [4, 4] } @one(0) host_buffer_handle: 5 array_handle: 5 }");
  EXPECT_THAT(cluster_.log, Not(Contains(HasSubstr("upload"))));
  EXPECT_EQ(cluster_.cluster().inspection().counts().nodes, 1u);
  Run();
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 5 }"),
            "2 #1 check_value_ready_response { }");
}

TEST_F(ArraysDialogue, MakeErrorArrays) {
  EXPECT_EQ(Ask("make_error_arrays_request { error { code: ABORTED message: \"by the user\" } "
                "array_specs { @f32(2) @one(0) } array_handles: 5 }"),
            "1 #0 make_error_arrays_response { array_handles: 5 }");
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 5 }"), "2 ABORTED: by the user");
  EXPECT_EQ(Ask("make_error_arrays_request { array_specs { @f32(2) @one(0) } array_handles: 6 }"),
            "3 INVALID_ARGUMENT: error arrays of an OK status");
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 5 }"),
            "4 #1 is_array_deleted_response { }");
  Ask("delete_array_request { array_handle: 5 }");
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 5 }"),
            "6 #2 is_array_deleted_response { deleted: true }");
}

TEST_F(ArraysDialogue, AssembleAndDisassembleMoveNothing) {
  Put(5, 0, "aaaa");
  Put(6, 1, "bbbb");
  const size_t actions = cluster_.log.size();
  EXPECT_EQ(Ask("assemble_array_from_single_device_arrays_request { shape { dims: 2 } @cut(0 1) "
                "single_device_array_handles: [5, 6] copy_semantics: "
                "ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handle: 7 "
                "dtype { kind: KIND_F32 } }"),
            "3 #2 assemble_array_from_single_device_arrays_response { array_handle: 7 }");
  EXPECT_EQ(
      Ask("disassemble_into_single_device_arrays_request { array_handle: 7 copy_semantics: "
          "ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: [8, 9] }"),
      "4 #3 disassemble_into_single_device_arrays_response { array_handles: 8 array_handles: 9 }");
  EXPECT_EQ(cluster_.log.size(), actions);
}

TEST_F(ArraysDialogue, AssembleOfUnknownArraysPoisonsTheResult) {
  const std::string line =
      Ask("assemble_array_from_single_device_arrays_request { shape { dims: 2 } @cut(0 1) "
          "single_device_array_handles: "
          "[5, 6] copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handle: 7 }");
  EXPECT_THAT(line, StartsWith("1 NOT_FOUND: there is no array 5"));
  EXPECT_THAT(Ask("disassemble_into_single_device_arrays_request { array_handle: 7 copy_semantics: "
                  "ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: [8, 9] }"),
              StartsWith("2 NOT_FOUND: there is no array 5"));
  EXPECT_THAT(Ask("check_value_ready_request { value_handles: 9 }"),
              StartsWith("3 NOT_FOUND: there is no array 5"));
}

TEST_F(ArraysDialogue, CopyArraysBetweenIslands) {
  Put(5, 0, "aaaa");
  Put(6, 0, "bbbb");
  EXPECT_EQ(Ask("copy_arrays_request { array_handles: [5, 6] device_ids: 2 copy_semantics: "
                "ARRAY_COPY_SEMANTICS_ALWAYS_COPY result_handles: [7, 8] }"),
            "3 #2 copy_arrays_response { array_handles: 7 array_handles: 8 }");
  Run();
  Ask("copy_to_host_buffer_request { array_handle: 8 host_buffer_handle: 9 }");
  Run();
  EXPECT_EQ(Lookup(9), "bbbb");
  EXPECT_THAT(Ask("copy_arrays_request { array_handles: 5 device_ids: 9 copy_semantics: "
                  "ARRAY_COPY_SEMANTICS_ALWAYS_COPY result_handles: 10 }"),
              StartsWith("5 INVALID_ARGUMENT: there is no device 9"));
  EXPECT_THAT(Ask("copy_arrays_request { array_handles: 5 device_ids: 1 result_handles: 11 }"),
              StartsWith("6 INVALID_ARGUMENT: copy semantics"));
}

TEST_F(ArraysDialogue, ReshardToAnotherCutOnAnotherIslandAndBack) {
  Put(5, 0, "aaaabbbbcccc");
  // An uneven cut: two elements and one.
  EXPECT_EQ(Ask("reshard_arrays_request { array_handles: 5 array_specs { @f32(3) @cut(2 0) } "
                "copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: 6 }"),
            "2 #1 reshard_arrays_response { array_handles: 6 }");
  EXPECT_EQ(Ask("reshard_arrays_request { array_handles: 6 array_specs { @f32(3) @all(3 1) } "
                "copy_semantics: ARRAY_COPY_SEMANTICS_DONATE_INPUT result_handles: 7 }"),
            "3 #2 reshard_arrays_response { array_handles: 7 }");
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 6 }"),
            "4 #3 is_array_deleted_response { deleted: true }");
  Run();
  Ask("copy_to_host_buffer_request { array_handle: 7 host_buffer_handle: 8 }");
  Run();
  EXPECT_EQ(Lookup(8), "aaaabbbbcccc");
  Ask("disassemble_into_single_device_arrays_request { array_handle: 7 copy_semantics: "
      "ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: [9, 10] }");
  Ask("copy_to_host_buffer_request { array_handle: 10 host_buffer_handle: 11 }");
  Run();
  EXPECT_EQ(Lookup(11), "aaaabbbbcccc");
}

TEST_F(ArraysDialogue, AReshardToWhatIsThereMovesNothingUnlessACopyIsAskedFor) {
  Put(5, 0, "aaaabbbb");
  const size_t actions = cluster_.log.size();
  const std::string same =
      "reshard_arrays_request { array_handles: 5 array_specs { @f32(2) @all(0) } ";
  Ask(same + "copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: 6 }");
  EXPECT_EQ(cluster_.log.size(), actions);
  Ask(same + "copy_semantics: ARRAY_COPY_SEMANTICS_ALWAYS_COPY result_handles: 7 }");
  EXPECT_EQ(cluster_.log.back(), "e1 receive 1 shards");
  Run();
  Ask("delete_array_request { array_handle: 6 }");
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 5 }"),
            "5 #3 is_array_deleted_response { deleted: true }");
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 7 }"),
            "6 #4 is_array_deleted_response { }");
}

TEST_F(ArraysDialogue, ShardsWithoutBytesAreMade) {
  session_->host_buffers().Store(5, Blob::Copy(""));
  Ask("make_array_from_host_buffer_request { @f32(0) @one(0) host_buffer_handle: 5 array_handle: 5 "
      "}");
  Run();
  Put(6, 1, "aaaa");
  EXPECT_EQ(
      Ask("reshard_arrays_request { array_handles: [5, 6] array_specs { @f32(0) @cut(0 2) } "
          "array_specs { @f32(1) @cut(0 2) } copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT "
          "result_handles: [7, 8] }"),
      "3 #2 reshard_arrays_response { array_handles: 7 array_handles: 8 }");
  Run();
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: [7, 8] }"),
            "4 #3 check_value_ready_response { }");
}

TEST_F(ArraysDialogue, AReshardThatCannotBeIsRefusedAndPoisonsItsResults) {
  Put(5, 0, "aaaabbbb");
  EXPECT_EQ(Ask("reshard_arrays_request { array_handles: 5 array_specs { @f32(3) @cut(0 1) } "
                "copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: 6 }"),
            "2 INVALID_ARGUMENT: reshard: array 5 is f32[2], it cannot become f32[3]");
  EXPECT_THAT(Ask("check_value_ready_request { value_handles: 6 }"),
              StartsWith("3 INVALID_ARGUMENT: reshard: array 5"));
  EXPECT_THAT(Ask("reshard_arrays_request { array_handles: 5 array_specs { @f32(2) @cut(0 9) } "
                  "copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: 7 }"),
              StartsWith("4 INVALID_ARGUMENT: there is no device 9"));
  EXPECT_EQ(Ask("reshard_arrays_request { array_handles: 5 copy_semantics: "
                "ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: 8 }"),
            "5 INVALID_ARGUMENT: 1 arrays are to become 0");
  // The second of two reshards is refused, so the first is not made either.
  EXPECT_THAT(Ask("reshard_arrays_request { array_handles: [5, 5] array_specs { @f32(2) @one(1) } "
                  "array_specs { @f32(2) @one(9) } copy_semantics: "
                  "ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: [9, 10] }"),
              StartsWith("6 INVALID_ARGUMENT: there is no device 9"));
  EXPECT_THAT(Ask("check_value_ready_request { value_handles: 9 }"),
              StartsWith("7 INVALID_ARGUMENT: there is no device 9"));
  Ask("make_error_arrays_request { error { code: ABORTED message: \"by the user\" } array_specs { "
      "@f32(2) @one(0) } array_handles: 11 }");
  EXPECT_EQ(Ask("reshard_arrays_request { array_handles: 11 array_specs { @f32(2) @cut(0 3) } "
                "copy_semantics: ARRAY_COPY_SEMANTICS_DONATE_INPUT result_handles: 12 }"),
            "9 #2 reshard_arrays_response { array_handles: 12 }");
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 12 }"), "10 ABORTED: by the user");
}

TEST_F(ArraysDialogue, BitcastReadsTheBytesAsAnotherType) {
  Put(5, 0, "aaaabbbb");
  EXPECT_EQ(Ask("bitcast_arrays_request { array_handles: 5 array_specs { dtype { kind: KIND_U8 } "
                "shape { dims: [4, 2] } @one(0) } copy_semantics: "
                "ARRAY_COPY_SEMANTICS_DONATE_INPUT result_handles: 6 }"),
            "2 #1 bitcast_arrays_response { array_handles: 6 }");
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 5 }"),
            "3 #2 is_array_deleted_response { deleted: true }");
  Run();
  Ask("copy_to_host_buffer_request { array_handle: 6 host_buffer_handle: 7 }");
  Run();
  EXPECT_EQ(Lookup(7), "aaaabbbb");
  EXPECT_EQ(Ask("bitcast_arrays_request { array_handles: 6 array_specs { @f32(3) @one(0) } "
                "copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: 8 }"),
            "5 INVALID_ARGUMENT: bitcast of u8[4,2] to f32[3]: shard 0 has 8 bytes, 12 are asked "
            "for");
  EXPECT_EQ(Ask("bitcast_arrays_request { array_handles: 6 array_specs { @f32(2) @one(1) } "
                "copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: 9 }"),
            "6 INVALID_ARGUMENT: bitcast of u8[4,2] to f32[2]: it stays on its devices and in its "
            "memory");
  EXPECT_THAT(Ask("check_value_ready_request { value_handles: 9 }"),
              StartsWith("7 INVALID_ARGUMENT: bitcast of u8[4,2]"));
}

TEST_F(ArraysDialogue, RemapMovesNothingAndMayGiveTheInputsAway) {
  Put(5, 0, "aaaa");
  Put(6, 1, "bbbb");
  const size_t actions = cluster_.log.size();
  const std::string plan =
      "plan { input_specs { @f32(1) @one(0) } input_specs { @f32(1) @one(1) } output_specs { "
      "@f32(2) @cut(1 0) } @map(0 0 0 1 1 1 2 1) @map(1 0 0 1 1 0 1 1) } array_handles: [5, 6] ";
  EXPECT_EQ(Ask("remap_arrays_request { " + plan +
                "copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: 7 }"),
            "3 #2 remap_arrays_response { array_handles: 7 }");
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 5 }"),
            "4 #3 is_array_deleted_response { }");
  EXPECT_EQ(Ask("remap_arrays_request { " + plan +
                "copy_semantics: ARRAY_COPY_SEMANTICS_DONATE_INPUT result_handles: 8 }"),
            "5 #4 remap_arrays_response { array_handles: 8 }");
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 5 }"),
            "6 #5 is_array_deleted_response { deleted: true }");
  EXPECT_EQ(cluster_.log.size(), actions);
  Ask("destruct_array_request { array_handle: [5, 6, 7] }");
  Ask("disassemble_into_single_device_arrays_request { array_handle: 8 copy_semantics: "
      "ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: [9, 10] }");
  Ask("copy_to_host_buffer_request { array_handle: 9 host_buffer_handle: 11 }");
  Run();
  EXPECT_EQ(Lookup(11), "bbbb");
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 8 }"),
            "10 #8 is_array_deleted_response { }");
}

TEST_F(ArraysDialogue, ARemapThatDoesNotFitIsRefusedAndPoisonsItsResults) {
  Put(5, 0, "aaaa");
  const auto remap = [&](const std::string& plan, const std::string& semantics, int out) {
    return Ask(
        fmt::format("remap_arrays_request {{ plan {{ {} }} array_handles: 5 copy_semantics: "
                    "ARRAY_COPY_SEMANTICS_{} result_handles: {} }}",
                    plan, semantics, out));
  };
  const std::string whole = "input_specs { @f32(1) @one(0) } ";
  const std::string same = whole + "output_specs { @f32(1) @one(0) } @map(0 0 0 1 1 0 1 1)";
  EXPECT_EQ(
      remap(whole + "output_specs { @f32(1) @one(1) } @map(0 0 0 1 1 0 1 1)", "REUSE_INPUT", 6),
      "2 INVALID_ARGUMENT: remap: shard 0 of input 0 does not lie on device 1, where the "
      "output has it");
  EXPECT_THAT(Ask("check_value_ready_request { value_handles: 6 }"),
              StartsWith("3 INVALID_ARGUMENT: remap: shard 0 of input 0 does not lie"));
  EXPECT_EQ(remap(same, "ALWAYS_COPY", 7),
            "4 INVALID_ARGUMENT: remap: it copies nothing; say that the inputs are reused or "
            "donated");
  EXPECT_EQ(
      remap(whole + "output_specs { @f32(2) @one(0) } @map(0 0 0 1 1 0 1 1)", "REUSE_INPUT", 8),
      "5 INVALID_ARGUMENT: remap: shard 0 of input 0 is f32[1], the output has f32[2] there");
  EXPECT_EQ(remap("input_specs { @f32(3) @one(0) } output_specs { @f32(3) @one(0) } "
                  "@map(0 0 0 1 1 0 1 1)",
                  "REUSE_INPUT", 9),
            "6 INVALID_ARGUMENT: remap: input 0 is f32[1], the plan says f32[3]");
  EXPECT_EQ(remap(whole + "output_specs { @f32(1) @one(0) }", "REUSE_INPUT", 10),
            "7 INVALID_ARGUMENT: remap: nothing is given for shard 0 of output 0");
  EXPECT_EQ(remap(same + same, "REUSE_INPUT", 11),
            "8 INVALID_ARGUMENT: remap: shard 0 of input 0 is used twice");
  EXPECT_EQ(remap(same, "DONATE_INPUT", 5), "9 ALREADY_EXISTS: handle 5 is in use");
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 5 }"),
            "10 #1 is_array_deleted_response { }");
  Ask("make_error_arrays_request { error { code: ABORTED message: \"by the user\" } array_specs { "
      "@f32(1) @one(0) } array_handles: 12 }");
  EXPECT_EQ(Ask("remap_arrays_request { plan { " + same +
                " } array_handles: 12 copy_semantics: ARRAY_COPY_SEMANTICS_DONATE_INPUT "
                "result_handles: 13 }"),
            "12 #3 remap_arrays_response { array_handles: 13 }");
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 13 }"), "13 ABORTED: by the user");
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 12 }"),
            "14 #4 is_array_deleted_response { deleted: true }");
}

TEST_F(ArraysDialogue, TwoResultsNeedTwoHandles) {
  Put(5, 0, "aaaa");
  const std::string out = "output_specs { @f32(1) @one(0) } ";
  EXPECT_EQ(Ask("remap_arrays_request { plan { input_specs { @f32(1) @one(0) } input_specs { "
                "@f32(1) @one(0) } " +
                out + out +
                "@map(0 0 0 1 1 0 1 1) @map(1 1 0 1 1 0 1 1) } array_handles: [5, 5] "
                "copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: [6, 6] }"),
            "2 ALREADY_EXISTS: handle 6 is given for two results");
}

TEST_F(ArraysDialogue, FullyReplicatedShard) {
  session_->host_buffers().Store(5, Blob::Copy("aaaa"));
  Ask("make_array_from_host_buffer_request { @f32(1) @all(0 1) host_buffer_handle: 5 array_handle: "
      "5 }");
  EXPECT_EQ(Ask("fully_replicated_shard_request { array_handle: 5 copy_semantics: "
                "ARRAY_COPY_SEMANTICS_REUSE_INPUT "
                "result_handle: 6 }"),
            "2 #1 fully_replicated_shard_response { array_handle: 6 }");
  EXPECT_THAT(Ask("fully_replicated_shard_request { array_handle: 99 copy_semantics: "
                  "ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handle: 7 }"),
              StartsWith("3 NOT_FOUND: there is no array 99"));
}

TEST_F(ArraysDialogue, CopyToHostIsAnsweredBeforeTheBytesAreThere) {
  Ask("make_array_from_host_buffer_request { @f32(1) @one(0) host_buffer_handle: 5 array_handle: 5 "
      "}");
  EXPECT_EQ(Ask("copy_to_host_buffer_request { array_handle: 5 host_buffer_handle: 6 }"),
            "2 #1 copy_to_host_buffer_response { }");
  EXPECT_EQ(Lookup(6), "waits");
  session_->host_buffers().Store(5, absl::DataLossError("cut off"));
  EXPECT_EQ(Lookup(6), "DATA_LOSS: cut off");
  EXPECT_EQ(Ask("copy_to_host_buffer_request { array_handle: 99 host_buffer_handle: 7 }"),
            "3 NOT_FOUND: there is no array 99");
  EXPECT_EQ(Lookup(7), "NOT_FOUND: there is no host buffer 7");
}

TEST_F(ArraysDialogue, DeletionIsTheBuffersNotTheHandles) {
  Put(5, 0, "aaaa");
  Ask("copy_arrays_request { array_handles: 5 copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT "
      "result_handles: 6 }");
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 6 }"),
            "3 #2 is_array_deleted_response { }");
  EXPECT_EQ(Ask("delete_array_request { array_handle: 5 }"),
            "4 #0 delete_array_response { deletion_future_handle: 2305843009213693952 }");
  EXPECT_EQ(Ask("check_future_request { future_handle: 2305843009213693952 }"),
            "5 #0 check_future_response { }");
  EXPECT_EQ(Ask("is_array_deleted_request { array_handle: 6 }"),
            "6 #3 is_array_deleted_response { deleted: true }");
  EXPECT_THAT(Ask("is_array_deleted_request { array_handle: 99 }"),
              StartsWith("7 NOT_FOUND: there is no array 99"));
  Ask("delete_array_request { array_handle: 99 }");
  EXPECT_THAT(Ask("check_future_request { future_handle: 2305843009213693953 }"),
              StartsWith("9 NOT_FOUND: there is no array 99"));
}

// A client that never asks for its futures.
class FewRecordsDialogue : public Dialogue {
 protected:
  FewRecordsDialogue() : Dialogue(-1, size_t{256} << 10) {}
};

TEST_F(FewRecordsDialogue, FuturesThatNobodyAsksForHoldNoMoreThanIsLeftToOthers) {
  Put(5, 0, "aaaa");
  std::string answer;
  int deleted = 0;
  for (; deleted < 5000 && answer.find("RESOURCE_EXHAUSTED") == std::string::npos; ++deleted)
    answer = Ask("delete_array_request { array_handle: 5 }");
  EXPECT_THAT(answer, HasSubstr("RESOURCE_EXHAUSTED: the arrays were deleted: this session's "
                                "futures, user contexts and executables hold"));
  EXPECT_GT(deleted, 500);
  EXPECT_LT(deleted, 800);
  // Another one has room, and this one has again when it asks for some.
  const SessionId other = cluster_.cluster().sessions().Open("t").value();
  EXPECT_TRUE(cluster_.cluster().sessions().CountDoor(other, 1000).ok());
  for (uint64_t future = 0; future < 100; ++future)
    Ask(fmt::format("check_future_request {{ future_handle: {} }}", std::stoull(kFuture) + future));
  EXPECT_THAT(Ask("delete_array_request { array_handle: 5 }"),
              HasSubstr("delete_array_response { deletion_future_handle:"));
  cluster_.cluster().sessions().Close(other);
}

TEST_F(ArraysDialogue, DestructFreesAndNamesUnknownHandles) {
  Put(5, 0, "aaaa");
  EXPECT_EQ(Ask("destruct_array_request { array_handle: 5 }"), "2 #0 destruct_array_response { }");
  EXPECT_EQ(cluster_.cluster().inspection().counts().arrays, 0u);
  EXPECT_EQ(Ask("destruct_array_request { array_handle: [5, 99] }"),
            "3 NOT_FOUND: no such arrays to give up: 5, 99");
}

TEST_F(ArraysDialogue, HandlesOfTheClientAreChecked) {
  Put(5, 0, "aaaa");
  EXPECT_EQ(Ask("make_array_from_host_buffer_request { @f32(1) @one(0) host_buffer_handle: 5 "
                "array_handle: 5 }"),
            "2 ALREADY_EXISTS: handle 5 is in use");
  EXPECT_THAT(
      Ask("make_array_from_host_buffer_request { @f32(1) @one(0) host_buffer_handle: 6 "
          "array_handle: "
          "1152921504606846976 }"),
      StartsWith("3 INVALID_ARGUMENT: handle 1152921504606846976 is in the server's range"));
}

TEST_F(ArraysDialogue, KindsThatAreNotServedAreNamed) {
  for (const char* kind :
       {"loaded_executable_delete_request", "loaded_executable_is_deleted_request",
        "loaded_executable_mpmd_metadata_request", "loaded_executable_mpmd_cost_analysis_request",
        "loaded_host_callback_poll_request", "loaded_host_callback_return_request"}) {
    EXPECT_THAT(Ask(std::string(kind) + " {}"),
                testing::EndsWith(fmt::format("{} is not served by Fairway", kind)));
  }
  EXPECT_THAT(Ask(""), HasSubstr("UNIMPLEMENTED: a request of a kind that Fairway does not know"));
}

TEST_F(ArraysDialogue, ListsOfHandlesHaveABound) {
  xla::ifrt::proxy::IfrtRequest request;
  request.mutable_request_metadata()->set_op_id(1);
  const auto refused = [&](google::protobuf::RepeatedField<uint64_t>* handles) {
    handles->Resize((1 << 20) + 1, 3);
    session_->Handle(request);
    EXPECT_THAT(Take(),
                testing::ContainsRegex("^1 #?[0-9]* ?INVALID_ARGUMENT: xla.ifrt.proxy.*[.].*"
                                       " names 1048577 handles; at most 1048576"));
  };
  refused(request.mutable_copy_arrays_request()->mutable_array_handles());
  refused(request.mutable_check_value_ready_request()->mutable_value_handles());
  refused(request.mutable_loaded_executable_execute_request()->mutable_result_array_handle());
  EXPECT_EQ(cluster_.cluster().inspection().counts().arrays, 0u);
}

TEST_F(ArraysDialogue, ContextsAreReportedOnceWhenTheLastArrayOfTheirRequestIsGone) {
  session_->host_buffers().Store(5, Blob::Copy("aaaa"));
  EXPECT_EQ(Ask("request_metadata { user_context_id: 11 } make_array_from_host_buffer_request { "
                "@f32(1) @one(0) "
                "host_buffer_handle: 5 array_handle: 5 }"),
            "1 #0 make_array_from_host_buffer_response { array_handle: 5 }");
  EXPECT_EQ(
      Ask("request_metadata { user_context_id: 12 } is_array_deleted_request { array_handle: 5 }"),
      "2 #1 is_array_deleted_response { } contexts gone: 12");
  EXPECT_EQ(Ask("destruct_array_request { array_handle: 5 }"), "3 #0 destruct_array_response { }");
  EXPECT_EQ(
      Ask("get_default_layout_request { dtype { kind: KIND_F32 } }"),
      "4 #2 get_default_layout_response { serialized_pjrt_layout: \"{}\" } contexts gone: 11");
  EXPECT_EQ(Ask("get_default_layout_request { dtype { kind: KIND_F32 } }"),
            "5 #3 get_default_layout_response { serialized_pjrt_layout: \"{}\" }");
}

}  // namespace
}  // namespace fairway
