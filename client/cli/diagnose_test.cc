// SPDX-License-Identifier: Apache-2.0
#include "client/cli/diagnose.h"

#include <condition_variable>
#include <memory>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/archive.h"
#include "client/cli/diagnose_parts.h"

namespace fairway {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kPartLimit{120};

TEST(MakeParts, SaysOfEachPartWhyItIsMissing) {
  bool all_ended = false;
  const std::vector<Made> made =
      MakeParts({{"a.txt", "a command", kPartLimit, [] { return std::string("text\n"); }},
                 {"b.txt", "another", kPartLimit,
                  []() -> absl::StatusOr<std::string> {
                    return absl::UnavailableError("gone\nfor fw_0123456789");
                  }}},
                &all_ended);
  EXPECT_TRUE(all_ended);
  EXPECT_THAT(IndexText(made), HasSubstr("\na.txt: 5 B (a command)\n"
                                         "b.txt: MISSING: gone for [left out: token] (another)\n"));
}

TEST(MakeParts, APartThatDoesNotEndHoldsUpNothing) {
  struct Stuck {
    std::mutex mutex;
    std::condition_variable wake;
    bool over = false;
  };
  const auto stuck = std::make_shared<Stuck>();
  bool all_ended = true;
  const std::vector<Made> made =
      MakeParts({{"a.txt", "stuck", std::chrono::milliseconds(50),
                  [stuck]() -> absl::StatusOr<std::string> {
                    std::unique_lock lock(stuck->mutex);
                    stuck->wake.wait(lock, [&] { return stuck->over; });
                    return "late";
                  }},
                 {"b.txt", "fine", kPartLimit, [] { return std::string("text"); }}},
                &all_ended);
  EXPECT_FALSE(all_ended);
  EXPECT_EQ(made[0].fault, "not ended within 0.05 s");
  EXPECT_EQ(made[1].text, "text");
  const std::lock_guard lock(stuck->mutex);
  stuck->over = true;
  stuck->wake.notify_all();
}

TEST(MakeParts, OfALongPartTheEndIsKept) {
  bool all_ended = false;
  const std::vector<Made> made = MakeParts({{"a.txt", "long", kPartLimit,
                                             [] {
                                               std::string out;
                                               while (out.size() <= kLongestPart)
                                                 out += "a line of a log\n";
                                               return out + "the end\n";
                                             }}},
                                           &all_ended);
  EXPECT_LE(made[0].text.size(), kLongestPart);
  EXPECT_TRUE(made[0].text.starts_with("a line of a log\n"));
  EXPECT_TRUE(made[0].text.ends_with("\nthe end\n"));
  EXPECT_EQ(made[0].fault, "the last 4.0 MiB of 4.0 MiB");
}

TEST(TarGz, RefusesANameThatIsTooLong) {
  EXPECT_TRUE(TarGz({{std::string(100, 'a'), "text"}}, 0).ok());
  EXPECT_FALSE(TarGz({{std::string(101, 'a'), "text"}}, 0).ok());
}

}  // namespace
}  // namespace fairway
