// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/check_custom_calls.h"

#include <gtest/gtest.h>

#include "worker/compiler/pjrt_compiler.h"
#include "worker/executor/runtime/pjrt/test_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway {
namespace {

// A Cholesky decomposition as JAX writes it, with the parts that can be wrong as arguments.
std::string Cholesky(const std::string& matrix, const std::string& info,
                     const std::string& attributes) {
  return fmt::format(R"(module @call {{
  func.func public @main(%x: tensor<{0}>) -> (tensor<{0}>, tensor<{1}>) {{
    %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%x) {{api_version = 4 : i32,
      backend_config = {2}}} : (tensor<{0}>) -> (tensor<{0}>, tensor<{1}>)
    return %0#0, %0#1 : tensor<{0}>, tensor<{1}>
  }}
}})",
                     matrix, info, attributes);
}

TEST(ParseAttributesTest, KeepsIntegersAndBools) {
  const auto parsed = ParseAttributes(
      "{compute_left = 86 : ui8, high = -3 : i32, left = true, other = \"a, low = 7\", "
      "part = [1, 2], right = false, scale = 1.5 : f32, nested = {low = 9 : i32}}");
  EXPECT_EQ(parsed, (std::map<std::string, int64_t, std::less<>>{
                        {"compute_left", 86}, {"high", -3}, {"left", 1}, {"right", 0}}));
  EXPECT_TRUE(ParseAttributes("").empty());
  EXPECT_TRUE(ParseAttributes("{}").empty());
  EXPECT_TRUE(ParseAttributes("low = 1 : i32").empty());
  EXPECT_TRUE(ParseAttributes("{low = }").empty());
}

TEST(CheckCustomCallsTest, CallsThatCannotWorkDoNotCompile) {
  auto compiler = MakePjrtCompiler(test::ConfigOfTests(1));
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  const auto error = [&](const std::string& program) {
    const auto result = (*compiler)->Compile(program, test::OneDevice());
    EXPECT_TRUE(result.ok() || result.status().code() == absl::StatusCode::kInvalidArgument);
    return result.ok() ? "" : Text(result.status());
  };
  EXPECT_EQ(error(Cholesky("4x4xf32", "i32", "{uplo = 76 : ui8}")), "");
  EXPECT_EQ(error(Cholesky("4x4xf32", "i64", "{uplo = 76 : ui8}")),
            "custom call lapack_spotrf_ffi: result 1 is s64[], expected s32[]");
  EXPECT_EQ(error(Cholesky("4x5xf32", "i32", "{uplo = 76 : ui8}")),
            "custom call lapack_spotrf_ffi: operand 0 is f32[4,5], expected square matrices");
  EXPECT_EQ(error(Cholesky("4x4xf64", "i32", "{uplo = 76 : ui8}")),
            "custom call lapack_spotrf_ffi: operand 0 is f64[4,4], expected matrices of f32");
  EXPECT_EQ(error(Cholesky("4x4xf32", "i32", "{uplo = 88 : ui8}")),
            "custom call lapack_spotrf_ffi: attribute \"uplo\" is 88, expected the code of one of "
            "the letters LU");
  EXPECT_EQ(error(Cholesky("4x4xf32", "i32", "{}")),
            "custom call lapack_spotrf_ffi: attribute \"uplo\" is not an integer, expected the "
            "code of one of the letters LU");
}

TEST(CheckCustomCallsTest, CallsInsideOfLoopsAreFound) {
  auto compiler = MakePjrtCompiler(test::ConfigOfTests(1));
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  const std::string loop = R"(module @loop {
    func.func public @main(%n: tensor<i32>, %x: tensor<4x5xf32>) -> tensor<4x5xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4x5xf32>
        cond {
          %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        } do {
          %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%y) {api_version = 4 : i32,
            backend_config = {uplo = 76 : ui8}} : (tensor<4x5xf32>) -> (tensor<4x5xf32>, tensor<i32>)
          %next = stablehlo.add %i, %one : tensor<i32>
          stablehlo.return %next, %0#0 : tensor<i32>, tensor<4x5xf32>
        }
      return %r#1 : tensor<4x5xf32>
    }
  })";
  const auto result = (*compiler)->Compile(loop, test::OneDevice());
  EXPECT_EQ(Text(result.status()),
            "custom call lapack_spotrf_ffi: operand 0 is f32[4,5], expected square matrices");
}

TEST(CheckCustomCallsTest, ProgramsThatWaitForAHostDoNotCompile) {
  auto compiler = MakePjrtCompiler(test::ConfigOfTests(1));
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  const std::string infeed = R"(module @waits {
    func.func public @main() -> tensor<4xf32> {
      %t = stablehlo.create_token : !stablehlo.token
      %0:2 = "stablehlo.infeed"(%t) {infeed_config = "", layout = [[0]]}
        : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
      return %0#0 : tensor<4xf32>
    }
  })";
  const std::string outfeed = R"(module @waits {
    func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %t = stablehlo.create_token : !stablehlo.token
      %0 = "stablehlo.outfeed"(%a, %t) {outfeed_config = ""}
        : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
      return %a : tensor<4xf32>
    }
  })";
  for (const std::string& program : {infeed, outfeed}) {
    const auto result = (*compiler)->Compile(program, test::OneDevice());
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented) << result.status();
  }
}

}  // namespace
}  // namespace fairway
