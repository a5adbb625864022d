// SPDX-License-Identifier: Apache-2.0
// Arrays made of pieces of others: resharded or bitcast. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_REMAKING_H_
#define FAIRWAY_CONTROLLER_CLUSTER_REMAKING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/cluster/arrays.h"
#include "controller/cluster/node.h"
#include "controller/cluster/session.h"
#include "controller/cluster/work.h"

namespace fairway {

// Makes an array with another sharding or type shard by shard, because each may be of many pieces.
// What it makes is in no table before all of the request has been checked (many.h).
//
// Invariants: all pieces of one node's shards together are at most ClusterOptions::node_pieces, but
// for a single shard of more; the pieces are in the order of the shards.
class Cluster::Remaking {
 public:
  explicit Remaking(State& state) : s(state) {}

  struct Remake;
  // Its next shard; whether it was the last one.
  absl::StatusOr<bool> GoOnRemake(const Session& session, Remake& remake, Making& made);
  // `source` and `target` stay where they are until it is over.
  absl::StatusOr<Remake> Resharded(const Session& session, const Array& source,
                                   const ArraySpec& target, bool may_alias, const Making& made);
  absl::StatusOr<Remake> Bitcasted(const Session& session, const Array& source,
                                   const ArraySpec& target, bool may_alias, const Making& made);
  class ValueRemake;
  // `source` and `target` stay where they are until it is over; `pieces`: of those before it.
  std::unique_ptr<ValueRequest> NewValue(const Array& source, const ArraySpec& target,
                                         bool after_inputs, size_t pieces);

  // All of a request, at once or in turns. See Arrays::Reshard and Arrays::Bitcast.
  absl::StatusOr<std::vector<uint64_t>> RemakeAtOnce(SessionId session, bool bitcast,
                                                     const std::vector<uint64_t>& in,
                                                     const std::vector<ArraySpec>& targets,
                                                     CopySemantics semantics,
                                                     const std::vector<uint64_t>& out);
  void RemakeMany(SessionId session, bool bitcast, std::vector<uint64_t> in,
                  Arrays::Targets targets, CopySemantics semantics, std::vector<uint64_t> out,
                  Done done, Each each);

 private:
  // An array with another sharding or type, in the making: shard by shard, because each may be of
  // many pieces.
  struct SourcePiece {
    int32_t source = 0;  // position in the source's devices
    bool made = false;   // in the target's, of an earlier one in the same executor
    Piece piece;         // `out` is not looked at
  };
  // For one position of the target's devices.
  using PiecesOf = std::function<std::vector<SourcePiece>(int32_t position)>;
  absl::StatusOr<Remake> BeginRemake(const Session& session, const Array& source,
                                     const ArraySpec& target, std::string name, bool may_alias,
                                     PiecesOf pieces_of, const Making& made);
  // Its last node is complete.
  void EndNode(const Making::Made& made) const;

  State& s;  // of which this is a part
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_REMAKING_H_
