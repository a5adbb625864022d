// SPDX-License-Identifier: Apache-2.0
// Requests that make many arrays, in turns.
#include <google/protobuf/text_format.h>

#include "controller/cluster/inspection.h"
#include "controller/ifrt/dialogue.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using MakingDialogue = Dialogue;

// A request that makes `arrays` arrays, f32[1] each, of host buffers 1, 2, ..; the last one lacks a
// shard if `wrong`.
xla::ifrt::proxy::IfrtRequest ManyShards(int arrays, bool wrong = false) {
  xla::ifrt::proxy::IfrtRequest request;
  auto* many = request.mutable_make_arrays_from_host_buffer_shards_request();
  for (int i = 1; i <= arrays; ++i) {
    many->add_array_handles(i);
    auto* spec = many->add_specs();
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        Expanded("array_spec { @f32(1) @one(0) } addressable_shard_indices { indices: 0 } "
                 "host_buffers { @f32(1) }"),
        spec));
    spec->mutable_host_buffers(0)->set_host_buffer_handle(i);
    if (wrong && i == arrays) spec->mutable_addressable_shard_indices(0)->clear_indices();
  }
  return request;
}

TEST_F(MakingDialogue, ManyArraysOfHostBuffersAreMadeAFewHundredInATurn) {
  auto request = ManyShards(600);
  for (int i = 1; i <= 600; ++i) session_->host_buffers().Store(i, Blob::Copy("aaaa"));
  session_->Handle(request);
  size_t made = 0;
  int turns = 1;
  for (; session_->HasMore() && turns < 100; ++turns) {
    EXPECT_TRUE(session_->Busy()) << "its next request waits";
    EXPECT_EQ(Take(), "");
    session_->GoOn();
    const size_t now = cluster_.cluster().inspection().counts().arrays;
    EXPECT_LE(now - made, 256u);
    made = now;
  }
  EXPECT_EQ(turns, 8);  // three phases for 600 arrays
  EXPECT_THAT(Take(), StartsWith("0 #0 make_arrays_from_host_buffer_shards_response { "
                                 "array_handles: 1 array_handles: 2"));
  EXPECT_EQ(session_->host_buffers().size(), 0u);
  EXPECT_EQ(cluster_.off_loop(), 0u) << "they are few";
  Run();
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 600 }"),
            "1 #1 check_value_ready_response { }");
}

TEST_F(MakingDialogue, ManyArraysAreMadeAllOrNone) {
  auto request = ManyShards(600, /*wrong=*/true);
  for (int i = 1; i <= 600; ++i) session_->host_buffers().Store(i, Blob::Copy("aaaa"));
  Put(700, 0, "aaaa");
  session_->Handle(request);
  EXPECT_THAT(Run(), HasSubstr("0 INVALID_ARGUMENT: no host buffer for shard 0 of 1"));
  EXPECT_EQ(session_->host_buffers().size(), 0u);
  EXPECT_THAT(Ask("check_value_ready_request { value_handles: 1 }"), HasSubstr("no host buffer"));
  // This request finds a handle taken after it has made other arrays.
  auto taken = ManyShards(600);
  auto& handles = *taken.mutable_make_arrays_from_host_buffer_shards_request();
  for (int i = 0; i < 600; ++i) handles.set_array_handles(i, i + 101 == 700 ? 700 : i + 1001);
  session_->Handle(taken);
  EXPECT_THAT(Run(), HasSubstr("ALREADY_EXISTS: handle 700 is in use"));
  EXPECT_EQ(cluster_.cluster().inspection().counts().nodes, 0u);
  EXPECT_THAT(Ask("check_value_ready_request { value_handles: 1001 }"), HasSubstr("in use"));
}

TEST_F(MakingDialogue, ASessionThatEndsWhileManyArraysAreMadeLeavesNone) {
  auto request = ManyShards(3000);
  session_->Handle(request);
  for (int turn = 0; turn < 15; ++turn) session_->GoOn();
  EXPECT_GT(cluster_.cluster().inspection().counts().arrays, 0u);
  EXPECT_LT(cluster_.cluster().inspection().counts().arrays, 3000u);
  EXPECT_EQ(cluster_.off_loop(), 0u);
  cluster_.door().Close(kId);
  EXPECT_EQ(cluster_.off_loop(), 1u) << "another thread gives its request up";
  cluster_.RunAll();
  EXPECT_EQ(cluster_.cluster().inspection().counts().nodes, 0u);
  session_ = cluster_.door().Open(kId, "tenant", this).value();
}

TEST_F(MakingDialogue, ManyErrorArraysAreMadeAFewHundredInATurn) {
  xla::ifrt::proxy::IfrtRequest request;
  auto* many = request.mutable_make_error_arrays_request();
  many->mutable_error()->set_code(tensorflow::error::ABORTED);
  for (int i = 1; i <= 1500; ++i) {
    many->add_array_handles(i);
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(Expanded("@f32(2) @one(0)"),
                                                              many->add_array_specs()));
  }
  session_->Handle(request);
  size_t made = 0;
  while (session_->HasMore()) {
    session_->GoOn();
    const size_t now = cluster_.cluster().inspection().counts().arrays;
    EXPECT_LE(now - made, 256u);
    made = now;
  }
  EXPECT_EQ(made, 1500u);
  EXPECT_EQ(cluster_.off_loop(), 1u) << "another thread gives its types up";
  EXPECT_THAT(Take(), StartsWith("0 #0 make_error_arrays_response { array_handles: 1"));
}

}  // namespace
}  // namespace fairway
