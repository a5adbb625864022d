// SPDX-License-Identifier: Apache-2.0
// The bounds and sizes of the controller's core. Fixed for its life.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_OPTIONS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_OPTIONS_H_

#include <cstddef>
#include <cstdint>

#include "wire/limits.h"

namespace fairway {

struct ClusterOptions {
  int64_t admission_grace_ms = 2000;
  int64_t inline_upload_bytes =
      64 << 10;  // an uploaded shard up to this size travels with the command
  // An uploaded array up to this size stays with the controller until something uses it, as long as
  // those of its session are not more than the other; as do copies of it (stored.cc).
  int64_t stored_array_bytes = 64 << 10;
  size_t stored_session_bytes = size_t{64} << 20;
  // Launched and unfinished: far enough ahead that executors need not wait for the controller
  // (docs/design/0031-launching-ahead.md).
  int max_gangs_in_flight = 16;  // per island
  int max_singles_per_device = 32;
  int64_t inline_output_bytes = 64 << 10;   // an output up to this size comes with its completion,
  int64_t inline_gang_bytes = 256 << 10;    // as long as those of one gang are not more than this,
  int64_t inline_session_bytes = 64 << 20;  // and the session's latest ones not more than this
  // Units of work (Cluster::units) after which an operation or a turn leaves the rest to the next
  // turn, but for what cannot be interrupted.
  uint64_t turn_units = 1000;
  // What the records of all sessions may hold of the controller's memory, about. One session's
  // arrays and programs may hold as much as is left: beyond, no more are made. One session's
  // unfinished work may, too: beyond, no more of its requests are read (SessionCaps).
  size_t record_memory = size_t{768} << 20;
  // Bytes that may be under way from executors for fetches of one session: above, its next ones
  // wait until some have come.
  int64_t fetching_bytes = int64_t{256} << 20;
  // What fetched bytes of all sessions hold of the controller's memory until their clients have
  // taken them, about. Fetches of one session wait while it has more than is left to others.
  int64_t fetched_memory = int64_t{512} << 20;
  // Shards that are made of more pieces together are made by several nodes.
  size_t node_pieces = 512;
  // What needs a larger command fails: executors would be lost by it.
  size_t command_bytes = kMaxCommandBytes;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_OPTIONS_H_
