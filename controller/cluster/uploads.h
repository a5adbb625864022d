// SPDX-License-Identifier: Apache-2.0
// Arrays that clients send. Private to this folder.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_UPLOADS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_UPLOADS_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "controller/cluster/array_table.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/session.h"

namespace fairway {

// Makes the nodes of an upload, one per island, and gives them the bytes as they come. Arrays::Put
// and the constants of programs make uploads.
//
// Invariants: the nodes of one upload have consecutive ids, from Node::upload on. Such a node waits
// until Node::open_blobs is 0.
class Cluster::Uploads {
 public:
  explicit Uploads(State& state) : s(state) {}

  // Makes the array `out` of a client's bytes, which are still to come. `lazy`: it may be stored
  // with the controller, if it is small.
  absl::StatusOr<Arrays::PutResult> Put(Session& session, uint64_t out, const ArraySpec& spec,
                                        std::vector<int32_t> blob_of_shard, bool lazy);
  // The bytes of a blob have come, or never will.
  void Provide(NodeId upload, int32_t blob, const absl::StatusOr<BytesRef>& bytes);

 private:
  State& s;  // the state that this is a part of
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_UPLOADS_H_
