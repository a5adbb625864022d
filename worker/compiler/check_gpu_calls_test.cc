// SPDX-License-Identifier: Apache-2.0
// Tests text and optimized programs. tests/gpu tests the bytecode that JAX writes.
#include "worker/compiler/check_gpu_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::HasSubstr;

// A program that makes the call written as `call`.
std::string Calling(std::string_view call) {
  return fmt::format(R"(module @f attributes {{mhlo.num_partitions = 1 : i32}} {{
  func.func public @main(%x: tensor<f32> {{mhlo.sharding = "{{replicated}}"}}) -> tensor<f32> {{
    %0 = {} : (tensor<f32>) -> tensor<f32>
    return %0 : tensor<f32>
  }}
}})",
                     call);
}

TEST(CheckGpuCalls, TextMayMakeTheCallsThatJaxWrites) {
  EXPECT_EQ(CheckGpuProgram(Calling("stablehlo.custom_call @Sharding(%x)")), absl::OkStatus());
  EXPECT_EQ(CheckGpuProgram(Calling("stablehlo.custom_call @mhlo.erf(%x)")), absl::OkStatus());
  EXPECT_EQ(CheckGpuProgram(Calling("stablehlo.custom_call @\"xla.sdy.FuncResultSharding\"(%x)")),
            absl::OkStatus());
  EXPECT_EQ(CheckGpuProgram(Calling("stablehlo.negate %x")), absl::OkStatus());
}

TEST(CheckGpuCalls, OtherTargetsAreRefusedByName) {
  for (const std::string target : {"__gpu$xla.gpu.ptx", "__gpu$xla.gpu.triton", "mosaic_gpu_v2",
                                   "__cublas$lt$matmul", "fairway_own_part", "anything"}) {
    for (const std::string& name : {target, "\"" + target + "\""}) {
      const absl::Status status =
          CheckGpuProgram(Calling("stablehlo.custom_call @" + name + "(%x)"));
      EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
      EXPECT_THAT(Text(status), HasSubstr("\"" + target + "\""));
    }
  }
  EXPECT_THAT(Text(CheckGpuProgram(Calling("stablehlo.custom_call @cusolver_getrf_ffi(%x)"))),
              HasSubstr("jax.devices(\"cpu\")[0]"));
}

TEST(CheckGpuCalls, NoFormOfTextHidesATarget) {
  for (const std::string call :
       {R"("stablehlo.custom_call"(%x) {call_target_name = "Sharding"})",
        R"("stablehlo.custom_call"(%x) <{call_target_name = "__gpu$xla.gpu.ptx"}>)",
        R"("stablehlo.custom\5fcall"(%x) <{a = 1}>)", R"("vhlo.custom_call_v1"(%x) <{a = 1}>)",
        R"(mhlo.custom_call @Sharding(%x))", R"(stablehlo.custom_call  @Sharding(%x))",
        R"(stablehlo.custom_call @Sharding(%x) {call\5ftarget_name = "__gpu$xla.gpu.ptx"})",
        R"(stablehlo.custom_call @"__gpu\24xla.gpu.ptx"(%x))",
        "stablehlo.custom_call // \n @Sharding(%x)", "stablehlo.custom_call", R"(mhlo.fusion (%x))",
        R"("mhlo.fusion"(%x))"}) {
    EXPECT_EQ(CheckGpuProgram(Calling(call)).code(), absl::StatusCode::kUnimplemented) << call;
  }
}

TEST(CheckGpuCalls, MemoryThatOthersLeftIsNotGiven) {
  EXPECT_EQ(CheckGpuProgram(Calling("stablehlo.custom_call @AllocateBuffer(%x)")).code(),
            absl::StatusCode::kUnimplemented);
}

TEST(CheckGpuCalls, NothingWaitsForWhoIsNotThere) {
  for (const std::string call :
       {"\"stablehlo.infeed\"(%x)", "stablehlo.outfeed %x", "\"vhlo.send_v2\"(%x)",
        "\"stablehlo.recv\"(%x)", "stablehlo.sender %x, \"stablehlo.send\""}) {
    EXPECT_EQ(CheckGpuProgram(Calling(call)).code(), absl::StatusCode::kUnimplemented) << call;
  }
  EXPECT_EQ(CheckGpuProgram(Calling("func.call @sender(%x)")), absl::OkStatus());
  hlo::HloModule module;
  module.add_computations()->add_instructions()->set_opcode("infeed");
  EXPECT_EQ(CheckGpuCode(module).code(), absl::StatusCode::kUnimplemented);
}

TEST(CheckGpuCalls, BytecodeThatCannotBeReadIsRefused) {
  EXPECT_EQ(CheckGpuProgram("ML\xefR\x0d").code(), absl::StatusCode::kInvalidArgument);
}

TEST(CheckGpuCalls, OptimizedProgramsMakeXlasOwnCallsOnly) {
  hlo::HloModule module;
  hlo::HloInstruction& call = *module.add_computations()->add_instructions();
  call.set_opcode("custom-call");
  for (const char* own :
       {"__cublas$lt$matmul", "__cudnn$convForward", "__cub$DeviceRadixSort", "__gpu$TopK"}) {
    call.set_custom_call_target(own);
    EXPECT_EQ(CheckGpuCode(module), absl::OkStatus());
  }
  for (const char* other : {"__gpu$xla.gpu.ptx", "__gpu$xla.gpu.triton", "mosaic_gpu_v2", "x"}) {
    call.set_custom_call_target(other);
    EXPECT_THAT(Text(CheckGpuCode(module)), HasSubstr(other));
  }
}

}  // namespace
}  // namespace fairway
