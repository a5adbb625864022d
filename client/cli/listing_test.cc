// SPDX-License-Identifier: Apache-2.0
#include "client/cli/listing.h"

#include <gtest/gtest.h>

#include "client/cli/listing_for_test.h"

namespace fairway {
namespace {

TEST(ListingTest, Islands) {
  const Listing islands = IslandListing(StatusForTest());
  EXPECT_EQ("\n" + ListingText(islands, false), R"(
NAME     STATE          WORKERS  DEVICES  MEMORY   LAUNCHED  IN-FLIGHT  PREPARED  QUEUED
island0  up             2/2      3        3.5 MiB  12        3          2         1
podé     down, drained  0/1      1        0        0         0          0         0
)");
  EXPECT_EQ("\n" + ListingText(islands, true), R"(
NAME     STATE          WORKERS  DEVICES  MEMORY   LAUNCHED  IN-FLIGHT  PREPARED  QUEUED  EPOCH  WAITS-FOR  CORDONED
island0  up             2/2      3        3.5 MiB  12        3          2         1       4      w1         -
podé     down, drained  0/1      1        0        0         0          0         0       0      -          since 2025-11-29 15:03:37 UTC by token 3 (operator)
)");
}

TEST(ListingTest, CordonedIslandsThatAreNotKnownComeLast) {
  v1::GetStatusResponse status;
  status.add_islands()->set_name("island0");
  v1::Island* const absent = status.add_absent_islands();
  absent->set_name("island7");
  absent->set_absent(true);
  absent->set_cordoned_by("token 3 (operator)");
  absent->set_cordoned_s(1764428617);
  EXPECT_EQ("\n" + ListingText(IslandListing(status), true), R"(
NAME     STATE             WORKERS  DEVICES  MEMORY  LAUNCHED  IN-FLIGHT  PREPARED  QUEUED  EPOCH  WAITS-FOR  CORDONED
island0  down              0/0      0        0       0         0          0         0       0      -          -
island7  absent, cordoned  -        -        -       -         -          -         -       -      -          since 2025-11-29 15:03:37 UTC by token 3 (operator)
)");
}

TEST(ListingTest, IslandsForPrograms) {
  const Json islands = ListingJson(IslandListing(StatusForTest()));
  EXPECT_EQ("\n" + YamlText(islands), R"yaml(
kind: islands
items:
  - id: 0
    name: island0
    up: true
    epoch: 4
    gangs_launched: 12
    queued: 1
    prepared: 2
    in_flight: 3
    lagging_worker: w1
    sessions: 5
    nodes_given_up: 6
    cordoned_by: ""
    cordoned_s: 0
    drained: false
    absent: false
  - id: 1
    name: "podé"
    up: false
    epoch: 0
    gangs_launched: 0
    queued: 0
    prepared: 0
    in_flight: 0
    lagging_worker: ""
    sessions: 0
    nodes_given_up: 0
    cordoned_by: "token 3 (operator)"
    cordoned_s: 1764428617
    drained: true
    absent: false
left_out: 0
)yaml");
  EXPECT_EQ(Json::parse(JsonText(islands)), islands);
  EXPECT_EQ(JsonText(ListingJson(IslandListing({}))),
            "{\n  \"kind\": \"islands\",\n  \"items\": [],\n  \"left_out\": 0\n}\n");
}

TEST(ListingTest, Workers) {
  const Listing workers = WorkerListing(StatusForTest());
  EXPECT_EQ("\n" + ListingText(workers, false), R"(
NAME  ISLAND   STATE            DEVICES  PLATFORM  MEMORY     LIMIT-EACH
w0    island0  up               2        cpu       3.0 MiB    4.0 MiB
w1    island0  stalled for 5 s  1        cpu       512.0 KiB  none
w?2   podé     down             1        cuda      0          none
)");
  EXPECT_EQ("\n" + ListingText(WorkerListing(StatusForTest(), "island0"), true), R"(
NAME  ISLAND   STATE            DEVICES  PLATFORM  MEMORY     LIMIT-EACH  KIND  SUPERVISOR  ROUND-TRIP  OPEN-COMMANDS  RESUMED  LOST-BEFORE
w0    island0  up               2        cpu       3.0 MiB    4.0 MiB     host  connected   0.42 ms     0              3        -
w1    island0  stalled for 5 s  1        cpu       512.0 KiB  none        host  connected   -           9              0        -
)");
  EXPECT_TRUE(ListingText(workers, true).ends_with("killed by signal 9 (pid 7)\n"));
}

TEST(ListingTest, WorkersForPrograms) {
  const Json workers = ListingJson(WorkerListing(StatusForTest()));
  ASSERT_EQ(workers["items"].size(), 3u);
  EXPECT_EQ(workers["items"][0]["devices"][1]["memory_used"], 2 << 20);
  EXPECT_EQ(workers["items"][2]["worker"],
            "w\x1b"
            "2");
  EXPECT_EQ(workers["items"][2]["last_error"],
            "killed by signal 9 (pid 7); the last lines of its log:\n  last line");
}

TEST(ListingTest, Devices) {
  EXPECT_EQ("\n" + ListingText(DeviceListing(StatusForTest()), true), R"(
NAME   ISLAND   STATE            MEMORY     LIMIT    ID  PLATFORM  KIND
w0/0   island0  up               1.0 MiB    4.0 MiB  0   cpu       host
w0/1   island0  up               2.0 MiB    4.0 MiB  1   cpu       host
w1/0   island0  stalled for 5 s  512.0 KiB  none     2   cpu       host
w?2/0  podé     down             0          none     3   cuda      H100
)");
  EXPECT_EQ("\n" + ListingText(DeviceListing(StatusForTest(), "island0", "w1"), false), R"(
NAME  ISLAND   STATE            MEMORY     LIMIT
w1/0  island0  stalled for 5 s  512.0 KiB  none
)");
  EXPECT_EQ("\n" + YamlText(ListingJson(DeviceListing(StatusForTest(), "", "w1"))), R"(
kind: devices
items:
  - name: w1/0
    worker: w1
    island: island0
    up: true
    platform: cpu
    device_kind: host
    id: 2
    local_ordinal: 0
    memory_used: 524288
    memory_limit: 0
left_out: 0
)");
}

TEST(ListingTest, AnEmptyListSaysSoAndWhatIsLeftOutIsCounted) {
  EXPECT_EQ(ListingText(IslandListing({}), false), "no islands\n");
  Listing some = WorkerListing(StatusForTest(), "island0");
  some.left_out = 7;
  EXPECT_TRUE(ListingText(some, false).ends_with("\n7 more workers are left out\n"));
  EXPECT_EQ(ListingJson(some)["left_out"], 7);
}

}  // namespace
}  // namespace fairway
