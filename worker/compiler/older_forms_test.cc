// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/newer_types.h"

#include <absl/strings/escaping.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/compiler/pjrt_compiler.h"
#include "worker/executor/runtime/pjrt/test_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway {
namespace {

using testing::HasSubstr;

// jax.export of a shard_map over two devices, of what it is given: float8_e4m3fn[4].
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

std::string Program() {
  std::string out;
  EXPECT_TRUE(absl::Base64Unescape(kShardMap, &out));
  return out;
}

TEST(NewerTypesTest, SmallFloatsAreWrittenByName) {
  const std::string spelled = SpellNewerTypes(Program());
  EXPECT_THAT(spelled, HasSubstr(std::string("f8E4M3FN\0", 9)));
  EXPECT_EQ(SpellNewerTypes(spelled), spelled);
}

TEST(NewerTypesTest, OtherProgramsStayAsTheyAre) {
  for (const std::string& program : {test::Add("4xf32"), std::string("ML\xefR"), std::string()}) {
    EXPECT_EQ(SpellNewerTypes(program), program);
  }
}

TEST(NewerTypesTest, ThePluginReadsTheNames) {
  auto compiler = MakePjrtCompiler(test::ConfigOfTests(2));
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  const auto result = (*compiler)->Compile(Program(), test::Spmd(2, true));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->metadata.program_text(), HasSubstr("f8e4m3fn[2]"));
}

TEST(NewerTypesTest, BrokenProgramsAreNeverTheEnd) {
  const std::string bytes = Program();
  for (size_t at = 0; at < bytes.size(); ++at) {
    (void)SpellNewerTypes(bytes.substr(0, at));
    for (int flip : {1, 2, 0x10, 0x80, 0xff}) {
      std::string broken = bytes;
      broken[at] = static_cast<char>(broken[at] ^ flip);
      (void)SpellNewerTypes(broken);
    }
  }
}

}  // namespace
}  // namespace fairway
