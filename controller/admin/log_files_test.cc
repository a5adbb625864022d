// SPDX-License-Identifier: Apache-2.0
#include "controller/admin/log_files.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LogFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "/log_files_test." + std::to_string(::getpid());
    std::filesystem::create_directories(directory_);
    std::ofstream(directory_ + "/w0.log") << "a\nb\nc\n";
    std::ofstream(directory_ + "/controller.log") << "x";
    std::ofstream(directory_ + "/w0.log.1") << "old\n";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TEST_F(LogFilesTest, GivesTheLastLinesOfAProcess) {
  EXPECT_THAT(ReadLog(directory_, "controller", 2).lines, ElementsAre("x"));
  EXPECT_THAT(ReadLog(directory_, "w0", 2).lines, ElementsAre("b", "c"));
  EXPECT_THAT(ReadLog(directory_, "w0", 9).lines, ElementsAre("a", "b", "c"));
  EXPECT_THAT(ReadLog(directory_, "w0", 0).lines, IsEmpty());
  EXPECT_THAT(ReadLog(directory_, "w9", 9).lines, IsEmpty());
}

TEST_F(LogFilesTest, ReadsOnlyTheEndOfALargeFile) {
  std::ofstream out(directory_ + "/w1.log");
  for (int i = 0; i < 1000000; ++i) out << "line " << i << "\n";
  out.close();
  EXPECT_THAT(ReadLog(directory_, "w1", 2).lines, ElementsAre("line 999998", "line 999999"));
  EXPECT_FALSE(ReadLog(directory_, "w1", 2).older);
  const LastLines all = ReadLog(directory_, "w1", 10000000);
  EXPECT_LT(all.lines.size(), 1000000u);
  EXPECT_TRUE(all.older);
}

TEST_F(LogFilesTest, LeavesSecretsOut) {
  std::ofstream(directory_ + "/w1.log") << "password=swordfish\n-----BEGIN PRIVATE KEY-----\nAAAA\n"
                                           "-----END PRIVATE KEY-----\nlast\n";
  EXPECT_THAT(ReadLog(directory_, "w1", 9).lines,
              ElementsAre("password=[left out]", "[left out: private key]", "last"));
}

TEST_F(LogFilesTest, KnowsTheProcessesThatHaveFiles) {
  EXPECT_THAT(ProcessesIn(directory_), ElementsAre("controller", "w0"));
  EXPECT_THAT(ProcessesIn(""), IsEmpty());
  EXPECT_THAT(ProcessesIn(directory_ + "/none"), IsEmpty());
}

TEST(LastLines, AreOlderOnlyIfAllOfTheTextIsThere) {
  EXPECT_THAT(LastLinesOf("", 5, true).lines, IsEmpty());
  EXPECT_THAT(LastLinesOf("a\n\nb\n", 5, true).lines, ElementsAre("a", "", "b"));
  EXPECT_TRUE(LastLinesOf("a\n\nb\n", 5, true).older);
  EXPECT_TRUE(LastLinesOf("a\n\nb\n", 3, true).older);
  EXPECT_FALSE(LastLinesOf("a\n\nb\n", 2, true).older);
  EXPECT_FALSE(LastLinesOf("a\n\nb\n", 5, false).older);
}

}  // namespace
}  // namespace fairway
