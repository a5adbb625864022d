// SPDX-License-Identifier: Apache-2.0
#include "base/recent_lines.h"

#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/log.h"

namespace fairway {
namespace {

TEST(RecentLines, HasAllLinesWhileTheyAreFew) {
  RecentLines lines;
  EXPECT_EQ(lines.Get().text, "");
  lines.Add("one");
  lines.Add("");
  lines.Add("three");
  EXPECT_EQ(lines.Get().text, "one\n\nthree\n");
  EXPECT_FALSE(lines.Get().older);
}

TEST(RecentLines, HasTheLastWholeLinesOnceTheyAreMany) {
  RecentLines lines;
  for (int i = 0; i < 200000; ++i) {
    lines.Add(fmt::format("line {}", i));
    if (i % 7000 != 0 && i != 199999) continue;
    const RecentLines::Tail tail = lines.Get();
    EXPECT_LE(tail.text.size(), RecentLines::kBytes);
    EXPECT_TRUE(tail.text.starts_with("line ")) << tail.text.substr(0, 20);
    EXPECT_TRUE(tail.text.ends_with(fmt::format("\nline {}\n", i)) || i == 0);
    EXPECT_EQ(tail.older, !tail.text.starts_with("line 0\n"));
  }
  EXPECT_GT(lines.Get().text.size(), RecentLines::kBytes - 20);
}

TEST(RecentLines, ALineThatFillsTheLastBytesIsWhole) {
  RecentLines lines;
  const std::string line(1023, 'x');  // with its newline a whole part of kBytes
  for (size_t i = 0; i <= RecentLines::kBytes / 1024; ++i) lines.Add(line);
  EXPECT_EQ(lines.Get().text.size(), RecentLines::kBytes);
  EXPECT_TRUE(lines.Get().older);
}

TEST(RecentLines, CutsLongLines) {
  RecentLines lines;
  for (int i = 0; i < 100; ++i) lines.Add(std::string(1 << 20, 'x'));
  const std::string text = lines.Get().text;
  EXPECT_LE(text.size(), RecentLines::kBytes);
  EXPECT_EQ(text.find('\n'), RecentLines::kLongestLine);
}

TEST(RecentLines, AProcessKeepsWhatItLogs) {
  auto lines = std::make_shared<RecentLines>();
  InitLogging({.component = "test", .island = {}, .worker = "w0"}, "info", lines);
  spdlog::debug("not this");
  spdlog::warn("a {}", "word\nand more");
  spdlog::default_logger()->flush();
  const std::string text = lines->Get().text;
  EXPECT_TRUE(text.starts_with("{\"ts\":")) << text;
  EXPECT_TRUE(
      text.ends_with("\"level\":\"warning\",\"component\":\"test\",\"worker\":\"w0\","
                     "\"msg\":\"a word\\nand more\"}\n"))
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

}  // namespace
}  // namespace fairway
