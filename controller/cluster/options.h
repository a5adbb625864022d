// SPDX-License-Identifier: Apache-2.0
// The bounds and sizes of the controller's core. Fixed for its life.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_OPTIONS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/memory_budget.h"
#include "base/ticket.h"
#include "wire/limits.h"

namespace fairway {

struct ClusterOptions {
  int64_t admission_grace_ms = 2000;
  // An uploaded shard up to this size goes with the command.
  int64_t inline_upload_bytes = 64 << 10;
  // An uploaded array up to this size, and copies of it, stay with the controller until something
  // uses them, as long as the session's have at most the second size together (stored.cc).
  int64_t stored_array_bytes = 64 << 10;
  size_t stored_session_bytes = size_t{64} << 20;
  // The most gangs, and launches of one device, that are launched and unfinished on a device:
  // enough that executors need not wait for the controller (docs/design/0031-launching-ahead.md),
  // also when a fourth of the gangs have ended (GangTurns).
  int max_gangs_per_device = 32;
  int max_singles_per_device = 32;
  // A command names so many shards that a launch reads and makes, and the next one more of them.
  size_t shards_at_once = 2048;
  int64_t inline_output_bytes = 64 << 10;   // an output up to this size comes with its node's end,
  int64_t inline_gang_bytes = 256 << 10;    // as long as a gang's have at most this together,
  size_t inline_shards = 1024;              // and so many shards, or one output,
  int64_t inline_session_bytes = 64 << 20;  // and the latest ones of a session at most this
  // Units of work (Cluster::units) after which an operation or a turn leaves the rest to the next
  // turn, except work that cannot be interrupted.
  uint64_t turn_units = 1000;
  // The approximate bytes of controller memory that the records of all sessions may hold. Arrays
  // and programs of a session may hold as much as they leave to others; beyond that no more are
  // made. So may its unfinished work; beyond that no more of its requests are read (SessionCaps).
  size_t record_memory = size_t{768} << 20;
  // The most bytes that may be under way from executors for fetches of one session. Above it the
  // session's next fetches wait until some have come.
  int64_t fetching_bytes = int64_t{256} << 20;
  // The approximate bytes of controller memory that fetched bytes of all sessions may hold until
  // their clients have taken them. A session's fetches wait while it has more than it leaves to
  // others.
  int64_t fetched_memory = int64_t{512} << 20;
  // The bytes of commands that executors have not reported to have. A session's nodes wait before
  // their commands while it has more than it leaves to others, and fail after this time.
  int64_t command_memory = int64_t{128} << 20;
  int64_t least_commands = int64_t{64} << 10;  // may always be on their way
  int64_t command_grace_ms = 30000;
  // Fetches of fewer bytes count with the records.
  int64_t counted_fetch_bytes = 256;
  // What the controller may hold for all sessions, of all kinds: records are a part of it, and
  // fetched bytes, and what the owner of the options counts there. nullptr: nobody else counts.
  std::shared_ptr<MemoryBudget> memory;
  // Several nodes make shards that have more pieces than this together.
  size_t node_pieces = 512;
  // A launch that reads and makes more groups than this together ends in several turns.
  size_t ends_at_once = 125;
  // A node that needs a larger command fails, because executors would be lost by it.
  size_t command_bytes = kMaxCommandBytes;
  // Of the controller's data port, where executors pull uploads. With it and the keys that
  // executors say when they register, the core makes tickets. It has no other source of secrets.
  PortKey data_key;
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_OPTIONS_H_
