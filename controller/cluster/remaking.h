// SPDX-License-Identifier: Apache-2.0
// Arrays made of others, or of pieces of them. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_REMAKING_H_
#define FAIRWAY_CONTROLLER_CLUSTER_REMAKING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "controller/cluster/arrays.h"
#include "controller/cluster/node.h"
#include "controller/cluster/session.h"
#include "controller/cluster/worklist.h"
#include "core/reshard.h"

namespace fairway {

// Makes an array from others: copied to other devices, remapped, or with another sharding or type.
// The last two go on shard by shard, because a shard may have many pieces. Requests and runs of
// programs ask for them; the nodes enter the tables once the whole request has been checked
// (many.h).
//
// Invariants: the shards of one node have at most ClusterOptions::node_pieces pieces together,
// unless it has a single shard. The pieces are in the order of the shards.
class Cluster::Remaking {
 public:
  explicit Remaking(State& state) : s(state) {}

  // A copy of `source` with the same cut on other devices, in the making: its view is not held.
  absl::StatusOr<Array> Copied(Session& session, const Array& source, const ArraySpec& target,
                               bool may_alias, Making& made);
  // One output of a remap.
  absl::StatusOr<Array> Remapped(const Session& session, const ArraySpec& spec,
                                 const std::vector<RemapPlan::From>& from,
                                 const std::vector<Array*>& in);

  struct Remake;
  // Makes the next shard. Returns whether it was the last one.
  absl::StatusOr<bool> GoOnRemake(const Session& session, Remake& remake, Making& made);
  // `source` and `target` must keep their addresses until it is over.
  absl::StatusOr<Remake> Resharded(const Session& session, const Array& source,
                                   const ArraySpec& target, bool may_alias, const Making& made);
  absl::StatusOr<Remake> Bitcasted(const Session& session, const Array& source,
                                   const ArraySpec& target, bool may_alias, const Making& made);
  class ValueRemake;
  // As above for `source` and `target`. `pieces`: those of the values before it.
  std::unique_ptr<ValueRequest> NewValue(const Array& source, const ArraySpec& target,
                                         bool after_inputs, size_t pieces);

  // Does a whole request, at once or in turns. See Arrays::Reshard and Arrays::Bitcast.
  absl::StatusOr<std::vector<uint64_t>> RemakeAtOnce(SessionId session, bool bitcast,
                                                     const std::vector<uint64_t>& in,
                                                     const std::vector<ArraySpec>& targets,
                                                     CopySemantics semantics,
                                                     const std::vector<uint64_t>& out);
  void RemakeMany(SessionId session, bool bitcast, std::vector<uint64_t> in,
                  Arrays::Targets targets, CopySemantics semantics, std::vector<uint64_t> out,
                  Done done, Each each);

 private:
  // A Remake is an array in the making. A SourcePiece is a box of a shard of `source`, from which a
  // shard of the target is made.
  struct SourcePiece {
    int32_t source = 0;  // position in the source's devices
    bool made = false;   // it is in the target's: a shard made before on that executor
    Piece piece;         // `out` is ignored
  };
  // What the shards of the target are made of.
  struct Recipe {
    enum class Kind : uint8_t {
      kSameShard,  // each of the source's shard at its position
      kSameBytes,  // as kSameShard, whatever the type
      kPlan,       // of boxes of the source's shards
    };
    Kind kind = Kind::kSameShard;
    std::shared_ptr<Resharding> plan;  // of kPlan
  };
  // Returns the pieces for one position of the target's devices.
  std::vector<SourcePiece> PiecesOf(const Remake& remake, int32_t position) const;
  absl::StatusOr<Remake> BeginRemake(const Session& session, const Array& source,
                                     const ArraySpec& target, std::string name, bool may_alias,
                                     Recipe recipe, const Making& made);
  // Completes the record of a node that has all its shards.
  void EndNode(const Making::Made& made) const;

  State& s;  // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_REMAKING_H_
