// SPDX-License-Identifier: Apache-2.0
#include "client/cli/log_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class LogFiles : public testing::Test {
 protected:
  LogFiles() : top_(::mkdtemp(name_)), logs_(top_ + "/logs") {
    fs::create_directory(logs_);
    std::ofstream(top_ + "/secret.log") << "a secret of root\n";
  }
  ~LogFiles() override { fs::remove_all(top_); }
  void Log(const std::string& name, const std::string& text, int64_t time_s) {
    std::ofstream(logs_ + "/" + name) << text;
    const timespec times[2] = {{time_s, 0}, {time_s, 0}};
    ::utimensat(AT_FDCWD, (logs_ + "/" + name).c_str(), times, 0);
  }
  static std::string Found(const std::string& folder) {
    const auto found = LogsIn(folder);
    return found.ok() ? *found : Text(found.status());
  }

  char name_[64] = "/tmp/fairway-logs-XXXXXX";
  std::string top_, logs_;
};

TEST_F(LogFiles, TheLatestComeFirst) {
  Log("old.log", "old\n", 1000);
  Log("new.log", "new\n", 2000);
  Log("other.txt", "other\n", 3000);
  EXPECT_EQ(Found(logs_),
            fmt::format("==> {0}/new.log <==\nnew\n\n==> {0}/old.log <==\nold\n\n", logs_));
}

TEST_F(LogFiles, OfManyTwentyAreRead) {
  for (int i = 0; i < 50; ++i) Log(fmt::format("{}.log", i), fmt::format("text {}\n", i), 1000 + i);
  const std::string found = Found(logs_);
  EXPECT_THAT(found, HasSubstr("text 49\n"));
  EXPECT_THAT(found, HasSubstr("text 30\n"));
  EXPECT_THAT(found, Not(HasSubstr("text 29\n")));
}

TEST_F(LogFiles, OfALongOneTheLastLinesAreRead) {
  Log("a.log", std::string(300000, 'x') + "\nthe end\n", 1000);
  EXPECT_EQ(Found(logs_), fmt::format("==> {}/a.log <==\nthe end\n\n", logs_));
}

TEST_F(LogFiles, WhatIsNoPlainFileIsNotOpened) {
  Log("a.log", "text\n", 1000);
  fs::create_symlink(top_ + "/secret.log", logs_ + "/link.log");
  fs::create_hard_link(top_ + "/secret.log", logs_ + "/second-name.log");
  fs::create_directory(logs_ + "/folder.log");
  ASSERT_EQ(::mkfifo((logs_ + "/pipe.log").c_str(), 0600), 0);
  EXPECT_EQ(Found(logs_), fmt::format("==> {}/a.log <==\ntext\n\n", logs_));
}

TEST_F(LogFiles, OurOwnLinkToAFolderIsFollowed) {
  Log("a.log", "text\n", 1000);
  fs::create_symlink("logs", top_ + "/relative");
  fs::create_symlink(top_ + "/relative/../logs", top_ + "/absolute");
  EXPECT_THAT(Found(top_ + "/relative/"), HasSubstr("text\n"));
  EXPECT_THAT(Found(top_ + "/absolute"), HasSubstr("text\n"));
}

TEST_F(LogFiles, ALinkThatAnotherUserCanHaveMadeIsNotFollowed) {
  Log("a.log", "text\n", 1000);
  fs::create_symlink("logs", top_ + "/theirs");
  fs::create_directory(top_ + "/open");
  fs::create_symlink(logs_, top_ + "/open/ours");
  ASSERT_EQ(::chmod((top_ + "/open").c_str(), 0777), 0);
  const char* const said = "is a link that another user can have made, and is not followed";
  EXPECT_THAT(Found(top_ + "/open/ours"), HasSubstr(said));
  if (::lchown((top_ + "/theirs").c_str(), 12345, 12345) != 0)
    GTEST_SKIP() << "only root can make a link of another user";
  EXPECT_THAT(Found(top_ + "/theirs"), HasSubstr(said));
}

TEST_F(LogFiles, WhyTheyCannotBeReadIsTold) {
  EXPECT_EQ(Found(logs_), fmt::format("{} has no NAME.log", logs_));
  EXPECT_EQ(Found(top_ + "/no"), fmt::format("{}/no: No such file or directory", top_));
  EXPECT_EQ(Found(top_ + "/secret.log"), fmt::format("{}/secret.log: Not a directory", top_));
}

}  // namespace
}  // namespace fairway
