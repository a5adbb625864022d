// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/pjrt_compiler.h"

#include <absl/strings/escaping.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/dtype.h"
#include "worker/compiler/checksum.h"
#include "worker/compiler/metadata.h"
#include "worker/executor/runtime/pjrt/test_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway {
namespace {

using Dims = std::vector<int64_t>;

Dims Of(const google::protobuf::RepeatedField<int64_t>& field) {
  return {field.begin(), field.end()};
}

class PjrtCompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto compiler = MakePjrtCompiler(test::ConfigOfTests(4));
    ASSERT_TRUE(compiler.ok()) << compiler.status();
    compiler_ = *std::move(compiler);
  }
  v1::ExecutableMetadata Metadata(const std::string& program, const v1::CompileOptions& options) {
    auto result = compiler_->Compile(program, options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->metadata : v1::ExecutableMetadata();
  }
  std::unique_ptr<Compiler> compiler_;
};

TEST_F(PjrtCompilerTest, DescribesAProgramOfOneDevice) {
  auto result = compiler_->Compile(test::Add("3x5xbf16"), test::OneDevice(2));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->checksum, Sha256Hex(result->code));
  const v1::ExecutableMetadata& metadata = result->metadata;
  EXPECT_EQ(metadata.num_devices(), 1);
  ASSERT_EQ(metadata.parameters_size(), 2);
  ASSERT_EQ(metadata.outputs_size(), 1);
  for (const v1::ValueSpec& spec :
       {metadata.parameters(0), metadata.parameters(1), metadata.outputs(0)}) {
    EXPECT_EQ(spec.dtype(), static_cast<int>(DType::kBF16));
    EXPECT_EQ(Of(spec.shard_dims()), (Dims{3, 5}));
    EXPECT_EQ(Of(spec.global_dims()), (Dims{3, 5}));
    EXPECT_EQ(Of(spec.minor_to_major()), (Dims{1, 0}));
    EXPECT_EQ(spec.op_sharding(), "");
    EXPECT_FALSE(spec.donated());
  }
  EXPECT_EQ(metadata.memory().argument(), 60);
  EXPECT_EQ(metadata.memory().output(), 30);
  EXPECT_GE(metadata.cost().at("flops"), 15);  // more where bf16 is converted
  EXPECT_FALSE(metadata.fingerprint().empty());
  EXPECT_NE(metadata.program_text().find("ENTRY"), std::string::npos) << metadata.program_text();
  EXPECT_NE(metadata.program_text().find("bf16[3,5]{1,0} parameter(0)"), std::string::npos)
      << metadata.program_text();
}

TEST_F(PjrtCompilerTest, GlobalShapesOfSeveralShardedOutputs) {
  const v1::ExecutableMetadata metadata = Metadata(test::TwoOutputs(4), test::Spmd(4));
  ASSERT_EQ(metadata.parameters_size(), 1);
  EXPECT_EQ(Of(metadata.parameters(0).shard_dims()), (Dims{2, 4}));
  EXPECT_EQ(Of(metadata.parameters(0).global_dims()), (Dims{8, 4}));
  ASSERT_EQ(metadata.outputs_size(), 2);
  EXPECT_EQ(Of(metadata.outputs(0).shard_dims()), (Dims{2, 4}));
  EXPECT_EQ(Of(metadata.outputs(0).global_dims()), (Dims{8, 4}));
  EXPECT_EQ(Of(metadata.outputs(1).global_dims()), Dims{4});
  hlo::OpSharding sharding;
  ASSERT_TRUE(sharding.ParseFromString(metadata.outputs(0).op_sharding()));
  EXPECT_EQ(sharding.type(), 3);
  EXPECT_EQ(Of(sharding.tile_assignment_dimensions()), (Dims{4, 1}));
  EXPECT_EQ(metadata.num_devices(), 4);
}

TEST_F(PjrtCompilerTest, ShardyAndGspmdProgramsAreDescribedAlike) {
  const v1::ExecutableMetadata gspmd = Metadata(test::Psum(4), test::Spmd(4, false));
  const v1::ExecutableMetadata shardy = Metadata(test::ShardyPsum(4), test::Spmd(4, true));
  for (const v1::ExecutableMetadata& metadata : {gspmd, shardy}) {
    ASSERT_EQ(metadata.parameters_size(), 1);
    EXPECT_EQ(Of(metadata.parameters(0).global_dims()), Dims{4});
    EXPECT_EQ(Of(metadata.parameters(0).shard_dims()), Dims{1});
    ASSERT_EQ(metadata.outputs_size(), 1);
    EXPECT_EQ(Of(metadata.outputs(0).global_dims()), Dims{});
  }
}

TEST_F(PjrtCompilerTest, LayoutsAndMemoryKindsAreThoseAtTheBorder) {
  const v1::ExecutableMetadata metadata = Metadata(R"(module {
    func.func public @main(%x: tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"},
                           %y: tensor<2x3xf32> {mhlo.memory_kind = "pinned_host"})
        -> (tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"},
            tensor<2x3xf32> {mhlo.memory_kind = "pinned_host"}, tensor<2x3xf32>) {
      %0 = stablehlo.add %x, %y : tensor<2x3xf32>
      return %0, %0, %0 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32> } })",
                                                   test::OneDevice());
  ASSERT_EQ(metadata.parameters_size(), 2);
  ASSERT_EQ(metadata.outputs_size(), 3);
  EXPECT_EQ(Of(metadata.parameters(0).minor_to_major()), (Dims{0, 1}));
  EXPECT_EQ(Of(metadata.parameters(1).minor_to_major()), (Dims{1, 0}));
  EXPECT_EQ(metadata.parameters(1).memory_kind(), "pinned_host");
  EXPECT_EQ(Of(metadata.outputs(0).minor_to_major()), (Dims{0, 1}));
  EXPECT_EQ(metadata.outputs(0).memory_kind(), "");
  EXPECT_EQ(metadata.outputs(1).memory_kind(), "pinned_host");
  EXPECT_EQ(Of(metadata.outputs(2).minor_to_major()), (Dims{1, 0}));
}

TEST_F(PjrtCompilerTest, LayoutsWithTilesAreRefused) {
  const auto result = compiler_->Compile(R"(module {
    func.func public @main(%x: tensor<4x4xf32>)
        -> (tensor<4x4xf32> {mhlo.layout_mode = "{1,0:T(2,2)}"}) {
      return %x : tensor<4x4xf32> } })",
                                         test::OneDevice());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented) << result.status();
}

TEST_F(PjrtCompilerTest, TwoBitIntegersArePassedOnAndNotComputedWith) {
  const auto status = [&](const std::string& operation, const std::string& value,
                          const std::string& type) {
    return compiler_
        ->Compile(fmt::format(R"(module {{
    func.func public @main(%x: tensor<32xui2>) -> {2} {{
      {0}
      return {1} : {2} }} }})",
                              operation, value, type),
                  test::OneDevice())
        .status();
  };
  EXPECT_TRUE(status("", "%x", "tensor<32xui2>").ok());
  const absl::Status refused = status(
      "%0 = stablehlo.convert %x : (tensor<32xui2>) -> tensor<32xf32>", "%0", "tensor<32xf32>");
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << refused;
  EXPECT_NE(Text(refused).find("on u2"), std::string::npos) << refused;
  // Custom calls must give their own operand types.
  const auto call = [](std::string_view target, std::string_view attributes) {
    return fmt::format(
        "%0 = stablehlo.custom_call @{}(%x) {{api_version = 4 : i32, backend_config = {{{}}}}} : "
        "(tensor<32xui2>) -> tensor<32xui2>",
        target, attributes);
  };
  EXPECT_TRUE(status(call("fairway_callback", "function = 7 : i64"), "%0", "tensor<32xui2>").ok());
  const absl::Status own_part =
      status(call("fairway_own_part", "devices0 = 1 : i64"), "%0", "tensor<32xui2>");
  EXPECT_EQ(Text(own_part),
            "custom call fairway_own_part: operand 0 is of u2, which is not served");
}

TEST_F(PjrtCompilerTest, FourBitIntegersAreNotConvertedToF64) {
  const auto status = [&](const std::string& middle) {
    return compiler_
        ->Compile(fmt::format(R"(module {{
    func.func public @main(%x: tensor<8x4xi4>) -> tensor<8x4xf64> {{
      %0 = stablehlo.convert %x : (tensor<8x4xi4>) -> tensor<8x4x{0}>
      %1 = stablehlo.convert %0 : (tensor<8x4x{0}>) -> tensor<8x4xf64>
      return %1 : tensor<8x4xf64> }} }})",
                              middle),
                  test::OneDevice())
        .status();
  };
  EXPECT_EQ(status("f32").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status("f64").code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(status("i32").ok());
}

TEST_F(PjrtCompilerTest, TheTextHasTheNamesAndMarksThatJaxGave) {
  const std::string text = Metadata(R"(module {
    func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %0 = stablehlo.sine %x {mhlo.frontend_attributes = {b = "2", a = "1"}} : tensor<8xf32>
          loc("here/sin")
      return %0 : tensor<8xf32> } })",
                                    test::OneDevice())
                               .program_text();
  EXPECT_NE(text.find("frontend_attributes={a=\"1\",b=\"2\"}, metadata={op_name=\"here/sin\"}"),
            std::string::npos)
      << text;
}

TEST_F(PjrtCompilerTest, ProgramsThatWouldCallTheClientToBePartitionedAreRefusedByName) {
  const absl::Status refused = compiler_
                                   ->Compile(R"(module {
    func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %0 = stablehlo.custom_call @CustomSPMDPartitioning(%x) : (tensor<8xf32>) -> tensor<8xf32>
      return %0 : tensor<8xf32> } })",
                                             test::OneDevice())
                                   .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(Text(refused).find("(custom_partitioning)"), std::string::npos) << refused;
}

TEST_F(PjrtCompilerTest, ResultsPlacedInAnotherMemoryAreRefusedWithTheWayOut) {
  const absl::Status refused = compiler_
                                   ->Compile(R"(module {
    func.func public @main(%x: tensor<8xf32>)
        -> (tensor<8xf32> {mhlo.memory_kind = "pinned_host"}) {
      %0 = stablehlo.custom_call @annotate_device_placement(%x) {backend_config = "",
        has_side_effect = true,
        mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}}
        : (tensor<8xf32>) -> tensor<8xf32>
      return %0 : tensor<8xf32> } })",
                                             test::OneDevice())
                                   .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(Text(refused).find("device_put outside of jit can"), std::string::npos) << refused;
}

TEST_F(PjrtCompilerTest, DonatedParametersAreMarked) {
  const v1::ExecutableMetadata metadata = Metadata(test::DonatingAdd("8xf32"), test::OneDevice());
  EXPECT_TRUE(metadata.parameters(0).donated());
  EXPECT_FALSE(metadata.parameters(1).donated());
  EXPECT_EQ(metadata.memory().alias(), 32);
  // Offered for donation, but no output has its size: the plugin leaves it usable, so we do.
  const std::string donor = R"(module @donor {
    func.func public @main(%x: tensor<4xf32>, %y: tensor<8xf32> {jax.buffer_donor = true}) -> tensor<4xf32> {
      %0 = stablehlo.slice %y [0:4] : (tensor<8xf32>) -> tensor<4xf32>
      %1 = stablehlo.add %x, %0 : tensor<4xf32>
      return %1 : tensor<4xf32>
    }
  })";
  const v1::ExecutableMetadata donated = Metadata(donor, test::OneDevice());
  EXPECT_FALSE(donated.parameters(0).donated());
  EXPECT_FALSE(donated.parameters(1).donated());
}

TEST_F(PjrtCompilerTest, NoParametersAndNoOutputs) {
  const std::string constant = R"(module { func.func public @main() -> tensor<2xi32> {
    %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
    return %0 : tensor<2xi32> } })";
  EXPECT_EQ(Metadata(constant, test::OneDevice()).parameters_size(), 0);
  const std::string nothing = "module { func.func public @main(%x: tensor<2xi32>) { return } }";
  const v1::ExecutableMetadata metadata = Metadata(nothing, test::OneDevice());
  EXPECT_EQ(metadata.parameters_size(), 1);
  EXPECT_EQ(metadata.outputs_size(), 0);
  const std::string sharded = R"(module {
    sdy.mesh @mesh = <["x"=2]>
    func.func public @main(%x: tensor<2xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) {
      return } })";
  EXPECT_EQ(Metadata(sharded, test::Spmd(2, true)).outputs_size(), 0);
}

TEST_F(PjrtCompilerTest, ATokenIsDescribedAsTheEmptyArrayThatJaxHasForIt) {
  const v1::ExecutableMetadata metadata = Metadata(R"(module {
    func.func public @main(%x: tensor<8xi32>, %t: !stablehlo.token)
        -> (!stablehlo.token, tensor<8xi32>) {
      return %t, %x : !stablehlo.token, tensor<8xi32> } })",
                                                   test::OneDevice());
  ASSERT_EQ(metadata.parameters_size(), 2);
  ASSERT_EQ(metadata.outputs_size(), 2);
  for (const v1::ValueSpec& token : {metadata.parameters(1), metadata.outputs(0)}) {
    EXPECT_EQ(token.dtype(), static_cast<int32_t>(DType::kPred));
    EXPECT_EQ(Of(token.global_dims()), Dims{0});
    EXPECT_EQ(Of(token.shard_dims()), Dims{0});
    EXPECT_TRUE(token.token());
  }
  EXPECT_EQ(metadata.outputs(1).dtype(), static_cast<int32_t>(DType::kS32));
  EXPECT_FALSE(metadata.outputs(1).token());
}

// A value over two devices, each of which should hold a part.
std::string Unreduced(const std::string& result, const std::string& constraint) {
  return fmt::format(R"(module {{
    sdy.mesh @mesh = <["x"=2]>
    func.func public @main(%x: tensor<i32> {{sdy.sharding = #sdy.sharding<@mesh, []>}})
        -> (tensor<i32> {{sdy.sharding = #sdy.sharding<@mesh, []{}>}}) {{
      %0 = sdy.sharding_constraint %x <@mesh, []{}> : tensor<i32>
      return %0 : tensor<i32> }} }})",
                     result, constraint);
}

TEST_F(PjrtCompilerTest, UnreducedShardingsAreRefusedWhereThePluginWouldGiveAWrongValue) {
  const std::string unreduced = R"(, unreduced={"x"})";
  for (const std::string& constraint : {std::string(), unreduced}) {
    const auto refused = compiler_->Compile(Unreduced(unreduced, constraint), test::Spmd(2, true));
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(Text(refused.status()), testing::HasSubstr("unreduced"));
  }
  // Inside a program nobody sees which device holds what.
  EXPECT_TRUE(compiler_->Compile(Unreduced("", unreduced), test::Spmd(2, true)).ok());
  // But a part of it may be written per device.
  const std::string manual = R"(module {
    sdy.mesh @mesh = <["x"=2]>
    func.func public @main(%x: tensor<2xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
        -> (tensor<1xi32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
      %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{"x"}]>]
          out_shardings=[<@mesh, [{}], unreduced={"x"}>] manual_axes={"x"} (%y: tensor<1xi32>) {
        sdy.return %y : tensor<1xi32>
      } : (tensor<2xi32>) -> tensor<1xi32>
      return %0 : tensor<1xi32> } })";
  EXPECT_EQ(compiler_->Compile(manual, test::Spmd(2, true)).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(PjrtCompilerTest, ThePluginDropsUnreducedShardings) {
  // Device 1 would have to get 0, by its partition id. When this fails, the plugin supports it:
  // stop refusing.
  const auto program = Unreduced("", R"(, unreduced={"x"})");
  EXPECT_EQ(Metadata(program, test::Spmd(2, true)).program_text().find("partition-id"),
            std::string::npos);
}

TEST_F(PjrtCompilerTest, WhatDoesNotCompileIsInvalidWithTheCompilersText) {
  auto garbage = compiler_->Compile("module { this is not MLIR }", test::OneDevice());
  EXPECT_EQ(garbage.status().code(), absl::StatusCode::kInvalidArgument) << garbage.status();
  EXPECT_FALSE(Text(garbage.status()).empty());
  auto sdy = compiler_->Compile(test::ShardyPsum(4), test::Spmd(4, false));
  EXPECT_EQ(sdy.status().code(), absl::StatusCode::kInvalidArgument) << sdy.status();
  auto unknown_call = compiler_->Compile(R"(module { func.func public @main() -> tensor<f32> {
    %0 = stablehlo.custom_call @no_such_function() {api_version = 4 : i32} : () -> tensor<f32>
    return %0 : tensor<f32> } })",
                                         test::OneDevice());
  EXPECT_FALSE(unknown_call.ok());
  EXPECT_EQ(compiler_->Compile("", test::OneDevice()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(PjrtCompilerTest, OptionsAreChecked) {
  const std::string add = test::Add("4xf32");
  auto code_of = [&](const v1::CompileOptions& options) {
    return compiler_->Compile(add, options).status().code();
  };
  v1::CompileOptions options = test::Spmd(5);
  EXPECT_EQ(code_of(options), absl::StatusCode::kInvalidArgument) << "5 partitions on 4 devices";
  options = test::OneDevice(99);
  EXPECT_EQ(code_of(options), absl::StatusCode::kInvalidArgument);
  options = test::Spmd(2);
  options.add_devices(1);
  options.add_devices(1);
  EXPECT_EQ(code_of(options), absl::StatusCode::kInvalidArgument) << "a device twice";
  options = test::OneDevice();
  options.set_num_replicas(-1);
  EXPECT_EQ(code_of(options), absl::StatusCode::kInvalidArgument);
  options = test::Spmd(2);
  options.set_num_partitions(int64_t{1} << 62);
  options.set_num_replicas(4);
  EXPECT_EQ(code_of(options), absl::StatusCode::kInvalidArgument) << "a product that overflows";
}

TEST_F(PjrtCompilerTest, CompilerOptionsReachTheCompilerWhichKnowsTheirNames) {
  const auto compile = [&](const std::string& name, const auto& set) {
    v1::CompileOptions options = test::OneDevice();
    v1::CompilerOption* option = options.add_compiler_options();
    option->set_name(name);
    set(option);
    return compiler_->Compile(test::Add("4xf32"), options).status();
  };
  const auto flag = [](v1::CompilerOption* option) { option->set_flag(true); };
  const auto text = [](v1::CompilerOption* option) { option->set_text("neither"); };
  EXPECT_TRUE(compile("xla_embed_ir_in_executable", flag).ok());
  EXPECT_TRUE(compile("xla_dump_max_hlo_modules", [](v1::CompilerOption* option) {
                option->set_integer(200);
              }).ok());
  EXPECT_TRUE(
      compile("xla_gpu_auto_spmd_partitioning_memory_budget_ratio", [](v1::CompilerOption* option) {
        option->set_number(0.5);
      }).ok());
  EXPECT_THAT(Text(compile("no_such_option", flag)),
              testing::HasSubstr("No such compile option: 'no_such_option'"));
  EXPECT_THAT(Text(compile("xla_embed_ir_in_executable", text)),
              testing::HasSubstr("is not a valid bool value"));
  EXPECT_EQ(compile("xla_embed_ir_in_executable", [](v1::CompilerOption*) {}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(PjrtCompilerTest, ANewerArtifactIsRefusedWithBothVersions) {
  std::string artifact =
      std::string("ML\xefR") + '\x0d' + "StableHLO_v9.8.7" + '\0' + "no such bytecode";
  EXPECT_EQ(ArtifactVersion(artifact), "9.8.7");
  EXPECT_EQ(ArtifactVersion("module {}"), "");
  auto refused = compiler_->Compile(artifact, test::OneDevice());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(Text(refused.status()).find("StableHLO 9.8.7, this plugin reads 0.9.0 to 1."),
            std::string::npos)
      << refused.status();
}

// Programs of a newer version compile if they contain nothing new; the version is not the error.
// jax.export of jit(lambda x: ffi_call("nonsense")(x)) by jaxlib 0.10.2.
TEST_F(PjrtCompilerTest, ANewerArtifactThatIsReadIsRefusedForItsOwnFault) {
  constexpr char kCallsNonsense[] =
      "TUzvUg1TdGFibGVITE9fdjEuMTUuMAABGQUBBQkBAwsDBw8TFwNzUQ8BMQcPCw8jCw8LCwsPCxMLDwsPDwsbCxsPCwMh"
      "CwsPDwsPEwsLCwsLCwsLLwEFCw8DCxMXBxMHAiYCHxEDBQUNHSkrAwcLDQ8DEQMFDxEBAAURBRMFFR0XAQUXAwMbMQUZ"
      "HR8hBRsVIwcdJScFHS0FBwkpswUfLQUHCwX9HS8HBSENAQMBAwNPAwMxIwcDAz0NAz9BHSMdJR0nHSkLAx0rHS0FAR8L"
      "EQAAAAAAAAAAAQkBAgIpAxEJEQMFAwUJKQMFDRMEUQUBUQEJAQcEPwMBBQNQAQMHBCsDBQsDCxUABUcdGQUDBQMBBwQt"
      "AwMGAwEFAQB2BC8TAw8LDyEdExMvKQUZJSk5ERUfEQ8LEWJ1aWx0aW4AdmhsbwBtb2R1bGUAZnVuY192MQBjdXN0b21f"
      "Y2FsbF92MQByZXR1cm5fdjEAPHN0ZGluPgBqYXgudXNlc19zaGFwZV9wb2x5bW9ycGhpc20AbWhsby5udW1fcGFydGl0"
      "aW9ucwBtaGxvLm51bV9yZXBsaWNhcwBqaXRfX2xhbWJkYQB4AG1obG8uYmFja2VuZF9jb25maWcAaml0KDxsYW1iZGE+"
      "KS9mZmlfY2FsbAA8bGFtYmRhPgA8bW9kdWxlPgBqaXQoPGxhbWJkYT4pAGpheC5yZXN1bHRfaW5mbwByZXN1bHQAbWFp"
      "bgBwdWJsaWMAAG5vbnNlbnNlAAgnBwUnAQs3OTtDRRFHSUszTTUzNQ==";
  std::string artifact;
  ASSERT_TRUE(absl::Base64Unescape(kCallsNonsense, &artifact));
  EXPECT_EQ(ArtifactVersion(artifact), "1.15.0");
  const absl::Status refused = compiler_->Compile(artifact, test::OneDevice()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(refused), testing::StartsWith("No FFI handler registered for nonsense"));
  artifact.resize(artifact.size() / 2);
  EXPECT_THAT(Text(compiler_->Compile(artifact, test::OneDevice()).status()),
              testing::StartsWith("the program was serialized for StableHLO 1.15.0, this plugin"));
}

}  // namespace
}  // namespace fairway
