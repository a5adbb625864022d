// SPDX-License-Identifier: Apache-2.0
// The parts of a plan that an executor gets, and what it reports. Plain values: the wire layer
// turns them into protobuf, the simulation passes them as they are.
//
// Commands to one executor arrive in the order in which they were sent. PREPARE comes before the
// inputs exist; LAUNCH once a gang's inputs have arrived (docs/architecture.md, "The way of the
// data").
#ifndef FAIRWAY_GRAPH_PLAN_H_
#define FAIRWAY_GRAPH_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/blob.h"
#include "base/ids.h"
#include "base/status.h"
#include "core/box.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace fairway {

// One shard buffer: shard `shard` of group `group`.
struct ShardRef {
  GroupId group;
  int32_t shard = 0;
  friend bool operator==(const ShardRef&, const ShardRef&) = default;
  friend auto operator<=>(const ShardRef&, const ShardRef&) = default;
};

// A shard that an executor is to make or receive.
struct LocalShard {
  int32_t shard = 0;   // its index in the group
  int32_t device = 0;  // local ordinal
  Shape shape;
};

// The shards of one group that lie on one executor.
struct GroupPart {
  GroupId group;
  DType dtype = DType::kInvalid;
  std::string memory_kind;  // empty: default
  std::vector<LocalShard> shards;
};

// Load this code; answered by Report::installed. Comes before the first PREPARE that names it.
struct InstallExecutable {
  ExecutableId executable;
  std::shared_ptr<const std::string> code;  // what Runtime::Load takes
  std::string checksum;                     // SHA-256, hex
  std::vector<int32_t> devices;             // local ordinals to load it for; empty: as compiled
  // The executors that run it together, in the same order for each of them; empty: this one alone.
  struct Member {
    std::string endpoint;  // of its data port
    Incarnation incarnation;
    friend bool operator==(const Member&, const Member&) = default;
  };
  std::vector<Member> members;
  int32_t member = 0;  // which of them this one is
};

// Also forgets a sequence of that id.
struct DropExecutable {
  ExecutableId executable;
};

// One step of a sequence. What it works on lies in numbered registers; a register holds the shards
// of one value on the devices of the sequence.
struct Instruction {
  enum class Op : uint8_t {
    kRun,     // outputs = executable(inputs)
    kSet,     // outputs[0] = inputs[0]; no bytes move
    kOutput,  // output number outputs[0] of the sequence = inputs[0]
    kRepeat,  // the next lengths[0] instructions, `count` times
    // One of lengths.size() blocks that follow, by the scalar in inputs[0] (below 0: the first; too
    // high: the last; of type PRED: 0 or 1). `outputs`, of `types`: what the blocks leave; when the
    // scalar failed, these have failed with it.
    kBranch,
    kClear,  // nothing but `clears`
  };
  Op op = Op::kRun;
  ExecutableId executable;
  std::vector<int32_t> inputs;
  std::vector<int32_t> outputs;
  std::vector<int32_t> types;    // of the outputs, in Sequence::types
  std::vector<int32_t> clears;   // registers that nobody reads after this
  std::vector<int32_t> donates;  // kRun: arguments that the code takes over, if it alone has them
  int64_t count = 0;
  std::vector<int32_t> lengths;
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

// A part of a program that the executors of one island run by themselves, in this order
// (docs/design/0040-programs.md). Prepared and launched like compiled code: registers 0 to n-1 hold
// the arguments. Its steps take launch ids from that of its launch on, those that are left out as
// well; a branch takes as many as its longest block. So a step has the same id on all executors,
// whatever fails on one of them.
struct Sequence {
  // A value that a step makes.
  struct Type {
    DType dtype = DType::kInvalid;
    Shape shard;
    std::string memory_kind;  // empty: default
    friend bool operator==(const Type&, const Type&) = default;
  };
  std::string name;
  int32_t registers = 0;
  int32_t outputs = 0;
  std::vector<Type> types;
  std::vector<Instruction> instructions;
  friend bool operator==(const Sequence&, const Sequence&) = default;
};

// Of each output the argument whose error it has for certain when those arguments have failed
// (`failed`, one for each argument), or -1: it may be well, or have the error of a step. A step
// with several failed inputs has the error of the first.
std::vector<int32_t> FailedBy(const Sequence& sequence, const std::vector<bool>& failed);

// Steps of a sequence that are at work at the same time, at most.
inline constexpr int kSequenceWindow = 8;

// Gangs at work on an executor at the same time, at most, of those whose devices wait for each
// other (PJRT CPU serialises more, and its pool has few threads).
inline constexpr int kGangsAtWork = 2;

// Know this sequence; answered by Report::installed. The code that its steps run is installed by
// itself.
struct InstallSequence {
  ExecutableId executable;
  std::shared_ptr<const Sequence> sequence;
};

// One executor's part of a launch of a compiled computation.
struct PrepareLaunch {
  NodeId node;
  uint64_t seq = 0;  // numbers the prepared nodes of this executor incarnation: 1, 2, 3, ...
  ExecutableId executable;
  std::vector<int32_t> devices;  // local ordinals in the order of the device assignment
  std::vector<std::vector<ShardRef>> inputs;  // [position in devices][argument]
  std::vector<GroupPart> outputs;             // one per result; shards in the order of `devices`
};

// Run it. Gangs of an island are launched in the order of their ids on all its executors.
struct Launch {
  NodeId node;
  LaunchId launch_id;
  bool gang = false;  // more than one device, over all executors
  // Inputs may still be computed by launches that this executor was told of before: it waits for
  // them, and does not run when one fails. Otherwise all inputs are here and ready.
  bool ahead = false;
  std::vector<int32_t>
      non_donatable;  // arguments that the code would take over but must leave alone
  std::vector<ShardRef> inline_shards;  // outputs whose bytes are to come with the completion
  // Of a sequence: arguments that have failed; of these nothing needs to be here.
  struct FailedArgument {
    int32_t argument = 0;
    absl::Status status;
  };
  std::vector<FailedArgument> failed;
};

// Where a shard to receive comes from.
struct ShardSource {
  enum class Kind : uint8_t { kLocal, kPeer, kController, kInline };
  Kind kind = Kind::kLocal;
  ShardRef shard;           // kLocal: a shard of this executor
  std::string endpoint;     // kPeer: data port of the executor that has it
  Incarnation incarnation;  // kPeer: of that executor; an answer of another one is refused
  int32_t index = 0;        // kPeer, kController: number of the shard within the transfer
  std::shared_ptr<const Blob>
      bytes;  // kInline: small uploads travel with the command; to be copied before use
};

// Box `from` of a source becomes box `to` of a shard to receive.
struct Piece {
  int32_t out = 0;  // position in PrepareReceive::out.shards
  Box from;         // in the source's shard
  Box to;           // same extents; the boxes of one shard fill it
};

// Receive the shards of `out`: one whole source each, or, with `pieces`, made of boxes of several.
// Bytes are copied as they are; the element types of a piece's two sides may differ. Starts by
// itself; the source answers when it is ready.
struct PrepareReceive {
  NodeId node;
  uint64_t seq = 0;
  TransferId transfer;
  GroupPart out;
  std::vector<ShardSource> sources;  // sources[i] is for out.shards[i], or for pieces[i]
  std::vector<Piece> pieces;         // empty, or one per source
};

// Serve these shards to whoever asks for (transfer, index), when they are ready, until EndSend.
struct PrepareSend {
  struct Item {
    int32_t index = 0;
    ShardRef shard;
    std::optional<Box> box = std::nullopt;  // only this part of it, dense
  };
  TransferId transfer;
  std::vector<Item> items;
};

struct EndSend {
  TransferId transfer;
};

// Forget a node that was prepared and will not be launched. Its outputs never come to be.
struct CancelNode {
  NodeId node;
  absl::Status cause;
};

// Another executor failed in these launches or was lost: what waits for it here ends with `cause`.
struct AbandonLaunch {
  LaunchId first;
  LaunchId last;
  absl::Status cause;
};

struct FreeGroups {
  std::vector<GroupId> groups;
};

using Command =
    std::variant<InstallExecutable, InstallSequence, DropExecutable, PrepareLaunch, Launch,
                 PrepareReceive, PrepareSend, EndSend, CancelNode, AbandonLaunch, FreeGroups>;

// What an executor has done since its last report.
struct Report {
  struct Failure {
    uint64_t seq = 0;
    absl::Status status;
    int32_t output = -1;    // of a sequence: only this one failed; else all of the node's
    int32_t argument = -1;  // of an output: the failed argument whose error it has, if so
  };
  struct Inlined {
    ShardRef shard;
    std::shared_ptr<const Blob> bytes;
  };
  struct Installed {
    ExecutableId executable;
    absl::Status status;
  };
  uint64_t finished_through = 0;   // every seq up to this one has ended, well or badly
  std::vector<uint64_t> finished;  // others that have ended, ascending
  std::vector<Failure> failures;   // of those newly ended, each once
  std::vector<Inlined> inlined;
  std::vector<Installed> installed;
};

}  // namespace fairway

#endif  // FAIRWAY_GRAPH_PLAN_H_
