// SPDX-License-Identifier: Apache-2.0
// The commands that an executor gets, and its reports. Plain values: the wire layer turns them into
// protobuf, the simulation passes them as they are.
//
// Commands to one executor arrive in the order in which they were sent. PREPARE comes before the
// inputs exist; LAUNCH comes once a gang's inputs have arrived (docs/architecture.md, "The way of
// the data"). (The plan of a whole program is ProgramPlan, lowering.h.)
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
#include "base/shared_vector.h"
#include "base/status.h"
#include "base/ticket.h"
#include "core/box.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "graph/shards.h"

namespace fairway {

// Loads this code; Report::installed answers. Comes before the first PREPARE that names the code.
struct InstallExecutable {
  ExecutableId executable;
  std::shared_ptr<const std::string> code;  // for Runtime::Load
  std::string checksum;                     // SHA-256, hex
  std::vector<int32_t> devices;             // local ordinals to load it for; empty: as compiled
  // The executors that run the code together, in the same order for each of them; empty: only this
  // one.
  struct Member {
    std::string endpoint;  // of its data port
    Incarnation incarnation;
    Ticket ticket;  // for what gangs exchange at that port
    friend bool operator==(const Member&, const Member&) = default;
  };
  SharedVector<Member> members;
  int32_t member = 0;                               // the index of this executor in `members`
  std::optional<uint32_t> code_crc = std::nullopt;  // CRC-32C of `code`, where it is known
  // If LaunchAll may launch it: the positions of `devices` in the list of all devices of the code,
  // and the shards of each result on them, of a group that LaunchAll names.
  std::vector<int32_t> positions = {};
  std::vector<GroupPart> outputs = {};
  // By result, and in each by device: whether no earlier shard of the result has the same bytes.
  std::vector<bool> distinct = {};
};

// Drops code, or a sequence of that id.
struct DropExecutable {
  ExecutableId executable;
};

// One step of a sequence. It reads and writes numbered registers. A register holds the shards of
// one value on the devices of the sequence.
struct Instruction {
  enum class Op : uint8_t {
    kRun,     // outputs = executable(inputs)
    kSet,     // outputs[0] = inputs[0]; no bytes move
    kOutput,  // output number outputs[0] of the sequence = inputs[0]
    kRepeat,  // the next lengths[0] instructions, `count` times
    // Runs one of the lengths.size() blocks that follow, chosen by the scalar in inputs[0] (below
    // 0: the first; too high: the last; of type PRED: 0 or 1). `outputs`, of `types`: the registers
    // that the blocks write. If the scalar failed, these fail with it.
    kBranch,
    kClear,  // does nothing; has only `clears`
  };
  Op op = Op::kRun;
  ExecutableId executable;
  std::vector<int32_t> inputs;
  std::vector<int32_t> outputs;
  std::vector<int32_t> types;    // of the outputs, in Sequence::types
  std::vector<int32_t> clears;   // registers that nothing reads after this
  std::vector<int32_t> donates;  // kRun: arguments that the code takes over if only it has them
  int64_t count = 0;
  std::vector<int32_t> lengths;
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

// A part of a program that the executors of one island run by themselves, in this order
// (docs/design/0040-programs.md). It is prepared and launched like compiled code; registers 0 to
// n-1 hold the arguments. Its steps take launch ids from that of its launch on. Steps that are left
// out take theirs too, and a branch takes as many as its longest block. So a step has the same id
// on all executors, whatever fails on one of them.
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

// Returns for each output the argument whose error it certainly has if the arguments in `failed`
// (one entry for each argument) have failed; -1: the output may be good, or have the error of a
// step. A step with several failed inputs has the error of the first.
std::vector<int32_t> FailedBy(const Sequence& sequence, const std::vector<bool>& failed);

// Steps of a sequence that are at work at the same time, at most: the second if they make little
// (WindowOf in graph/sequence_builder.h), the third if they make little and are launched in blocks.
inline constexpr int kSequenceWindow = 8;
inline constexpr int kWideWindow = 32;
inline constexpr int kBlocksWindow = 128;

// Gangs at work on an executor at the same time, at most, if their devices wait for each other
// (PJRT CPU serialises more, and its pool has few threads).
inline constexpr int kGangsAtWork = 2;

// Installs this sequence; Report::installed answers. The code of its steps is installed separately.
struct InstallSequence {
  ExecutableId executable;
  std::shared_ptr<const Sequence> sequence;  // nullptr where only `bytes` came
  // It, encoded (wire/sequence_codec.h); nullptr: whoever sends the command encodes it.
  std::shared_ptr<const std::string> bytes = nullptr;
  std::optional<uint32_t> crc = std::nullopt;  // CRC-32C of `bytes`, where it is known
};

// One executor's part of a launch of a compiled computation. Of many arguments and results the
// first ones; the others follow in commands that have the same node, seq, executable and devices.
struct PrepareLaunch {
  NodeId node;
  uint64_t seq = 0;  // numbers the prepared nodes of this executor incarnation: 1, 2, 3, ...
  ExecutableId executable;
  std::vector<int32_t> devices;    // local ordinals in the order of the device assignment
  std::vector<ShardRefs> inputs;   // [position in devices][argument]
  std::vector<GroupPart> outputs;  // one per result; shards in the order of `devices`
  bool more = false;               // others follow, before its launch
  uint64_t entry = 0;              // not sent: that of the LaunchAll it is made of; it has no seq
};

// Launches the node. All executors of an island launch its gangs in the order of their ids.
struct Launch {
  NodeId node;
  LaunchId launch_id;
  bool gang = false;  // more than one device, over all executors
  // True: inputs may still be computed by earlier launches on this executor. The executor waits for
  // them, and does not run the node if one fails. False: all inputs are here and ready.
  bool ahead = false;
  std::vector<int32_t>
      non_donatable;  // arguments that the code aliases to outputs but must not take over
  std::vector<ShardRef> inline_shards;  // outputs whose bytes come with the report
  // Of a sequence: arguments that have failed. Their shards need not be here.
  struct FailedArgument {
    int32_t argument = 0;
    absl::Status status;
  };
  std::vector<FailedArgument> failed;
};

// Prepares and launches code on all executors that run it together: the same bytes for each, which
// derives its part from InstallExecutable. It has no seq: the entry of the log that brought it ends
// with the launch (Report::ended).
struct LaunchAll {
  NodeId node;
  LaunchId launch_id;
  ExecutableId executable;
  bool ahead = false;                  // as in Launch
  std::vector<GroupId> inputs;         // by argument; shard i of it is for device i of the code
  std::vector<GroupId> outputs;        // by result
  std::vector<int32_t> non_donatable;  // as in Launch
  // Results whose bytes come with the reports, those of distinct shards. Ascending.
  std::vector<int32_t> inline_outputs;
  uint64_t entry = 0;  // not sent: the number of the entry that brought it
};

// The controller knows that LaunchAll failed here, so its entry may end.
struct FailureHeard {
  NodeId node;
};

// The source of a shard to receive.
struct ShardSource {
  enum class Kind : uint8_t { kLocal, kPeer, kController, kInline };
  Kind kind = Kind::kLocal;
  ShardRef shard;           // kLocal: a shard of this executor
  std::string endpoint;     // kPeer: data port of the executor that has it
  Incarnation incarnation;  // kPeer: incarnation of that executor; another one refuses
  int32_t index = 0;        // kPeer, kController: number of the shard within the transfer
  Ticket ticket;            // kPeer, kController: for the transfer, at the source's data port
  std::shared_ptr<const Blob>
      bytes;  // kInline: a small upload, which comes with the command; copy it before use
};

// Box `from` of a source becomes box `to` of a shard to receive.
struct Piece {
  int32_t out = 0;  // position in PrepareReceive::out.shards
  Box from;         // in the source's shard
  Box to;           // same extents; the boxes of one shard fill it
};

// Receives the shards of `out`: each from one whole source or, with `pieces`, from boxes of
// several. Bytes are copied unchanged; the element types of the two sides of a piece may differ. It
// starts by itself; the source answers when it is ready.
struct PrepareReceive {
  NodeId node;
  uint64_t seq = 0;
  TransferId transfer;
  GroupPart out;
  std::vector<ShardSource> sources;  // sources[i] is for out.shards[i], or for pieces[i]
  std::vector<Piece> pieces;         // empty, or one per source
  // Not sent. The command of what reads it comes soon, and nobody else waits for it: it may leave
  // together with that one.
  bool has_reader = false;
};

// Serves these shards to whoever asks for (transfer, index), when they are ready, until EndSend.
struct PrepareSend {
  struct Item {
    int32_t index = 0;
    ShardRef shard;
    std::optional<Box> box = std::nullopt;  // set: only this part of it, dense
  };
  TransferId transfer;
  std::vector<Item> items;
};

// Ends a transfer's serving: pulls that wait are refused, and so are later ones.
struct EndSend {
  TransferId transfer;
};

// Cancels a node that was prepared and will not be launched: its outputs are never made.
struct CancelNode {
  NodeId node;
  absl::Status cause;
};

// Another executor failed in these launches, or was lost: whatever they wait for here fails with
// `cause`.
struct AbandonLaunch {
  LaunchId first;
  LaunchId last;
  absl::Status cause;
};

// Frees the shard buffers of these groups that lie on the executor.
struct FreeGroups {
  std::vector<GroupId> groups;
};

using Command = std::variant<InstallExecutable, InstallSequence, DropExecutable, PrepareLaunch,
                             Launch, PrepareReceive, PrepareSend, EndSend, CancelNode,
                             AbandonLaunch, FreeGroups, LaunchAll, FailureHeard>;

// What an executor has done since its last report.
struct Report {
  struct Failure {
    uint64_t seq = 0;
    absl::Status status;
    int32_t output = -1;    // of a sequence: only this output failed; else all outputs of the node
    int32_t argument = -1;  // of an output: the failed argument whose error it has; -1: none
    NodeId node = {};       // set: it failed here, which LaunchAll launched; it has no seq
  };
  struct Inlined {
    ShardRef shard;
    std::shared_ptr<const Blob> bytes;
  };
  struct Installed {
    ExecutableId executable;
    absl::Status status;
  };
  uint64_t finished_through = 0;   // every seq up to this one has ended, with or without an error
  std::vector<uint64_t> finished;  // other seqs that have ended, ascending
  std::vector<Failure> failures;   // of the seqs that ended since the last report, each once
  std::vector<Inlined> inlined;
  std::vector<Installed> installed;
  // Not sent: entries of the log that have ended. The log's own report tells of them.
  std::vector<uint64_t> ended;
  bool news = false;  // not sent: whether anything but `ended` is new
};

}  // namespace fairway

#endif  // FAIRWAY_GRAPH_PLAN_H_
