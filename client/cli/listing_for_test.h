// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_CLIENT_CLI_LISTING_FOR_TEST_H_
#define FAIRWAY_CLIENT_CLI_LISTING_FOR_TEST_H_

#include "fairway/v1/admin.pb.h"

namespace fairway {

// Two islands: one of two workers, one of which is stalled; and one that is down.
inline v1::GetStatusResponse StatusForTest() {
  v1::GetStatusResponse status;
  auto* island = status.add_islands();
  island->set_name("island0");
  island->set_up(true);
  island->set_epoch(4);
  island->set_gangs_launched(12);
  island->set_queued(1);
  island->set_prepared(2);
  island->set_in_flight(3);
  island->set_lagging_worker("w1");
  island->set_sessions(5);
  island->set_nodes_given_up(6);
  island = status.add_islands();
  island->set_id(1);
  island->set_name("pod\xc3\xa9");
  island->set_cordoned_by("token 3 (operator)");
  island->set_cordoned_s(1764428617);
  island->set_drained(true);

  auto* executor = status.add_executors();
  executor->set_worker("w0");
  executor->set_island("island0");
  executor->set_up(true);
  executor->set_platform("cpu");
  executor->set_device_kind("host");
  executor->set_supervisor_connected(true);
  executor->set_round_trip_us(420);
  executor->set_links_resumed(3);
  for (int i = 0; i < 2; ++i) {
    auto* device = executor->add_devices();
    device->set_id(i);
    device->set_local_ordinal(i);
    device->set_memory_used((i + 1) << 20);
    device->set_memory_limit(4 << 20);
  }
  executor = status.add_executors();
  executor->set_worker("w1");
  executor->set_island("island0");
  executor->set_up(true);
  executor->set_platform("cpu");
  executor->set_device_kind("host");
  executor->set_supervisor_connected(true);
  executor->set_stalled_ms(5000);
  executor->set_open_commands(9);
  executor->set_open_command_bytes(2048);
  executor->set_still_ms(2300);
  executor->set_incarnation(0xabc);
  executor->set_runtime("pjrt");
  executor->set_platform_version("1.2");
  executor->set_data_endpoint("10.0.0.1:4711");
  executor->set_executor_fetches(8);
  executor->set_log_from("w0");
  auto* device = executor->add_devices();
  device->set_id(2);
  device->set_memory_used(512 << 10);
  executor = status.add_executors();
  executor->set_worker(
      "w\x1b"
      "2");
  executor->set_island("pod\xc3\xa9");
  executor->set_platform("cuda");
  executor->set_device_kind("H100");
  executor->set_last_error("killed by signal 9 (pid 7); the last lines of its log:\n  last line");
  executor->add_devices()->set_id(3);
  return status;
}

}  // namespace fairway

#endif  // FAIRWAY_CLIENT_CLI_LISTING_FOR_TEST_H_
