// SPDX-License-Identifier: Apache-2.0
#include "client/cli/description.h"

#include <gtest/gtest.h>

#include "client/cli/listing_for_test.h"

namespace fairway {
namespace {

TEST(DescriptionTest, AnIslandHasItsWorkersDevicesAndRelays) {
  v1::GetStatusResponse status = StatusForTest();
  auto* relay = status.add_relays();
  relay->set_worker("w0");
  relay->set_island("island0");
  relay->set_executors(2);
  relay->set_bytes(2048);
  status.add_relays()->set_island("podé");
  const Description island = DescribeIsland(status, status.islands(0));
  EXPECT_EQ("\n" + DescriptionText(island), R"(
name:                       island0
state:                      up
cordoned:                   no
epoch:                      4
sessions:                   5
gangs launched:             12
nodes in flight:            3
nodes prepared:             2
nodes that wait for memory: 1
nodes given up for memory:  6
waits for worker:           w1

workers:
  NAME  ISLAND   STATE            DEVICES  PLATFORM  MEMORY     LIMIT-EACH  KIND  SUPERVISOR  ROUND-TRIP  OPEN-COMMANDS  RESUMED  LOST-BEFORE
  w0    island0  up               2        cpu       3.0 MiB    4.0 MiB     host  connected   0.42 ms     0              3        -
  w1    island0  stalled for 5 s  1        cpu       512.0 KiB  none        host  connected   -           9              0        -

devices:
  NAME  ISLAND   STATE            MEMORY     LIMIT    ID  PLATFORM  KIND
  w0/0  island0  up               1.0 MiB    4.0 MiB  0   cpu       host
  w0/1  island0  up               2.0 MiB    4.0 MiB  1   cpu       host
  w1/0  island0  stalled for 5 s  512.0 KiB  none     2   cpu       host

relays:
  WORKER  BELOW       EXECUTORS  RELAYS  MESSAGES  BYTES
  w0      controller  2          0       0         2.0 KiB
)");
  const Json json = DescriptionJson(island);
  EXPECT_EQ(json["kind"], "island");
  EXPECT_EQ(json["item"]["gangs_launched"], 12);
  EXPECT_EQ(json["workers"].size(), 2u);
  EXPECT_EQ(json["devices"][2]["name"], "w1/0");
  EXPECT_EQ(json["relays"].size(), 1u);
}

TEST(DescriptionTest, AWorkerHasItsLinkAndWhyItWasLost) {
  const v1::GetStatusResponse status = StatusForTest();
  EXPECT_EQ("\n" + DescriptionText(DescribeWorker(status, status.executors(1))), R"(
name:                      w1
island:                    island0
executor:                  stalled for 5 s
incarnation:               2748
supervisor:                connected
runtime:                   pjrt
platform:                  cpu
platform version:          1.2
device kind:               host
data port:                 10.0.0.1:4711
link protocol:             -
round trip:                not known yet
commands come from:        the relay of w0
commands not acknowledged: 9 (2.0 KiB); none acknowledged for 2.3 s
connections resumed:       0
fetches:                   8
lost before:               never

devices:
  NAME  ISLAND   STATE            MEMORY     LIMIT  ID  PLATFORM  KIND
  w1/0  island0  stalled for 5 s  512.0 KiB  none   2   cpu       host
)");
  EXPECT_EQ("\n" + DescriptionText(DescribeWorker(status, status.executors(2))), R"(
name:                      w?2
island:                    podé
executor:                  down
incarnation:               0
supervisor:                not connected
runtime:                   -
platform:                  cuda
platform version:          -
device kind:               H100
data port:                 -
link protocol:             -
round trip:                not known yet
commands come from:        the controller
commands not acknowledged: 0 (0)
connections resumed:       0
fetches:                   0
lost before:               killed by signal 9 (pid 7); the last lines of its log:
                             last line

devices:
  NAME   ISLAND  STATE  MEMORY  LIMIT  ID  PLATFORM  KIND
  w?2/0  podé    down   0       none   3   cuda      H100
)");
}

TEST(DescriptionTest, AWorkerForPrograms) {
  const v1::GetStatusResponse status = StatusForTest();
  EXPECT_EQ("\n" + YamlText(DescriptionJson(DescribeWorker(status, status.executors(1)))), R"(
kind: worker
item:
  id: 0
  worker: w1
  island: island0
  up: true
  incarnation: 2748
  platform: cpu
  device_kind: host
  devices:
    - id: 2
      local_ordinal: 0
      memory_used: 524288
      memory_limit: 0
  last_error: ""
  supervisor_connected: true
  executor_fetches: 8
  stalled_ms: 5000
  open_commands: 9
  open_command_bytes: 2048
  still_ms: 2300
  round_trip_us: 0
  links_resumed: 0
  log_from: w0
  runtime: pjrt
  platform_version: "1.2"
  data_endpoint: "10.0.0.1:4711"
  link_protocol: 0
devices:
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
relays: []
)");
}

}  // namespace
}  // namespace fairway
