// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/compile_request.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::HasSubstr;

xla::CompileOptionsProto OneDevice() {
  xla::CompileOptionsProto options;
  options.mutable_executable_build_options()->set_num_replicas(1);
  options.mutable_executable_build_options()->set_num_partitions(1);
  return options;
}

absl::StatusOr<ParsedCompile> Parse(const xla::CompileOptionsProto& options,
                                    const std::vector<int>& bundles = {}) {
  xla::ifrt::XlaCompileOptionsProto wrapper;
  wrapper.set_version_number(6);
  *wrapper.mutable_compile_options() = options;
  wrapper.mutable_outputs_bundle_slice_sizes()->Assign(bundles.begin(), bundles.end());
  xla::ifrt::proxy::CompileRequest request;
  request.mutable_program()->set_type_name("xla::ifrt::XlaProgram");
  request.mutable_compile_options()->set_type_name("xla::ifrt::XlaCompileOptions");
  request.mutable_compile_options()->set_data(wrapper.SerializeAsString());
  return ParseCompile(request, 8);
}

TEST(CompileRequestTest, AnAssignmentNamesEachDeviceOnce) {
  xla::CompileOptionsProto options = OneDevice();
  xla::ExecutableBuildOptionsProto& build = *options.mutable_executable_build_options();
  build.set_num_partitions(3);
  build.mutable_device_assignment()->set_replica_count(1);
  build.mutable_device_assignment()->set_computation_count(3);
  for (const int device : {5, 2, 4})
    build.mutable_device_assignment()->add_computation_devices()->add_replica_device_ids(device);
  const auto parsed = Parse(options);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->devices, (std::vector<int32_t>{5, 2, 4}));
  build.mutable_device_assignment()->mutable_computation_devices(1)->set_replica_device_ids(0, 4);
  EXPECT_EQ(Parse(options).status(),
            absl::InvalidArgumentError("the device assignment names device 4 twice"));
}

TEST(CompileRequestTest, CompilerOptionsOfEveryTypeAreTakenInOneOrder) {
  xla::CompileOptionsProto options = OneDevice();
  auto& given = *options.mutable_env_option_overrides();
  given["xla_embed_ir_in_executable"].set_bool_field(true);
  given["xla_dump_max_hlo_modules"].set_int_field(200);
  given["a_ratio"].set_double_field(0.5);
  given["a_text"].set_string_field("never");
  const auto parsed = Parse(options);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->options.ShortDebugString(),
            "num_replicas: 1 num_partitions: 1 "
            "compiler_options { name: \"a_ratio\" number: 0.5 } "
            "compiler_options { name: \"a_text\" text: \"never\" } "
            "compiler_options { name: \"xla_dump_max_hlo_modules\" integer: 200 } "
            "compiler_options { name: \"xla_embed_ir_in_executable\" flag: true }");
}

TEST(CompileRequestTest, CompilerOptionsThatNameFilesAreRefusedByName) {
  for (const std::string name :
       {"xla_dump_to", "xla_dump_hlo_as_text", "xla_gpu_cuda_data_dir", "a_path",
        "xla_gpu_load_autotune_results_from", "xla_gpu_kernel_cache_file"}) {
    xla::CompileOptionsProto options = OneDevice();
    (*options.mutable_env_option_overrides())[name].set_string_field("/tmp/x");
    const auto parsed = Parse(options);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kUnimplemented) << name;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(name));
  }
}

TEST(CompileRequestTest, ACompilerOptionWithoutAValueIsInvalid) {
  xla::CompileOptionsProto options = OneDevice();
  (*options.mutable_env_option_overrides())["a"];
  EXPECT_EQ(Parse(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CompileRequestTest, BundledOutputsAreRefusedByName) {
  const auto parsed = Parse(OneDevice(), {2, 1});
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("outputs_bundle_slice_sizes"));
}

}  // namespace
}  // namespace fairway
