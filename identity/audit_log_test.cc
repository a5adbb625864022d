// SPDX-License-Identifier: Apache-2.0
#include "identity/audit_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace fairway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

const LineBudget::Time kStart(seconds(1'800'000'000));

TEST(LineBudgetTest, EachHasItsPartAndAllTogetherHaveTheirs) {
  LineBudget budget({3, 1}, {5, 2});
  const auto taken = [&](const std::string& whose, LineBudget::Time now) {
    int count = 0;
    while (budget.Take(whose, now)) ++count;
    return count;
  };
  EXPECT_EQ(taken("a", kStart), 3);
  EXPECT_EQ(taken("b", kStart), 2);  // two were left for all
  EXPECT_EQ(taken("c", kStart), 0);
  EXPECT_EQ(taken("c", kStart + milliseconds(400)), 0);
  EXPECT_EQ(taken("c", kStart + milliseconds(500)), 1);
  EXPECT_EQ(taken("a", kStart + milliseconds(1000)), 1);
  EXPECT_EQ(taken("a", kStart + seconds(1000)), 3);  // full, and no more than that
  EXPECT_EQ(taken("b", kStart), 1);                  // a clock that was set back takes nothing away
}

TEST(LineBudgetTest, HoweverManyThereAreItIsBounded) {
  LineBudget budget({2, 1}, {1'000'000, 1});
  int lines = 0;
  for (int i = 0; i < 10'000; ++i) lines += budget.Take(std::to_string(i), kStart) ? 1 : 0;
  EXPECT_EQ(lines, 1024 + 2);  // those that share a part have one part
  EXPECT_LE(budget.num_parts(), 1025u);
  // Parts that are full again make room.
  EXPECT_TRUE(budget.Take("new", kStart + seconds(10)));
  EXPECT_EQ(budget.num_parts(), 1u);
}

class AuditLogTest : public ::testing::Test {
 protected:
  AuditLogTest() {
    std::string made = (std::filesystem::temp_directory_path() / "fairway-XXXXXX").string();
    if (::mkdtemp(made.data()) == nullptr) std::abort();
    root_ = made;
  }
  ~AuditLogTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  std::string directory() const { return root_ + "/audit"; }
  std::vector<nlohmann::json> Lines(const std::string& file) const {
    std::ifstream in(directory() + "/" + file);
    std::vector<nlohmann::json> out;
    for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
    return out;
  }
  AuditLine Refused(std::string_view host) const {
    return {.event = AuditEvent::kRefused,
            .verb = "open a session",
            .host = host,
            .token = 0,
            .role = "",
            .tenant = "",
            .status = absl::UnauthenticatedError("without a token")};
  }

  std::string root_;
};

TEST_F(AuditLogTest, EachEventIsALineInTheFileOfItsKind) {
  const auto log = AuditLog::Open(directory()).value();
  log->Write(Refused("10.0.0.1"), kStart + milliseconds(25));
  log->Write({.event = AuditEvent::kUsed,
              .verb = "open a session",
              .host = "10.0.0.2",
              .token = 7,
              .role = "user",
              .tenant = "red"},
             kStart);
  log->Write({.event = AuditEvent::kAdmin,
              .verb = "restart an executor",
              .host = "10.0.0.3",
              .token = 1,
              .role = "admin",
              .tenant = "",
              .object = "w\xff\n0",
              .status = absl::NotFoundError("no such worker")},
             kStart);
  log->Flush();
  EXPECT_EQ(
      Lines("refused.log").at(0).dump(),
      R"({"code":"UNAUTHENTICATED","event":"refused","host":"10.0.0.1","text":"without a token",)"
      R"("time":"2027-01-15T08:00:00.025Z","verb":"open a session"})");
  EXPECT_EQ(Lines("used.log").at(0).dump(),
            R"({"code":"OK","event":"used","host":"10.0.0.2","role":"user","tenant":"red",)"
            R"("time":"2027-01-15T08:00:00.000Z","token":7,"verb":"open a session"})");
  const nlohmann::json admin = Lines("admin.log").at(0);
  EXPECT_EQ(admin["object"], "w\xef\xbf\xbd\n0");  // whatever bytes a client sends
  EXPECT_EQ(admin["text"], "no such worker");
  struct stat facts {};
  for (const char* const file : {"refused.log", "used.log", "admin.log"}) {
    ASSERT_EQ(::stat((directory() + "/" + file).c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
  }
}

TEST_F(AuditLogTest, WhatIsAboveTheRateIsCounted) {
  const auto log = AuditLog::Open(directory()).value();
  for (int i = 0; i < 1000; ++i) log->Write(Refused("10.0.0.1"), kStart);
  log->Write(Refused("10.0.0.2"), kStart);  // another address has its own lines
  log->Flush();
  const auto lines = Lines("refused.log");
  ASSERT_EQ(lines.size(), 21u);
  EXPECT_EQ(lines.back()["host"], "10.0.0.2");
  EXPECT_EQ(lines.back()["left_out"], 980);
  EXPECT_FALSE(lines.front().contains("left_out"));
}

TEST_F(AuditLogTest, FailedJoinsAndOperatorsHaveFewLinesAmongThoseOfAdmins) {
  const auto log = AuditLog::Open(directory()).value();
  const auto write = [&](std::string_view role, int number, absl::Status status, int second) {
    const std::string host = fmt::format("10.0.{}.{}", number / 200, number % 200);
    log->Write({.event = AuditEvent::kAdmin,
                .verb = "do something",
                .host = host,
                .token = number,
                .role = role,
                .tenant = "",
                .status = std::move(status)},
               kStart + std::chrono::seconds(second));
  };
  const auto failed = absl::InvalidArgumentError("no request");
  for (int second = 0; second < 10; ++second) {
    for (int i = 0; i < 1000; ++i) {
      write("worker", i, failed, second);  // of many addresses, and with many tokens
      write("operator", i, absl::OkStatus(), second);
    }
    // A worker that joins, and an admin, are there all the same.
    write("worker", 5000 + second, absl::OkStatus(), second);
    write("admin", 1, failed, second);
    log->Flush();
  }
  std::map<std::string, int> lines;
  for (const auto& line : Lines("admin.log"))
    ++lines[std::string(line["role"]) + " " + std::string(line["code"])];
  EXPECT_EQ(lines["worker OK"], 10);
  EXPECT_EQ(lines["admin INVALID_ARGUMENT"], 10);
  EXPECT_LE(lines["worker INVALID_ARGUMENT"], 100 + 10);
  EXPECT_LE(lines["operator OK"], 100 + 10);
  EXPECT_GE(lines["operator OK"], 100);
}

TEST_F(AuditLogTest, OneAddressWhoseJoinsFailLeavesLinesToOthers) {
  const auto log = AuditLog::Open(directory()).value();
  const auto join = [&](std::string_view host) {
    log->Write({.event = AuditEvent::kAdmin,
                .verb = "join",
                .host = host,
                .token = 7,
                .role = "worker",
                .tenant = "",
                .status = absl::InvalidArgumentError("no request")},
               kStart);
  };
  for (int i = 0; i < 1000; ++i) join("10.0.0.1");
  join("10.0.0.2");
  log->Flush();
  EXPECT_EQ(Lines("admin.log").size(), 11u);
  EXPECT_EQ(Lines("admin.log").back()["host"], "10.0.0.2");
}

TEST_F(AuditLogTest, FilesAreBoundedAndTheOldestLinesGo) {
  const auto log = AuditLog::Open(directory(), /*file_bytes=*/1000).value();
  for (int i = 0; i < 200; ++i)
    log->Write(Refused("10.0.0." + std::to_string(i)), kStart + milliseconds(i));
  log->Flush();
  for (const char* const file :
       {"refused.log", "refused.log.1", "refused.log.2", "refused.log.3"}) {
    EXPECT_LE(std::filesystem::file_size(directory() + "/" + file), 1000u);
    EXPECT_GE(Lines(file).size(), 1u);
  }
  EXPECT_EQ(Lines("refused.log").back()["host"], "10.0.0.199");
  EXPECT_FALSE(std::filesystem::exists(directory() + "/refused.log.4"));
}

TEST_F(AuditLogTest, WhatTheDiskDoesNotTakeIsCounted) {
  const auto log = AuditLog::Open(directory()).value();
  std::filesystem::create_directories(directory() + "/refused.log");  // no file
  log->Write(Refused("10.0.0.1"), kStart);
  log->Write(Refused("10.0.0.1"), kStart);
  log->Flush();
  std::filesystem::remove(directory() + "/refused.log");
  log->Write(Refused("10.0.0.1"), kStart);
  log->Flush();
  const auto lines = Lines("refused.log");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["left_out"], 2);
}

}  // namespace
}  // namespace fairway
