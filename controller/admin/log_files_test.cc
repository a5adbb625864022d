// SPDX-License-Identifier: Apache-2.0
#include "controller/admin/log_files.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class LogFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "/log_files_test." + std::to_string(::getpid());
    std::filesystem::create_directories(directory_);
    std::ofstream(directory_ + "/w0.log") << "a\nb\nc\n";
    std::ofstream(directory_ + "/controller.log") << "x\n";
    std::ofstream(directory_ + "/w0.log.1") << "old\n";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TEST_F(LogFilesTest, GivesTheLastLinesOfEachProcess) {
  EXPECT_THAT(*ReadLogs(directory_, "", 2),
              ElementsAre(Pair("controller", "x"), Pair("w0", "b"), Pair("w0", "c")));
  EXPECT_THAT(*ReadLogs(directory_, "w0", 1), ElementsAre(Pair("w0", "c")));
  EXPECT_THAT(*ReadLogs(directory_, "w0", 0), IsEmpty());
}

TEST_F(LogFilesTest, ReadsOnlyTheEndOfALargeFile) {
  std::ofstream out(directory_ + "/w1.log");
  for (int i = 0; i < 1000000; ++i) out << "line " << i << "\n";
  out.close();
  EXPECT_THAT(*ReadLogs(directory_, "w1", 2),
              ElementsAre(Pair("w1", "line 999998"), Pair("w1", "line 999999")));
}

TEST_F(LogFilesTest, NamesTheKnownProcesses) {
  const auto status = ReadLogs(directory_, "../w0", 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Text(status), "no process '../w0'; there are: controller, w0");
  EXPECT_EQ(ReadLogs("", "w0", 1).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace fairway
