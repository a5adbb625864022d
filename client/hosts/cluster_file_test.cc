// SPDX-License-Identifier: Apache-2.0
#include "client/hosts/cluster_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kHead = "package = 'p.tar.gz'\n[controller]\nssh = 'root@10.0.0.1'\n";
constexpr std::string_view kWorker = "[[worker]]\nname = 'w0'\nssh = '10.0.0.2'\n";

absl::StatusOr<ClusterFile> Parse(std::string_view text) { return ParseCluster(text, "/here"); }

std::string Fault(std::string_view text) { return Text(Parse(text).status()); }

TEST(ClusterFileTest, ReadsHostsAndTheirSettings) {
  const auto file = *Parse(
      "package = 'p.tar.gz'\nplugin = '/there/plugin.so'\nfolder = '~/fw'\nsudo = true\n"
      "[controller]\nssh = 'head'\naddress = '10.0.0.1'\n"
      "[[worker]]\nname = 'w0'\nssh = 'admin@10.0.0.2'\nisland = 'a'\nsettings = { devices = 4 }\n"
      "[[worker]]\nname = 'w1'\nssh = 'ssh://10.0.0.3'\nisland = 'a'\n"
      "[[worker]]\nname = 'w2'\nssh = '10.0.0.3'\n"
      "[settings.worker]\ndevices = 2\npreload = ['a.so', 'b.so']\n"
      "[settings.controller]\nlog-level = \"debug\"\n");
  EXPECT_EQ(file.package, "/here/p.tar.gz");
  EXPECT_EQ(file.plugin, "/there/plugin.so");
  EXPECT_TRUE(file.sudo);
  EXPECT_EQ(file.controller.address, "10.0.0.1");
  EXPECT_EQ(file.workers[0].address, "10.0.0.2");
  EXPECT_EQ(file.workers[1].address, "10.0.0.3");
  EXPECT_EQ(file.workers[2].island, "w2");
  EXPECT_THAT(file.Islands(), ElementsAre("a", "w2"));
  EXPECT_EQ(file.WorkersOf("a"), 2);
  EXPECT_THAT(ControllerSettings(file, "/f"), HasSubstr("\nlog-level = 'debug'\n"));
  EXPECT_EQ(WorkerSettings(file, file.workers[0], "/f", "10.0.0.1:29002", "/f/plugin.so"),
            "[worker]\nname = 'w0'\nisland = 'a'\nisland-workers = 2\n"
            "controller = '10.0.0.1:29002'\ntls-ca = '/f/workers/w0/ca.pem'\n"
            "tls-certificate = '/f/workers/w0/worker.pem'\ntls-key = '/f/workers/w0/worker.key'\n"
            "data-bind = '10.0.0.2:0'\ndevices = 4\nplugin = '/f/plugin.so'\n"
            "preload = [ 'a.so', 'b.so' ]\n");
}

TEST(ClusterFileTest, SaysWhatIsMissingOrWrong) {
  const std::string head(kHead);
  const std::string all = head + std::string(kWorker);
  ASSERT_TRUE(Parse(all).ok());
  EXPECT_THAT(Fault("package ="), HasSubstr("1: "));
  EXPECT_THAT(Fault(""), HasSubstr("lacks package"));
  EXPECT_THAT(Fault("package = 'p'"), HasSubstr("lacks the table [controller]"));
  EXPECT_THAT(Fault(kHead), HasSubstr("[[worker]]"));
  EXPECT_THAT(Fault(head + "[[worker]]\nssh = '10.0.0.2'\n"), HasSubstr("takes name"));
  EXPECT_THAT(Fault(head + "[[worker]]\nname = 'w0'\n"), HasSubstr("worker w0 lacks ssh"));
  EXPECT_THAT(Fault(head + "[[worker]]\nname = 'w0'\nssh = 'far'\n"),
              HasSubstr("4: worker w0 lacks address"));
  EXPECT_THAT(Fault(all + std::string(kWorker)), HasSubstr("two workers have the name w0"));
  EXPECT_EQ(Fault(all + "iland = 'a'\n"), "7: unknown name worker.iland; did you mean island?");
  EXPECT_EQ(Fault("packages = 1\n" + all), "1: unknown name packages; did you mean package?");
  EXPECT_EQ(Fault("sudo = 'yes'\n" + all), "1: sudo is neither true nor false");
  EXPECT_EQ(Fault(all + "settings = { tls-key = 'x' }\n"),
            "7: settings.tls-key: `fairway cluster` itself sets it: leave it out");
  EXPECT_THAT(Fault(all + "[settings.wroker]\n"), HasSubstr("did you mean"));
}

TEST(ClusterFileTest, TakesNothingThatAShellWouldRead) {
  for (const std::string bad : {"-oProxyCommand=x", "a b", "a;b", "$(x)", "a'b", ""}) {
    EXPECT_FALSE(Parse(fmt::format("package = 'p'\n[controller]\nssh = \"{}\"\naddress = "
                                   "'10.0.0.1'\n{}",
                                   bad, kWorker))
                     .ok())
        << bad;
    EXPECT_FALSE(
        Parse(fmt::format("{}[[worker]]\nname = \"{}\"\nssh = '10.0.0.2'\n", kHead, bad)).ok())
        << bad;
    if (bad.empty()) continue;
    EXPECT_FALSE(Parse(fmt::format("folder = \"{}\"\n{}{}", bad, kHead, kWorker)).ok()) << bad;
  }
  for (const std::string bad : {"/", "relative", "/a/../b", "/with space", "~", "~other/x", "/a'"})
    EXPECT_FALSE(Parse(fmt::format("folder = \"{}\"\n{}{}", bad, kHead, kWorker)).ok()) << bad;
}

TEST(ClusterFileTest, ADaemonHasItsDrainLimitToEndAndAWhile) {
  using std::chrono::seconds;
  const auto limit = [](const std::string& drain) {
    return EndLimit({.name = "w0", .settings = {{"drain-limit", drain}}});
  };
  EXPECT_EQ(EndLimit({.name = "w0"}), seconds(60));
  EXPECT_EQ(limit("'5m'"), seconds(350));
  EXPECT_EQ(limit("\"1500ms\""), seconds(52));
  EXPECT_EQ(limit("90"), seconds(140));
  EXPECT_EQ(limit("'soon'"), seconds(60));
}

}  // namespace
}  // namespace fairway
