// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "client/cli/description.h"
#include "client/cli/listing.h"

namespace fairway {
namespace {

v1::ListSessionsResponse Sessions() {
  v1::ListSessionsResponse out;
  v1::ListedSession* row = out.add_sessions();
  row->set_id(7);
  row->set_tenant("red");
  row->set_state("waits for memory");
  row->set_devices(8);
  row->set_arrays(12);
  row->set_programs(1);
  row->set_computations(3);
  row->set_nodes_unfinished(2);
  row->set_device_memory(3 << 20);
  row->set_record_memory(4096);
  row = out.add_sessions();
  row->set_id(10);
  row->set_state("idle");
  return out;
}

v1::ListArraysResponse Arrays() {
  v1::ListArraysResponse out;
  v1::ListedArray* row = out.add_arrays();
  row->set_session(7);
  row->set_handle(uint64_t{1} << 60);
  row->set_tenant("red");
  row->set_type("f32[128,512]");
  row->set_state("ready");
  row->add_islands("island0");
  row->add_islands("island1");
  row->set_shards(4);
  row->set_bytes(256 << 10);
  row = out.add_arrays();
  row->set_session(7);
  row->set_handle(2);
  row->set_type("unknown");
  row->set_state("failed");
  row->set_error("DATA_LOSS:\nw0 is gone");
  return out;
}

v1::ListProgramsResponse Programs() {
  v1::ListProgramsResponse out;
  v1::ListedProgram* row = out.add_programs();
  row->set_session(7);
  row->set_handle(3);
  row->set_tenant("red");
  row->set_kind("computation");
  row->set_name("jit_step");
  row->add_islands("island0");
  row->set_steps(1);
  return out;
}

v1::ListNodesResponse Nodes() {
  v1::ListNodesResponse out;
  const auto add = [&](uint64_t id, const char* kind, const char* state, const char* waits_for) {
    v1::ListedNode* const row = out.add_nodes();
    row->set_id(id);
    row->set_session(7);
    row->set_tenant("red");
    row->set_kind(kind);
    row->set_state(state);
    row->set_name("n" + std::to_string(id));
    row->set_island("island1");
    row->set_bytes(1024);
    row->set_waits_for(waits_for);
    return row;
  };
  add(1, "launch", "launched", "worker w1");
  add(2, "upload", "waiting", "bytes of its client");
  add(3, "move", "queued", "memory")->add_from("island0");
  add(4, "fetch", "queued", "node 3");
  return out;
}

TEST(SessionListingTest, Sessions) {
  EXPECT_EQ("\n" + ListingText(SessionListing(Sessions()), false), R"(
ID  TENANT  STATE             ARRAYS  NODES  MEMORY
7   red     waits for memory  12      2      3.0 MiB
10  -       idle              0       0      0
)");
  EXPECT_EQ("\n" + ListingText(SessionListing(Sessions()), true), R"(
ID  TENANT  STATE             ARRAYS  NODES  MEMORY   DEVICES  COMPUTATIONS  PROGRAMS  RECORDS
7   red     waits for memory  12      2      3.0 MiB  8        3             1         4.0 KiB
10  -       idle              0       0      0        0        0             0         0
)");
  EXPECT_EQ("\n" + YamlText(ListingJson(SessionListing(Sessions()))), R"(
kind: sessions
items:
  - id: 7
    tenant: red
    state: "waits for memory"
    devices: 8
    arrays: 12
    programs: 1
    computations: 3
    nodes_unfinished: 2
    device_memory: 3145728
    record_memory: 4096
  - id: 10
    tenant: ""
    state: idle
    devices: 0
    arrays: 0
    programs: 0
    computations: 0
    nodes_unfinished: 0
    device_memory: 0
    record_memory: 0
left_out: 0
)");
}

TEST(SessionListingTest, Arrays) {
  EXPECT_EQ("\n" + ListingText(ArrayListing(Arrays()), false), R"(
SESSION  HANDLE               TYPE          STATE   SHARDS  ISLANDS          BYTES
7        1152921504606846976  f32[128,512]  ready   4       island0,island1  256.0 KiB
7        2                    unknown       failed  0       -                0
)");
  EXPECT_EQ("\n" + ListingText(ArrayListing(Arrays()), true), R"(
SESSION  HANDLE               TYPE          STATE   SHARDS  ISLANDS          BYTES      TENANT  ERROR
7        1152921504606846976  f32[128,512]  ready   4       island0,island1  256.0 KiB  red     -
7        2                    unknown       failed  0       -                0          -       DATA_LOSS:?w0 is gone
)");
  EXPECT_EQ("\n" + YamlText(ListingJson(ArrayListing(Arrays()))), R"(
kind: arrays
items:
  - session: 7
    handle: 1152921504606846976
    tenant: red
    type: "f32[128,512]"
    state: ready
    islands:
      - island0
      - island1
    shards: 4
    bytes: 262144
    error: ""
  - session: 7
    handle: 2
    tenant: ""
    type: unknown
    state: failed
    islands: []
    shards: 0
    bytes: 0
    error: "DATA_LOSS:\nw0 is gone"
left_out: 0
)");
}

TEST(SessionListingTest, Programs) {
  EXPECT_EQ("\n" + ListingText(ProgramListing(Programs()), true), R"(
SESSION  HANDLE  KIND         NAME      ISLANDS  STEPS  TENANT
7        3       computation  jit_step  island0  1      red
)");
  EXPECT_EQ("\n" + YamlText(ListingJson(ProgramListing(Programs()))), R"(
kind: programs
items:
  - session: 7
    handle: 3
    tenant: red
    kind: computation
    name: jit_step
    islands:
      - island0
    steps: 1
left_out: 0
)");
}

TEST(SessionListingTest, NodesAndTransfers) {
  EXPECT_EQ("\n" + ListingText(NodeListing(Nodes()), true), R"(
NODE  SESSION  KIND    STATE     ISLAND   BYTES    WAITS-FOR            NAME  TENANT
1     7        launch  launched  island1  1.0 KiB  worker w1            n1    red
2     7        upload  waiting   island1  1.0 KiB  bytes of its client  n2    red
3     7        move    queued    island1  1.0 KiB  memory               n3    red
4     7        fetch   queued    island1  1.0 KiB  node 3               n4    red
)");
  v1::ListNodesResponse transfers = Nodes();
  transfers.mutable_nodes()->DeleteSubrange(0, 1);
  EXPECT_EQ("\n" + ListingText(TransferListing(transfers), false), R"(
NODE  SESSION  KIND    STATE    FROM     TO       BYTES    WAITS-FOR
2     7        upload  waiting  client   island1  1.0 KiB  bytes of its client
3     7        move    queued   island0  island1  1.0 KiB  memory
4     7        fetch   queued   island1  client   1.0 KiB  node 3
)");
  EXPECT_EQ("\n" + ListingText(TransferListing(transfers), true), R"(
NODE  SESSION  KIND    STATE    FROM     TO       BYTES    WAITS-FOR            TENANT  NAME
2     7        upload  waiting  client   island1  1.0 KiB  bytes of its client  red     n2
3     7        move    queued   island0  island1  1.0 KiB  memory               red     n3
4     7        fetch   queued   island1  client   1.0 KiB  node 3               red     n4
)");
  transfers.mutable_nodes()->DeleteSubrange(1, 2);
  EXPECT_EQ("\n" + YamlText(ListingJson(TransferListing(transfers))), R"(
kind: transfers
items:
  - id: 2
    session: 7
    tenant: red
    kind: upload
    state: waiting
    name: n2
    island: island1
    from: []
    bytes: 1024
    waits_for: "bytes of its client"
left_out: 0
)");
}

TEST(SessionListingTest, ASessionIsDescribedWithTheFirstOfWhatItHas) {
  Listing arrays = ArrayListing(Arrays());
  arrays.left_out = 10;
  const Description session = DescribeSession(Sessions().sessions(0), NodeListing(Nodes()), arrays,
                                              ProgramListing(Programs()));
  EXPECT_EQ("\n" + DescriptionText(session), R"(
id:                       7
tenant:                   red
state:                    waits for memory
devices it sees:          8
memory of devices:        3.0 MiB
memory of the controller: 4.0 KiB
arrays:                   12
computations:             3
programs:                 1
unfinished nodes:         2

nodes:
  NODE  SESSION  KIND    STATE     ISLAND   BYTES    WAITS-FOR            NAME  TENANT
  1     7        launch  launched  island1  1.0 KiB  worker w1            n1    red
  2     7        upload  waiting   island1  1.0 KiB  bytes of its client  n2    red
  3     7        move    queued    island1  1.0 KiB  memory               n3    red
  4     7        fetch   queued    island1  1.0 KiB  node 3               n4    red

arrays:
  SESSION  HANDLE               TYPE          STATE   SHARDS  ISLANDS          BYTES      TENANT  ERROR
  7        1152921504606846976  f32[128,512]  ready   4       island0,island1  256.0 KiB  red     -
  7        2                    unknown       failed  0       -                0          -       DATA_LOSS:?w0 is gone
  10 more arrays are left out

programs:
  SESSION  HANDLE  KIND         NAME      ISLANDS  STEPS  TENANT
  7        3       computation  jit_step  island0  1      red
)");
  const Json json = DescriptionJson(session);
  EXPECT_EQ(json["kind"], "session");
  EXPECT_EQ(json["item"]["id"], 7);
  EXPECT_EQ(json["nodes"].size(), 4u);
  EXPECT_EQ(json["arrays_left_out"], 10);
  EXPECT_FALSE(json.contains("nodes_left_out"));
}

v1::ListEventsResponse Happened() {
  v1::ListEventsResponse events;
  v1::ListedEvent* event = events.add_events();
  event->set_id(3);
  event->set_severity("warning");
  event->set_reason("IslandLost");
  event->set_object("island i0");
  event->set_text("the executor of worker w0 was lost:\x1b killed");
  event->set_first_ms(1764428617123);
  event->set_last_ms(1764428620999);
  event->set_count(4);
  event = events.add_events();
  event->set_id(9);
  event->set_severity("normal");
  event->set_reason("SessionOpened");
  event->set_object("session 7");
  event->set_text("it was opened");
  event->set_tenant("red");
  event->set_session(7);
  event->set_first_ms(1764428621000);
  event->set_last_ms(1764428621000);
  event->set_count(1);
  return events;
}

TEST(SessionListingTest, Events) {
  Listing events = EventListing(Happened());
  EXPECT_EQ("\n" + ListingText(events, false), R"(
LAST                     SEVERITY  REASON         OBJECT     COUNT  TEXT
2025-11-29 15:03:40 UTC  warning   IslandLost     island i0  4      the executor of worker w0 was lost:? killed
2025-11-29 15:03:41 UTC  normal    SessionOpened  session 7  1      it was opened
)");
  EXPECT_EQ(ListingText(events, true).substr(0, 91),
            "ID  FIRST                    LAST                     SEVERITY  REASON         OBJECT "
            "    T");
  EXPECT_EQ(ListingJson(events)["items"][1]["last_ms"], 1764428621000);
  KeepLatest(events, 2);
  EXPECT_EQ(events.left_out, 0u);
  KeepLatest(events, 1);
  EXPECT_EQ(events.left_out, 1u);
  EXPECT_EQ(events.rows[0].item["id"], 9);
  KeepLatest(events, 0);
  EXPECT_EQ(events.rows.size(), 1u);
}

}  // namespace
}  // namespace fairway
