// SPDX-License-Identifier: Apache-2.0
#include "base/settings_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/nearest.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Fault(std::string_view text) { return Text(ParseSettings(text).status()); }

TEST(SettingsFileTest, ReadsTheSettingsOfEachTable) {
  const auto tables = *ParseSettings(
      "# a comment\n"
      "[controller]\n"
      "bind = '10.0.0.1'\n"
      "port = 29_000\n"
      "[worker]\n"
      "allow-raw-kernels = true\n"
      "gpu-fraction = 0.25\n"
      "preload = ['/a.so', '/b.so']\n");
  ASSERT_EQ(tables.size(), 2u);
  const auto& controller = tables.at("controller");
  ASSERT_EQ(controller.size(), 2u);
  EXPECT_EQ(controller[0].name, "bind");
  EXPECT_THAT(controller[0].values, ElementsAre("10.0.0.1"));
  EXPECT_FALSE(controller[0].array);
  EXPECT_EQ(controller[0].line, 3u);
  EXPECT_THAT(controller[1].values, ElementsAre("29000"));
  const auto& worker = tables.at("worker");
  ASSERT_EQ(worker.size(), 3u);
  EXPECT_THAT(worker[0].values, ElementsAre("true"));
  EXPECT_THAT(worker[1].values, ElementsAre("0.25"));
  EXPECT_THAT(worker[2].values, ElementsAre("/a.so", "/b.so"));
  EXPECT_TRUE(worker[2].array);
}

TEST(SettingsFileTest, AnEmptyFileHasNoSettings) { EXPECT_THAT(*ParseSettings(""), IsEmpty()); }

TEST(SettingsFileTest, FaultsNameTheirLine) {
  EXPECT_THAT(Fault("[controller]\nport = = 1\n"), testing::StartsWith("2: "));
  EXPECT_THAT(Fault("[controller]\nport = 1\nport = 2\n"), testing::StartsWith("3: "));
  EXPECT_EQ(Fault("\nport = 1\n"),
            "2: 'port' is outside of a table; settings stand below one of [controller], [up], "
            "[worker]");
  EXPECT_EQ(Fault("[contoller]\n"),
            "1: unknown table [contoller]; did you mean [controller]? (there are [controller], "
            "[up], [worker])");
  EXPECT_EQ(Fault("[database]\n"),
            "1: unknown table [database] (there are [controller], [up], [worker])");
  EXPECT_EQ(Fault("[worker]\n\nsince = 2026-11-27\n"),
            "3: since is neither a string, a number, true or false, nor an array of them");
  EXPECT_THAT(Fault("[worker.gpu]\nfraction = 1\n"), HasSubstr("1: gpu is neither"));
  EXPECT_THAT(Fault("[worker]\npreload = [['/a.so']]\n"), HasSubstr("2: preload is neither"));
}

TEST(SettingsFileTest, GarbageIsAnErrorOfBoundedLength) {
  const std::string path = fmt::format("{}garbage.{}.toml", testing::TempDir(), ::getpid());
  for (const std::string& text :
       {std::string(100000, '['), std::string(100000, 'a'), std::string("[controller]\n\0x", 15),
        "[" + std::string(500000, 'x') + "]\n", std::string("\xff\xfe\x80")}) {
    std::ofstream(path, std::ios::binary) << text;
    const auto tables = ReadSettings(path);
    EXPECT_EQ(tables.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_LT(Text(tables.status()).size(), path.size() + kMaxErrorText + 100);
  }
}

TEST(SettingsFileTest, NoTextDoesHarm) {
  constexpr std::string_view kPieces[] = {"[",      "]",   "=",    ".",    "'",  "\"",   "\n", " ",
                                          "a",      "up",  "\r",   "#",    "{",  "}",    ",",  "0",
                                          "-",      "T",   ":",    "_",    "e",  "+",    "x",  "\\",
                                          "\"\"\"", "'''", "\xff", "\xc3", "\t", "true", "inf"};
  std::minstd_rand random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (size_t pieces = random() % 16; pieces > 0; --pieces)
      text += kPieces[random() % std::size(kPieces)];
    (void)ParseSettings(text);
  }
}

TEST(SettingsFileTest, FilesThatCannotBeSettingsAreRefused) {
  const std::string path = fmt::format("{}settings.{}.toml", testing::TempDir(), ::getpid());
  EXPECT_EQ(Text(ReadSettings("/no/such").status()),
            "/no/such: cannot be read: No such file or directory");
  EXPECT_EQ(Text(ReadSettings("/dev/zero").status()), "/dev/zero: is no regular file");
  EXPECT_EQ(Text(ReadSettings("/tmp").status()), "/tmp: is no regular file");
  std::ofstream(path) << "[controller]\nport = 1\n";
  ::chmod(path.c_str(), 0666);
  EXPECT_THAT(Text(ReadSettings(path).status()), HasSubstr("chmod o-w"));
  ::chmod(path.c_str(), 0644);
  EXPECT_TRUE(ReadSettings(path).ok());
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
    EXPECT_THAT(Text(ReadSettings(path).status()), HasSubstr("belongs to user 12345"));
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  }
  std::ofstream(path) << std::string((size_t{1} << 20) + 1, '#');
  EXPECT_THAT(Text(ReadSettings(path).status()), HasSubstr("more than 1 MiB"));
  std::ofstream(path) << "port = 1\n";
  EXPECT_THAT(Text(ReadSettings(path).status()), testing::StartsWith(path + ":1: 'port'"));
}

TEST(NearestTest, SlipsAndShortFormsAreNear) {
  const std::vector<std::string> names = {"port", "http-port", "device-memory"};
  EXPECT_EQ(Nearest("prot", names), "port");
  EXPECT_EQ(Nearest("device", names), "device-memory");
  EXPECT_EQ(Nearest("zzzzzz", names), "");
  EXPECT_EQ(Nearest(std::string(1000000, 'p'), names), "");
}

}  // namespace
}  // namespace fairway
