// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/older_forms.h"

#include <string>
#include <vector>

#include <absl/strings/escaping.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fairway/v1/compiler.pb.h"
#include "worker/compiler/mlir_bytecode.h"
#include "worker/compiler/pjrt_compiler.h"
#include "worker/executor/runtime/pjrt/test_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// jax.export of a shard_map over two devices that returns its argument: float8_e4m3fn[4].
constexpr char kShardMap[] =
    "TUzvUg1TdGFibGVITE9fdjEuMTUuMAABJQcBBQkPAQUPEwMHFxsfBQUjJwOZbxMBTwcLCw8PCw8PIwsPCw8LDwsTCxML"
    "DxsLCw8LCw8LDxsLDxMLCwsPCwMPDxMPFxcPDwUTDwsLDxMLCwsLAQ0PEwcLDxMFBxMXBwLmAh8FFQULHTMBFTtBBRcd"
    "RwkdSUsDBxMVFxkbHQUZEQcABRsRAQkFHREBBQUfAwMjJQUhAwMnKQUjAQMrAwUtAy8xBSUFJxEJCQUpCQUdOQkFKx0L"
    "PS0/Bw8FnQUtHQtDLUUDGQUvBTEFMx1NAQU1DwNVBQNTAQMVCQ01A1cBCwNZAQEJFQEBAwMDA18NASMPAwNlDQNnaR03"
    "HTkdOx09AQICGwMRBTEBCQECBBsDCQUpAxEREQMNAw0NBJMFA1EBEQEHBIEDAQkFQQEhAwtQAQUHBGMDCRMDGwcAAQYH"
    "AwMDAQdWNwcDAwMDBwQZAwMHAxcPAAkEDwMBAQYNAw0DBQ0EDQMHBgMBBQEA4gU/DwsPIRUXHSUXMQULCwsfGSUpORMF"
    "FREPJwsPNwsJEWJ1aWx0aW4Ac2R5AHZobG8AdW5yZWFsaXplZF9jb252ZXJzaW9uX2Nhc3QAbW9kdWxlAG1lc2gAbWFu"
    "dWFsX2NvbXB1dGF0aW9uAHJldHVybgBmdW5jX3YxAHJldHVybl92MQB4ADxtb2R1bGU+AGpheC51c2VzX3NoYXBlX3Bv"
    "bHltb3JwaGlzbQBtaGxvLm51bV9wYXJ0aXRpb25zAG1obG8ubnVtX3JlcGxpY2FzAGppdF9fbGFtYmRhAHN0YWJsZWhs"
    "by5tZXNoAGF4ZXMAbmFtZQBzaXplAHYAaml0KDxsYW1iZGE+KS9zaGFyZF9tYXAAcHJvZ3JhbS5weQAvdG1wL3N1aXRl"
    "L21rMi5weQBqaXQoPGxhbWJkYT4pAHNoYXJkX21hcDoAc2hhcmRfbWFwAGpheC5yZXN1bHRfaW5mbwByZXN1bHQAbWFp"
    "bgBwdWJsaWMACCMJBT8BBVEFC11hY2ttB09bTw==";

// The program that jaxlib 0.12.0.1 sends for jit(jax.lax.erf) of float32[3], by serdes version 3.
constexpr char kErf[] =
    "TUzvUg1TdGFibGVITE9fdjEuMTYuMwABIwUBBRMBAwsDEQ8TFxsfIycrA3tdCwEhDwcPDxsLCwsLCxsLDwsPCwM9CwsLCw"
    "8PEwsLCwsLHx8fHx8fHx8fHx8fHx8fHwsPAQMPAwkTFwcHAi4DHREHHxEBBR0TFQMFCwUNBQUXBRkFGwUdBR8tFwcFC2MF"
    "IR0bAwUjHR8HBSUNASMFAwEdJwMDIQMDLQ0DLzEdKR0rHS0dLx0xHwMJAACAPx8DCQAAgL8fAwmntmm8HwMJ+Jvxux8DCU"
    "6S3LofAwkpvV+5HwMJzWB0tx8DCdTbg7wfAwn2oUG7HwMJY6xAuh8DCdLCbrgfAwlR/wy2HwMJ7v/tMh8DCQvfla8fAwkA"
    "AIDAHwMJAACAQB0zEwkFAQICKQMNBxEDAwMDCRsEmgUFAVEDCQEHBHIFAwEJCVADAwcEKQMFCwMHGQARRgEFAwMDAQ0EHQ"
    "MDCVABBwcE2gQDVasDBwEAA0IBCQMDA0IBCwMDA0IBDQMDA0IBDwMDA0IBEQMDA0IBEwMDA0IBFQMDA0IBFwMDA0IBGQMD"
    "A0IBGwMDA0IBHQMDA0IBHwMDA0IBIQMDA0IBIwMDA0IBJQMDA0IBJwMDCwYBAwMHHwEhBQYBAwMFIyMFBgEDAwUdJQcGAQ"
    "MDBScbBQYBAwMFKSUHBgEDAwUrGQUGAQMDBS0lBwYBAwMFLxcFBgEDAwUxJQcGAQMDBTMVBQYBAwMFNSUHBgEDAwU3EwUG"
    "AQMDBTklBwYBAwMFOxEFBgEDAwUPJQcGAQMDBT8NBQYBAwMFQSUHBgEDAwVDCwUGAQMDBUUlBwYBAwMFRwkFBgEDAwVJJQ"
    "cGAQMDBUsHBQYBAwMFIz0PBgEDAwVPTQsGAQMDBwVRAw0EAQNTBgMBBQEAagQ1ExEPCw8hHRMFExMbESUpGxUVExEPGRkP"
    "CxFidWlsdGluAHZobG8AbW9kdWxlAGNvbnN0YW50X3YxAG11bHRpcGx5X3YxAGFkZF92MQBmdW5jX3YxAGNsYW1wX3YxAH"
    "JldHVybl92MQBkaXZpZGVfdjEAY29tcG9zaXRlX3YyAG1obG8ubnVtX3BhcnRpdGlvbnMAbWhsby5udW1fcmVwbGljYXMA"
    "aml0X2VyZgBqaXQoZXJmKS9lcmYAPG1vZHVsZT4APHN0cmluZz4AeABqaXQoZXJmKQBjaGxvLmVyZi5pbXBsAGpheC5yZX"
    "N1bHRfaW5mbwByZXN1bHQAbWFpbgBwdWJsaWMAcHJpdmF0ZQBjaGxvLmVyZgAIaykFHwELKSMrMzUJISdZWwslIyUnNwM5"
    "AzsDPQM/A0EDQwNFA0cDSQNLA00DTwNRA1MDVQNX";

std::string Program(const char* base64 = kShardMap) {
  std::string out;
  EXPECT_TRUE(absl::Base64Unescape(base64, &out));
  return out;
}

TEST(OlderFormsTest, SmallFloatsAreWrittenByName) {
  const std::string spelled = InOlderForms(Program());
  EXPECT_THAT(spelled, HasSubstr(std::string("f8E4M3FN\0", 9)));
  EXPECT_EQ(InOlderForms(spelled), spelled);
}

TEST(OlderFormsTest, CompositesWithoutRegionsAreWrittenAsBefore) {
  const std::string older = InOlderForms(Program(kErf));
  const auto module = mlir::Module::Read(older);
  ASSERT_TRUE(module.ok()) << module.status();
  std::vector<std::string> names;
  for (uint64_t i = 0; i < module->num_operations(); ++i) names.emplace_back(module->Name(i).name);
  EXPECT_THAT(names, Contains("composite_v1"));
  EXPECT_THAT(names, Not(Contains("composite_v2")));
  EXPECT_EQ(InOlderForms(older), older);
}

TEST(OlderFormsTest, OtherProgramsStayAsTheyAre) {
  for (const std::string& program : {test::Add("4xf32"), std::string("ML\xefR"), std::string()}) {
    EXPECT_EQ(InOlderForms(program), program);
  }
}

TEST(OlderFormsTest, ThePluginReadsTheNames) {
  auto compiler = MakePjrtCompiler(test::ConfigOfTests(2));
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  const auto result = (*compiler)->Compile(Program(), test::Spmd(2, true));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->metadata.program_text(), HasSubstr("f8e4m3fn[2]"));
}

TEST(OlderFormsTest, ThePluginReadsTheComposite) {
  auto compiler = MakePjrtCompiler(test::ConfigOfTests(1));
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  v1::CompileOptions options;
  options.set_num_replicas(1);
  options.set_num_partitions(1);
  const auto result = (*compiler)->Compile(Program(kErf), options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->metadata.program_text(), HasSubstr("f32[3]"));
}

TEST(OlderFormsTest, BrokenProgramsAreNeverTheEnd) {
  for (const std::string& bytes : {Program(), Program(kErf)}) {
    for (size_t at = 0; at < bytes.size(); ++at) {
      (void)InOlderForms(bytes.substr(0, at));
      for (int flip : {1, 2, 0x10, 0x80, 0xff}) {
        std::string broken = bytes;
        broken[at] = static_cast<char>(broken[at] ^ flip);
        (void)InOlderForms(broken);
      }
    }
  }
}

}  // namespace
}  // namespace fairway
