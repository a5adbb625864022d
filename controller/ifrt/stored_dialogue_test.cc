// SPDX-License-Identifier: Apache-2.0
// Golden dialogues: small uploads stay with the controller until something uses them.
#include "controller/cluster/inspection.h"
#include "controller/ifrt/dialogue.h"

namespace fairway {
namespace {

using testing::Contains;
using testing::Each;
using testing::IsEmpty;
using testing::StartsWith;

class StoredDialogue : public Dialogue {
 protected:
  StoredDialogue() : Dialogue(64 << 10) {}
};

TEST_F(StoredDialogue, AnUploadIsReadyReadAndDeletedWithoutAnExecutor) {
  Put(5, 0, "aaaabbbb");
  EXPECT_EQ(Ask("check_value_ready_request { value_handles: 5 }"),
            "2 #1 check_value_ready_response { }");
  Ask("copy_to_host_buffer_request { array_handle: 5 host_buffer_handle: 9 }");
  EXPECT_EQ(Lookup(9), "aaaabbbb");
  Ask("delete_array_request { array_handle: 5 }");
  EXPECT_THAT(cluster_.log, IsEmpty());
  EXPECT_EQ(cluster_.cluster().inspection().counts().stored_bytes, 0u);
}

TEST_F(StoredDialogue, AnUploadToTheFirstIslandIsUsedOnTheOtherWithoutIt) {
  const uint64_t f = Compiled("2", 1, 1);
  Put(5, 0, "aaaabbbbccccddddeeeeffffgggghhhh");
  Ask("copy_arrays_request { array_handles: 5 device_ids: 2 copy_semantics: "
      "ARRAY_COPY_SEMANTICS_ALWAYS_COPY result_handles: 6 }");
  EXPECT_THAT(cluster_.log, IsEmpty());
  Ask(
      fmt::format("loaded_executable_execute_request {{ loaded_executable_handle: {} "
                  "args_handles: 6 result_array_handle: 7 }}",
                  f));
  Run();
  EXPECT_THAT(cluster_.log, Contains("e2 receive 1 shards"));
  EXPECT_THAT(cluster_.log, Each(StartsWith("e2 ")));
  Ask("copy_to_host_buffer_request { array_handle: 7 host_buffer_handle: 9 }");
  Run();
  EXPECT_EQ(Lookup(9), "aaaabbbbccccddddeeeeffffgggghhhh");
}

TEST_F(StoredDialogue, AnUploadIsCutForAnotherIslandWithoutAnExecutor) {
  Put(5, 0, "aaaabbbb");
  Ask("reshard_arrays_request { array_handles: 5 array_specs { @f32(2) @cut(2 3) } "
      "copy_semantics: ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: 6 }");
  Ask("disassemble_into_single_device_arrays_request { array_handle: 6 copy_semantics: "
      "ARRAY_COPY_SEMANTICS_REUSE_INPUT result_handles: [7, 8] }");
  Ask("copy_to_host_buffer_request { array_handle: 8 host_buffer_handle: 9 }");
  EXPECT_EQ(Lookup(9), "bbbb");
  EXPECT_THAT(cluster_.log, IsEmpty());
}

}  // namespace
}  // namespace fairway
