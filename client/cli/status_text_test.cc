// SPDX-License-Identifier: Apache-2.0
#include "client/cli/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace fairway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::GetStatusResponse Example() {
  v1::GetStatusResponse status;
  status.set_version("0.1.0");
  status.set_host("host-a");
  status.set_controller_pid(42);
  status.set_uptime_ms(61000);
  status.set_http_address("127.0.0.1:29001");
  auto* island = status.add_islands();
  island->set_name("island0");
  island->set_up(true);
  island->set_gangs_launched(uint64_t{1} << 60);
  auto* executor = status.add_executors();
  executor->set_worker("w0");
  executor->set_island("island0");
  executor->set_platform("cpu");
  executor->set_supervisor_connected(true);
  executor->set_last_error(
      "killed by signal 9 (pid 7); the last lines of its log:\n  last log line");
  for (int i = 0; i < 2; ++i) {
    auto* device = executor->add_devices();
    device->set_memory_used(1 << 20);
    device->set_memory_limit(4 << 20);
  }
  status.mutable_counts()->set_sessions(3);
  return status;
}

TEST(StatusTextTest, NamesIslandsExecutorsMemoryAndTheFirstLineOfTheLastError) {
  const std::string text = StatusText(Example());
  EXPECT_THAT(text, HasSubstr("controller 0.1.0 on host-a (pid 42), up for 1 min 1 s\n"));
  EXPECT_THAT(text, HasSubstr("metrics http://127.0.0.1:29001/metrics\n"));
  EXPECT_THAT(text, HasSubstr("island0 up: "));
  EXPECT_THAT(
      text, HasSubstr("w0           down  2 cpu devices, memory 2.0 MiB (4.0 MiB each at most)\n"));
  EXPECT_THAT(text, HasSubstr("lost: killed by signal 9 (pid 7); see `fairway logs w0`\n"));
  EXPECT_THAT(text, Not(HasSubstr("last log line")));
  EXPECT_THAT(text, HasSubstr("3 sessions, "));
  EXPECT_THAT(StatusText({}), HasSubstr("no worker has registered"));
}

TEST(StatusTextTest, TheExecutorThatAnIslandWaitsForIsNamedAndWideTellsOfEachLink) {
  v1::GetStatusResponse status = Example();
  EXPECT_THAT(StatusText(status, true), Not(HasSubstr("round trip"))) << "it is down";
  v1::Executor* executor = status.mutable_executors(0);
  executor->set_up(true);
  EXPECT_THAT(StatusText(status, true), HasSubstr("round trip not known yet; 0 commands (0) not"));
  executor->set_open_commands(12);
  executor->set_open_command_bytes(2048);
  executor->set_still_ms(2300);
  executor->set_round_trip_us(420);
  executor->set_links_resumed(3);
  EXPECT_THAT(StatusText(status), Not(HasSubstr("waits for")));
  status.mutable_islands(0)->set_lagging_worker("w0");
  EXPECT_THAT(
      StatusText(status),
      HasSubstr("  waits for w0: it has acknowledged none of its 12 commands for 2.3 s; see "
                "`fairway logs w0`\n"));
  EXPECT_THAT(StatusText(status), Not(HasSubstr("round trip")));
  EXPECT_THAT(StatusText(status, true),
              HasSubstr("    round trip 0.42 ms; 12 commands (2.0 KiB) not acknowledged; 3 "
                        "connections resumed\n"));
}

TEST(StatusTextTest, ACordonSaysSinceWhenAndByWhom) {
  v1::GetStatusResponse status = Example();
  EXPECT_THAT(StatusText(status), Not(HasSubstr("cordoned")));
  v1::Island* const island = status.mutable_islands(0);
  EXPECT_EQ(StateText(*island), "up");
  island->set_cordoned_by("token 3 (operator)");
  island->set_cordoned_s(1764428617);
  EXPECT_EQ(StateText(*island), "up, cordoned");
  EXPECT_THAT(StatusText(status), HasSubstr("\n  takes no new sessions: cordoned since 2025-11-29 "
                                            "15:03:37 UTC by token 3 (operator)\n"));
  island->set_drained(true);
  EXPECT_EQ(StateText(*island), "up, drained");
  EXPECT_THAT(StatusText(status),
              HasSubstr("\n  drained; cordoned since 2025-11-29 15:03:37 UTC "));
}

TEST(StatusTextTest, CordonedIslandsThatAreNotKnownAreShown) {
  v1::GetStatusResponse status = Example();
  v1::Island* const absent = status.add_absent_islands();
  absent->set_name("island7");
  absent->set_absent(true);
  absent->set_cordoned_by("token 3 (operator)");
  absent->set_cordoned_s(1764428617);
  EXPECT_THAT(StatusText(status), HasSubstr("\nisland7 absent, cordoned since 2025-11-29 15:03:37 "
                                            "UTC by token 3 (operator)\n"));
}

TEST(StatusTextTest, WideShowsTheTreeOfRelays) {
  v1::GetStatusResponse status = Example();
  status.mutable_executors(0)->set_up(true);
  status.mutable_executors(0)->set_log_from("w0");
  auto* relay = status.add_relays();
  relay->set_worker("w0");
  relay->set_island("island0");
  relay->set_above("w4");
  relay->set_executors(3);
  relay->set_messages(7);
  relay->set_bytes(2048);
  relay = status.add_relays();
  relay->set_worker("w4");
  relay->set_island("island0");
  relay->set_relays(2);
  relay = status.add_relays();
  relay->set_worker("w5");
  relay->set_island("island0");
  const std::string text = StatusText(status, true);
  EXPECT_THAT(text, HasSubstr("  relay of w0: below that of w4, above 3 executors and 0 relays; 7 "
                              "messages, 2.0 KiB\n"));
  EXPECT_THAT(text, HasSubstr("  relay of w4: below the controller, above 0 executors and 2 "));
  EXPECT_THAT(text, HasSubstr("  relay of w5: not needed\n"));
  EXPECT_THAT(text, HasSubstr("connections resumed; commands come from the relay of w0\n"));
  EXPECT_THAT(StatusText(status), Not(HasSubstr("relay")));
}

TEST(StatusTextTest, AControllerOfAnotherVersionIsNamed) {
  EXPECT_EQ(VersionNote("0.1.0", "0.1.0"), "");
  EXPECT_THAT(VersionNote("0.1.0", "0.2.0"),
              HasSubstr("this command is version 0.1.0, the controller 0.2.0: use "));
}

TEST(StatusTextTest, JsonHasAllFieldsAndNumbersAsNumbers) {
  const auto json = nlohmann::json::parse(StatusJson(Example()));
  EXPECT_EQ(json["islands"][0]["gangs_launched"], uint64_t{1} << 60);
  EXPECT_EQ(json["islands"][0]["up"], true);
  EXPECT_EQ(json["executors"][0]["devices"][1]["memory_limit"], 4 << 20);
  EXPECT_EQ(json["executors"][0]["up"], false);
  EXPECT_EQ(json["counts"]["sessions"], 3);
  EXPECT_EQ(json["counts"]["arrays"], 0);
  EXPECT_EQ(json["log_dir"], "");
}

TEST(StatusTextTest, Bytes) {
  EXPECT_EQ(BytesText(0), "0");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(int64_t{5} << 40), "5.0 TiB");
}

}  // namespace
}  // namespace fairway
