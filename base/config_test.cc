// SPDX-License-Identifier: Apache-2.0
#include "base/config.h"

#include <unistd.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Settings {
  int port = 29000;
  std::string bind = "127.0.0.1";
  bool detach = false;
  milliseconds deadline{10000};
  int64_t memory = 0;
  double share = 0.5;
  std::vector<std::string> options;
  std::string output = "text";
  std::string worker;
};

struct Parsed {
  Settings settings;
  Config::Outcome outcome;
  Config::Source port_source{};
};

Parsed Parse(std::vector<std::string> args, std::map<std::string, std::string> environment = {}) {
  Parsed out;
  Settings& s = out.settings;
  Config config("fairway test", "A program.");
  config.Flag("port", &s.port, "Where clients connect");
  config.Flag("bind", &s.bind, "Address to bind");
  config.Flag("detach", &s.detach, "Return once ready");
  config.Flag("executor-deadline", &s.deadline, "Silence allowed");
  config.BytesFlag("device-memory", &s.memory, "Per device");
  config.Flag("share", &s.share, "A share");
  config.Flag("plugin-option", &s.options, "name=value");
  config.Flag("output", &s.output, "Format");
  config.ShortName("output", 'o');
  config.Variable("share", "FAIRWAY_PART");
  config.Positional("WORKER", &s.worker, "A worker");
  config.File("worker");
  config.Check([&]() -> absl::Status {
    if (s.port > 65535) return InvalidArgument("--port: {} is too large", s.port);
    return absl::OkStatus();
  });
  out.outcome = config.Parse(args, [&](const std::string& name) -> std::optional<std::string> {
    const auto it = environment.find(name);
    if (it == environment.end()) return std::nullopt;
    return it->second;
  });
  if (!out.outcome.exit_code) out.port_source = config.source("port");
  return out;
}

TEST(ConfigTest, FlagsBeatEnvironmentBeatsDefaults) {
  EXPECT_EQ(Parse({}).settings.port, 29000);
  EXPECT_EQ(Parse({}).port_source, Config::Source::kDefault);
  EXPECT_EQ(Parse({}, {{"FAIRWAY_PORT", "1"}}).settings.port, 1);
  EXPECT_EQ(Parse({}, {{"FAIRWAY_PORT", "1"}}).port_source, Config::Source::kEnvironment);
  EXPECT_EQ(Parse({"--port", "2"}, {{"FAIRWAY_PORT", "1"}}).settings.port, 2);
  EXPECT_EQ(Parse({"--port=2"}, {{"FAIRWAY_PORT", "1"}}).port_source, Config::Source::kFlag);
}

TEST(ConfigTest, ReadsEachType) {
  const Settings s =
      Parse({"--bind=0.0.0.0", "--detach", "--executor-deadline", "500ms", "--device-memory=64MiB",
             "--share=0.25", "--plugin-option=a=1", "--plugin-option", "b=2", "-o", "json", "w0"})
          .settings;
  EXPECT_EQ(s.bind, "0.0.0.0");
  EXPECT_TRUE(s.detach);
  EXPECT_EQ(s.deadline, milliseconds(500));
  EXPECT_EQ(s.memory, int64_t{64} << 20);
  EXPECT_EQ(s.share, 0.25);
  EXPECT_THAT(s.options, ElementsAre("a=1", "b=2"));
  EXPECT_EQ(s.output, "json");
  EXPECT_EQ(s.worker, "w0");
}

TEST(ConfigTest, ReadsEachTypeFromTheEnvironment) {
  const Settings s = Parse({}, {{"FAIRWAY_DETACH", "1"},
                                {"FAIRWAY_EXECUTOR_DEADLINE", "2m"},
                                {"FAIRWAY_DEVICE_MEMORY", "2GiB"},
                                {"FAIRWAY_PART", "0.125"},
                                {"FAIRWAY_SHARE", "0.75"},
                                {"FAIRWAY_PLUGIN_OPTION", "a=1,b=2"}})
                         .settings;
  EXPECT_EQ(s.share, 0.125);
  EXPECT_TRUE(s.detach);
  EXPECT_EQ(s.deadline, milliseconds(120000));
  EXPECT_EQ(s.memory, int64_t{2} << 30);
  EXPECT_THAT(s.options, ElementsAre("a=1", "b=2"));
}

TEST(ConfigTest, ABareBooleanTakesNoWordAndCanBeSwitchedOff) {
  const Settings s = Parse({"--detach", "w0"}).settings;
  EXPECT_TRUE(s.detach);
  EXPECT_EQ(s.worker, "w0");
  EXPECT_FALSE(Parse({"--detach=false"}, {{"FAIRWAY_DETACH", "true"}}).settings.detach);
}

TEST(ConfigTest, AnEmptyValueIsAValue) {
  const Settings s = Parse({"--bind=", "--port=7"}, {{"FAIRWAY_BIND", "0.0.0.0"}}).settings;
  EXPECT_EQ(s.bind, "");
  EXPECT_EQ(s.port, 7);
  EXPECT_EQ(Parse({"--bind=a="}).settings.bind, "a=");
  EXPECT_EQ(Parse({"--port="}).outcome.error, "fairway test: --port: '' is not a whole number\n");
}

TEST(ConfigTest, UnknownFlagsSuggestTheNearest) {
  const auto outcome = Parse({"--prot=3"}).outcome;
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.error,
            "fairway test: unknown flag --prot; did you mean --port? (--help lists all flags)\n");
  EXPECT_THAT(Parse({"--device-mem", "3"}).outcome.error,
              HasSubstr("did you mean --device-memory?"));
  EXPECT_THAT(Parse({"--executor_deadline=3s"}).outcome.error, HasSubstr("--executor-deadline?"));
  EXPECT_THAT(Parse({"--print-confg"}).outcome.error, HasSubstr("did you mean --print-config?"));
  EXPECT_EQ(Parse({"--zzzzzzzzzzz"}).outcome.error,
            "fairway test: unknown flag --zzzzzzzzzzz (--help lists all flags)\n");
}

TEST(ConfigTest, BadValuesNameTheFlagOrTheVariable) {
  EXPECT_EQ(Parse({"--port=abc"}).outcome.error,
            "fairway test: --port: 'abc' is not a whole number\n");
  EXPECT_EQ(Parse({"--port=99999999999"}).outcome.error,
            "fairway test: --port: '99999999999' is too large\n");
  EXPECT_EQ(Parse({}, {{"FAIRWAY_PORT", "1x"}}).outcome.error,
            "fairway test: FAIRWAY_PORT: '1x' is not a whole number\n");
  EXPECT_THAT(Parse({"--executor-deadline=soon"}).outcome.error,
              HasSubstr("'soon' is not a duration"));
  EXPECT_THAT(Parse({"--device-memory=-1"}).outcome.error, HasSubstr("is not a size"));
  EXPECT_THAT(Parse({"--detach=maybe"}).outcome.error,
              HasSubstr("'maybe' is neither true nor false"));
  EXPECT_EQ(Parse({"--port=abc"}).outcome.exit_code, 2);
  EXPECT_EQ(Parse({"--port"}).outcome.exit_code, 2);
}

TEST(ConfigTest, UnexpectedWordsAreErrors) {
  const auto outcome = Parse({"w0", "w1"}).outcome;
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.error, "fairway test: unexpected argument 'w1'\n");
}

TEST(ConfigTest, PrintConfigTellsWhereEachValueCameFrom) {
  const auto outcome = Parse({"--print-config", "--bind=::1"}, {{"FAIRWAY_PORT", "7"}}).outcome;
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("--port=7  (environment FAIRWAY_PORT)\n"),
                                    HasSubstr("--bind=::1  (flag)\n"),
                                    HasSubstr("--executor-deadline=10s  (default)\n"),
                                    HasSubstr("--detach=false  (default)\n")));
}

// Writes a settings file and returns its path. The process has one, which goes with it.
std::string FileOf(const std::string& text) {
  struct File {
    const std::string path;
    ~File() { ::unlink(path.c_str()); }
  };
  static const File file{fmt::format("{}config_test.{}.toml", testing::TempDir(), ::getpid())};
  std::ofstream(file.path) << text;
  return file.path;
}

TEST(ConfigTest, TheFileIsBelowTheEnvironmentAndAboveTheDefault) {
  const std::string file = FileOf(
      "[controller]\nport = 9\n[worker]\nport = 7\nexecutor-deadline = '2m'\ndetach = true\n"
      "plugin-option = ['a=1', 'b=2']\n");
  const Parsed parsed = Parse({"--config", file});
  EXPECT_EQ(parsed.settings.port, 7);
  EXPECT_EQ(parsed.port_source, Config::Source::kFile);
  EXPECT_EQ(parsed.settings.deadline, milliseconds(120000));
  EXPECT_TRUE(parsed.settings.detach);
  EXPECT_THAT(parsed.settings.options, ElementsAre("a=1", "b=2"));
  EXPECT_EQ(parsed.settings.bind, "127.0.0.1");
  EXPECT_EQ(Parse({}, {{"FAIRWAY_CONFIG", file}}).settings.port, 7);
  EXPECT_EQ(Parse({"--config", file}, {{"FAIRWAY_PORT", "8"}}).settings.port, 8);
  EXPECT_EQ(Parse({"--config", file, "--port=6"}, {{"FAIRWAY_PORT", "8"}}).settings.port, 6);
  EXPECT_THAT(Parse({"--config", file, "--plugin-option=c=3"}).settings.options,
              ElementsAre("c=3"));
  EXPECT_EQ(Parse({"--config="}, {{"FAIRWAY_CONFIG", file}}).settings.port, 29000);
  EXPECT_THAT(Parse({"--config", file, "--print-config"}).outcome.output,
              AllOf(HasSubstr("--port=7  (file " + file + ":4)\n"),
                    HasSubstr("--bind=127.0.0.1  (default)\n")));
}

TEST(ConfigTest, FaultsOfTheFileNameItsLine) {
  const auto error = [](const std::string& text) {
    const std::string file = FileOf(text);
    const auto outcome = Parse({"--config", file, "--port=1"}).outcome;
    EXPECT_EQ(outcome.exit_code, 2);
    const std::string begin = "fairway test: " + file + ":";
    EXPECT_THAT(outcome.error, testing::StartsWith(begin));
    return outcome.error.substr(begin.size());
  };
  EXPECT_EQ(error("[worker]\nprot = 1\n"),
            "2: unknown setting 'prot' in [worker]; did you mean port?\n");
  EXPECT_EQ(error("[worker]\nconfig = 'x'\n"), "2: unknown setting 'config' in [worker]\n");
  EXPECT_EQ(error("[worker]\nWORKER = 'x'\n"), "2: unknown setting 'WORKER' in [worker]\n");
  // A flag overrides the value, and it is wrong all the same.
  EXPECT_EQ(error("[worker]\n\nport = 'abc'\n"), "3: port: 'abc' is not a whole number\n");
  EXPECT_EQ(error("[worker]\nport = [1, 2]\n"), "2: port takes one value, no array\n");
  EXPECT_THAT(error("[worker\n"), testing::StartsWith("1: "));
}

TEST(ConfigTest, TheCheckRunsBeforeAnythingIsPrinted) {
  const auto outcome = Parse({"--port=99999", "--print-config"}).outcome;
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.error, "fairway test: --port: 99999 is too large\n");
  EXPECT_EQ(outcome.output, "");
}

TEST(ConfigTest, AReloadAppliesWhatCanChange) {
  std::map<std::string, std::string> present = {{"level", "info"}, {"port", "1"}, {"same", "x"}};
  const std::map<std::string, std::string> fresh = {
      {"level", "debug"}, {"port", "2"}, {"same", "x"}};
  EXPECT_FALSE(
      TakeReload({.exit_code = 2, .output = {}, .error = "wrong\n"}, present, fresh, {"level"}));
  EXPECT_EQ(present["level"], "info");
  EXPECT_TRUE(TakeReload({}, present, fresh, {"level"}));
  EXPECT_EQ(present["level"], "debug");
  EXPECT_EQ(present["port"], "1");
}

TEST(ConfigTest, AListOfWordsTakesAllThatAreLeft) {
  const auto words = [](const std::vector<std::string>& args) {
    std::vector<std::string> islands;
    bool all = false;
    Config config("fairway test", "A program.");
    config.Flag("all", &all, "All");
    config.Positional("ISLAND", &islands, "Islands");
    const Config::Outcome outcome =
        config.Parse(args, [](const std::string&) { return std::nullopt; });
    EXPECT_FALSE(outcome.exit_code.has_value()) << outcome.error;
    return islands;
  };
  EXPECT_THAT(words({}), ElementsAre());
  EXPECT_THAT(words({"i0"}), ElementsAre("i0"));
  EXPECT_THAT(words({"i0", "i1", "--all", "i2"}), ElementsAre("i0", "i1", "i2"));
}

TEST(ConfigTest, HelpAndVersion) {
  const auto help = Parse({"--help"}).outcome;
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.output, AllOf(HasSubstr("--port"), HasSubstr("29000"), HasSubstr("WORKER"),
                                 HasSubstr("FAIRWAY_SOME_FLAG")));
  EXPECT_THAT(Parse({"--version"}).outcome.output, testing::StartsWith("fairway test 0."));
}

TEST(ConfigTest, DurationsAndSizes) {
  EXPECT_EQ(*ParseDuration("1.5"), milliseconds(1500));
  EXPECT_EQ(*ParseDuration("2h"), milliseconds(7200000));
  EXPECT_FALSE(ParseDuration("").ok());
  EXPECT_FALSE(ParseDuration("-1s").ok());
  EXPECT_FALSE(ParseDuration("1d").ok());
  EXPECT_FALSE(ParseDuration("inf").ok());
  EXPECT_EQ(FormatDuration(milliseconds(1500)), "1500ms");
  EXPECT_EQ(*ParseBytes("1.5K"), 1536);
  EXPECT_FALSE(ParseBytes("1e30").ok());
  EXPECT_FALSE(ParseBytes("5 MiB").ok());
}

}  // namespace
}  // namespace fairway
