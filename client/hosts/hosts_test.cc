// SPDX-License-Identifier: Apache-2.0
// What hosts say, and what is made of it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/hosts/controller_host.h"
#include "client/hosts/facts.h"
#include "client/hosts/host.h"
#include "client/hosts/local_file.h"
#include "client/hosts/ssh.h"
#include "identity/certificates.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kProbe =
    "user=root\nsystem=Linux\nmachine=x86_64\nfolder=/opt/fairway\nfree_kb=102400\n"
    "current=0.1.0-a\nhas=releases/0.1.0-a\nhas=plugins/b\n"
    "daemon=controller yes 0.1.0-a 0f\ndaemon=w0 no - -\n";

TEST(FactsTest, AreReadFromWhatTheProbeSays) {
  const Facts facts = *ParseFacts(kProbe);
  EXPECT_EQ(facts.folder, "/opt/fairway");
  EXPECT_EQ(facts.free_bytes, 100 << 20);
  EXPECT_THAT(facts.has, ElementsAre("plugins/b", "releases/0.1.0-a"));
  EXPECT_TRUE(facts.Of("controller").made);
  EXPECT_EQ(facts.Of("controller").release, "0.1.0-a");
  EXPECT_EQ(facts.Of("controller").settings, "0f");
  EXPECT_FALSE(facts.Of("w0").made);
  EXPECT_EQ(facts.Of("w0").release, "");
  EXPECT_FALSE(facts.Of("w7").made);
}

TEST(FactsTest, OfAHostThatAnswersSomethingElseAreRefused) {
  EXPECT_FALSE(ParseFacts("").ok());
  EXPECT_FALSE(ParseFacts("This account is not available.\n").ok());
  EXPECT_FALSE(ParseFacts("machine=x\nfolder=/opt\ndaemon=w0 yes\n").ok());
  EXPECT_FALSE(ParseFacts("machine=x\nfolder=/opt\nfree_kb=many\n").ok());
  EXPECT_THAT(Text(ParseFacts("machine=x\nfolder=/home/a b/.local/fairway\n").status()),
              HasSubstr("name another one"));
}

TEST(FactsTest, WithOddCharactersAreRefused) {
  for (const char* const more :
       {"current=a;b\n", "has=releases/$(x)\n", "machine=\x1b[2J\n",
        "user=a\x9b"
        "b\n",
        "daemon=w0 yes `x` -\n", "unwritable=/op't\n", "controller_user=a\tb\n"}) {
    const auto facts = ParseFacts(std::string(kProbe) + more);
    EXPECT_THAT(Text(facts.status()), HasSubstr("has other characters than letters")) << more;
  }
}

TEST(FactsTest, AWorkerHasJoinedWhileItsCertificateCounts) {
  const Certified authority = *MakeAuthority(std::chrono::hours(1));
  const auto facts = [&](bool made, const std::string& certificate) {
    std::string line = certificate;
    std::ranges::replace(line, '\n', '|');
    return ParseFacts(fmt::format("{}daemon=w0 {} - -\ncertificate=w0 {}\ncertificate=w7 x\n",
                                  kProbe, made ? "yes" : "no", line))
        ->Of("w0");
  };
  const auto made = [&](int seconds) {
    return MakeCertificate(authority, {Role::kWorker, "w0"}, std::chrono::seconds(seconds))
        ->certificate;
  };
  const std::string valid = made(3600), over = made(-5);
  EXPECT_EQ(facts(true, valid).certificate, valid);
  EXPECT_TRUE(facts(true, valid).HasJoined());
  EXPECT_FALSE(facts(false, valid).HasJoined());  // its key is missing
  EXPECT_FALSE(facts(true, over).HasJoined());
  EXPECT_TRUE(facts(true, over).HasExpired());
  EXPECT_FALSE(facts(true, valid).HasExpired());
  EXPECT_FALSE(facts(true, "no certificate").HasJoined());
  EXPECT_FALSE(facts(true, "no certificate").HasExpired());
}

TEST(FactsTest, AStopWaitsForTheLimitInForceAndForTheOneOfTheFile) {
  using std::chrono::seconds;
  const Facts facts = *ParseFacts(std::string(kProbe) + "limit=w0 650\n");
  EXPECT_EQ(facts.Of("w0").limit, seconds(650));
  EXPECT_EQ(facts.Of("controller").limit, seconds(0));
  Daemon quick, slow;
  quick.settings["drain-limit"] = "'5s'";
  slow.settings["drain-limit"] = "'20m'";
  EXPECT_EQ(StopLimit(facts.Of("w0"), quick), seconds(650 + 180));
  EXPECT_EQ(StopLimit(facts.Of("w0"), slow), seconds(1250 + 180));
  for (const char* const bad : {"w0", "w0 ", "w0 -1", "w0 5s", "w0 99999999999", "w7 5", ""})
    EXPECT_FALSE(ParseFacts(fmt::format("{}limit={}\n", kProbe, bad)).ok()) << bad;
}

TEST(FactsTest, WhatALoginSaysIsNoAnswer) {
  EXPECT_FALSE(Says("Welcome! a=b\n", "ended"));
  EXPECT_TRUE(Says("Welcome! a=b\nended=yes\n...", "ended"));
  EXPECT_TRUE(ParseFacts("Welcome!\n" + std::string(kProbe)).ok());
  EXPECT_TRUE(
      ParseState("Welcome!\n{\"executors\": [], \"islands\": [], \"link_address\": \"h:1\"}").ok());
}

TEST(FactsTest, SayWhatStopsAPackage) {
  const Package package{.path = "p", .release = "r", .machine = "x86_64", .bytes = 1};
  const auto fault = [&](const std::string& more, int64_t bytes = 1) {
    return Text(CheckFacts(*ParseFacts(std::string(kProbe) + more), package, bytes));
  };
  EXPECT_EQ(fault(""), "");
  EXPECT_THAT(fault("machine=aarch64\n"), StartsWith("the package is for Linux on x86_64"));
  EXPECT_THAT(fault("system=Darwin\n"), HasSubstr("has Darwin on x86_64"));
  EXPECT_THAT(fault("lacks=tar\nlacks=flock\n"), StartsWith("it lacks the programs tar, flock"));
  EXPECT_THAT(fault("unwritable=/opt\n"), StartsWith("user root can make nothing in /opt"));
  EXPECT_THAT(fault("hidden=yes\n"), StartsWith("services do not see home"));
  EXPECT_EQ(fault("", 84 << 20), "");
  EXPECT_THAT(fault("", 85 << 20), StartsWith("/opt/fairway has 100 MiB free, and what is to be "
                                              "copied takes 101"));
  EXPECT_EQ(fault("free_kb=0\n", 0), "");
}

TEST(SshTest, ExplainsWhatSshSays) {
  EXPECT_THAT(
      ExplainSsh("h1",
                 "@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\n...\n"
                 "Host key verification failed.\n"),
      AllOf(HasSubstr("`ssh-keygen -R h1`"), HasSubstr("(ssh: Host key verification failed.)")));
  EXPECT_THAT(ExplainSsh("h1", "Host key verification failed.\r\n"),
              HasSubstr("type `ssh h1` once"));
  EXPECT_THAT(ExplainSsh("h1", "a@h1: Permission denied (publickey).\n"),
              HasSubstr("does not let this user in"));
  EXPECT_THAT(ExplainSsh("h1", "ssh: connect to host h1 port 22: Connection timed out\n"),
              HasSubstr("does not answer"));
  EXPECT_EQ(ExplainSsh("h1", "something new\n"), "ssh cannot reach it: something new");
}

TEST(SshTest, WhatAHostSaysDoesNotControlTheTerminal) {
  EXPECT_EQ(LastLine("one\n\x1b[2Jtwo\a \n\n"), "?[2Jtwo?");
  EXPECT_EQ(LastLine("\n \n"), "it said nothing");
  EXPECT_LT(LastLine(std::string(100000, 'x')).size(), 600u);
}

TEST(HostTest, QuotesForTheShell) {
  EXPECT_EQ(Quoted("a b"), "'a b'");
  EXPECT_EQ(Quoted("it's"), R"('it'\''s')");
}

TEST(HostTest, TheReasonIsTheFirstErrorOfALog) {
  EXPECT_EQ(ReasonIn("ended=yes\n{\"level\":\"info\",\"msg\":\"a\"}\n"
                     "{\"level\":\"error\",\"msg\":\"b\"}\n{\"level\":\"error\",\"msg\":\"c\"}\n"),
            "b");
  EXPECT_EQ(ReasonIn("{\"level\":\"info\",\"msg\":\"a\"}\n"), "a");
  EXPECT_EQ(ReasonIn("fairway-worker: no such flag\n"), "fairway-worker: no such flag");
  EXPECT_EQ(ReasonIn("{\"level\":3,\"msg\":\"a\"}\n"), "a");
  EXPECT_EQ(ReasonIn("ended=yes\n"), "its log is empty");
}

TEST(ControllerHostTest, ReadsTokens) {
  const auto tokens = *ParseTokens(
      "token=w0\nfairway join 10.0.0.1:29000 --ca-hash sha256:ab,sha256:cd --to w0 ...\nfw_12\n"
      "END\ntoken=w1\nfairway join 10.0.0.1:29000 --ca-hash sha256:ab --to w1 ...\nfw_34\nEND\n");
  EXPECT_EQ(tokens.at("w0").ca_hash, "sha256:ab,sha256:cd");
  EXPECT_EQ(tokens.at("w1").token, "fw_34");
  EXPECT_FALSE(ParseTokens("token=w0\nfw_12\n").ok());
  EXPECT_FALSE(ParseTokens("token=w0\n --ca-hash sha256:$(x) \nfw_12\n").ok());
}

TEST(ControllerHostTest, ReadsTheStateOfACluster) {
  const auto state = *ParseState(
      R"({"version": "0.1.0", "link_address": "10.0.0.1:29002",
          "islands": [{"name": "a", "up": true}, {"name": "b", "up": false}],
          "executors": [{"worker": "w0", "island": "a", "up": true,
                         "incarnation": 17682870028772152179, "devices": [{}, {}]},
                        {"worker": "w1", "island": "b", "up": false, "last_error": "lost"}]})");
  EXPECT_EQ(state.link, "10.0.0.1:29002");
  EXPECT_TRUE(state.Of("w0").up && state.Of("w0").island_up);
  EXPECT_EQ(state.Of("w0").incarnation, 17682870028772152179u);
  EXPECT_EQ(state.Of("w0").devices, 2);
  EXPECT_FALSE(state.Of("w1").up || state.Of("w1").island_up || state.Of("w2").up);
  EXPECT_EQ(state.Of("w1").last_error, "lost");
  for (const char* const bad : {"", "[]", "{}", R"({"executors": [], "islands": []})",
                                R"({"executors": [], "islands": [], "link_address": "a'\n:1"})"})
    EXPECT_FALSE(ParseState(bad).ok()) << bad;
}

TEST(LocalFileTest, APackageIsNamedByItsVersionAndItsBytes) {
  const std::string folder = ::testing::TempDir();
  const auto write = [&](const std::string& name, std::string_view bytes) {
    std::ofstream(folder + name, std::ios::binary) << bytes;
    return folder + name;
  };
  using std::string_view_literals::operator""sv;
  const auto package =
      ReadPackage(write("fairway-0.1.0-linux-x86_64.tar.gz", "\x1f\x8b...\x01\x02\x00\x00"sv));
  ASSERT_TRUE(package.ok()) << package.status();
  EXPECT_EQ(package->release, "0.1.0-" + Sha256("\x1f\x8b...\x01\x02\x00\x00"sv).substr(0, 12));
  EXPECT_EQ(package->machine, "x86_64");
  EXPECT_EQ(package->bytes, 0x201);
  EXPECT_FALSE(ReadPackage(write("fairway-0.1.0-linux-x86_64.tar.xz", "\x1f\x8b....")).ok());
  EXPECT_FALSE(ReadPackage(write("fairway-0.2.0-linux-x86_64.tar.gz", "no gzip")).ok());
  EXPECT_FALSE(ReadPackage(write("fairway-$(x)-linux-x86_64.tar.gz", "\x1f\x8b....")).ok());
  EXPECT_TRUE(absl::IsNotFound(ReadPackage(folder + "fairway-9-linux-x86_64.tar.gz").status()));
  EXPECT_EQ(ReadPlugin("")->digits, "");
  // A file that is written to, or replaced by the same bytes, is another one.
  EXPECT_TRUE(CheckUnchanged(package->path, package->looks).ok());
  const std::string copy = write("copy", "\x1f\x8b...\x01\x02\x00\x00"sv);
  std::filesystem::rename(copy, package->path);
  EXPECT_THAT(Text(CheckUnchanged(package->path, package->looks)),
              HasSubstr("was changed while it was copied"));
  EXPECT_TRUE(absl::IsNotFound(ReadPlugin(folder + "nothing.so").status()));
}

}  // namespace
}  // namespace fairway
