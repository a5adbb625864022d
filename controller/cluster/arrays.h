// SPDX-License-Identifier: Apache-2.0
// The arrays of a session: made, moved, deleted, watched and fetched.
#ifndef FAIRWAY_CONTROLLER_CLUSTER_ARRAYS_H_
#define FAIRWAY_CONTROLLER_CLUSTER_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"
#include "core/remap.h"
#include "core/sharding.h"

namespace fairway {

// An array is a handle of a session's; it points at shards, which lie on devices or are still to be
// made. Every operation returns at once, before the bytes are there: what goes wrong later is an
// error in the array, which Watch and Fetch tell.
//
// NOT_FOUND names an unknown handle, or a session that has ended. ALREADY_EXISTS: a result handle
// is in use; INVALID_ARGUMENT: it is outside the client's range. `out` handles of 0 are made by the
// core; the handle used is returned. RESOURCE_EXHAUSTED: the session may have no more arrays
// (ClusterOptions::record_memory).
//
// What names many arrays takes long. The forms with `done` (or `ended`) are for front doors: they
// are done in several turns, and the session is busy meanwhile (Sessions::Busy). `done` is told
// when all of it was done or refused; it may call the core, and comes not at all when the session
// was closed before. `each` is told each handle as it is made or given up; it may not call the
// core. The forms without do all of it at once: for tests, and for a few arrays.
//
// Loop-confined. Nothing blocks.
class Cluster::Arrays {
 public:
  // An array from host bytes: shard i is blob blob_of_shard[i], dense and major to minor, each
  // given by ProvideUpload, before or after. The bytes are released when they are on the device;
  // those of a small array are kept, and go to devices when something there reads it.
  // Never fails for want of memory: the error goes into the array. Returns the node for
  // ProvideUpload.
  struct PutResult {
    uint64_t handle = 0;
    NodeId upload;
  };
  absl::StatusOr<PutResult> Put(SessionId session, uint64_t out, const ArraySpec& spec,
                                std::vector<int32_t> blob_of_shard);
  // Blob `blob` of `upload`, or the error that its array is to hold. Unknown uploads (freed
  // meanwhile) are ignored.
  void ProvideUpload(NodeId upload, int32_t blob, absl::StatusOr<BytesRef> bytes);

  absl::StatusOr<uint64_t> MakeError(SessionId session, uint64_t out, const ArraySpec& spec,
                                     absl::Status error);

  // Of handles that nothing else has: errors of which not even the type is known, results of
  // requests that were refused. What takes such an array is refused with its error, but for
  // executions, whose results hold it. Handles in use keep what they have.
  void MakeErrors(SessionId session, std::vector<uint64_t> handles, absl::Status error);
  // OK, or the error of an array that MakeErrors made.
  absl::Status CheckKnown(SessionId session, uint64_t handle) const;

  // Arrays with the same shards on other devices or in other memories: aliases where nothing moves,
  // otherwise transfers. All `in` must have the same device list. `devices`: virtual ids, nothing:
  // keep.
  absl::StatusOr<std::vector<uint64_t>> Copy(SessionId session, const std::vector<uint64_t>& in,
                                             const std::optional<std::vector<int32_t>>& devices,
                                             const std::optional<std::string>& memory_kind,
                                             CopySemantics semantics,
                                             const std::vector<uint64_t>& out);
  void Copy(SessionId session, std::vector<uint64_t> in,
            std::optional<std::vector<int32_t>> devices, std::optional<std::string> memory_kind,
            CopySemantics semantics, std::vector<uint64_t> out, Done done, Each each = nullptr);
  // One array from single-device arrays, shard i = in[i]. spec.dtype may be kInvalid: that of the
  // inputs.
  absl::StatusOr<uint64_t> Assemble(SessionId session, ArraySpec spec,
                                    const std::vector<uint64_t>& in, CopySemantics semantics,
                                    uint64_t out);
  absl::StatusOr<std::vector<uint64_t>> Disassemble(SessionId session, uint64_t in,
                                                    CopySemantics semantics,
                                                    const std::vector<uint64_t>& out);
  // INVALID_ARGUMENT: not fully replicated.
  absl::StatusOr<uint64_t> FullyReplicatedShard(SessionId session, uint64_t in,
                                                CopySemantics semantics, uint64_t out);

  // Arrays made of shards of `in` that stay where they are. kDonateInput: `in` are as deleted
  // afterwards. INVALID_ARGUMENT: number, element type, shape or devices of `in` are not those of
  // the plan, a shard lies on another device, or in another memory, or has another shape than the
  // output's sharding says, or kAlwaysCopy, which this is not. An output made of an error array is
  // one.
  absl::StatusOr<std::vector<uint64_t>> Remap(SessionId session, const std::vector<uint64_t>& in,
                                              const RemapPlan& plan, CopySemantics semantics,
                                              const std::vector<uint64_t>& out);
  void Remap(SessionId session, std::vector<uint64_t> in, RemapPlan plan, CopySemantics semantics,
             std::vector<uint64_t> out, Done done, Each each = nullptr);

  // The same values with another sharding, on the same islands or others: shards that stay what and
  // where they are are shared, unless kAlwaysCopy; the others are made of boxes of the old ones,
  // from executor to executor. kDonateInput: `in` are as deleted afterwards. INVALID_ARGUMENT:
  // element type or shape differ, or one of the two shardings does not tell where its shards lie
  // and the cuts differ.
  absl::StatusOr<std::vector<uint64_t>> Reshard(SessionId session, const std::vector<uint64_t>& in,
                                                const std::vector<ArraySpec>& targets,
                                                CopySemantics semantics,
                                                const std::vector<uint64_t>& out);
  // The bytes of the same shards on the same devices as another type. INVALID_ARGUMENT: devices,
  // memory or bytes of a shard differ.
  absl::StatusOr<std::vector<uint64_t>> Bitcast(SessionId session, const std::vector<uint64_t>& in,
                                                const std::vector<ArraySpec>& targets,
                                                CopySemantics semantics,
                                                const std::vector<uint64_t>& out);
  // What each array is to become.
  struct Targets {
    size_t count = 0;
    std::function<absl::StatusOr<ArraySpec>(size_t i, const ArraySpec& source)> of;
  };
  void Reshard(SessionId session, std::vector<uint64_t> in, Targets targets,
               CopySemantics semantics, std::vector<uint64_t> out, Done done, Each each = nullptr);
  void Bitcast(SessionId session, std::vector<uint64_t> in, Targets targets,
               CopySemantics semantics, std::vector<uint64_t> out, Done done, Each each = nullptr);

  // Deletes the shard buffers: all arrays that share them are deleted. The handles stay.
  absl::Status Delete(SessionId session, const std::vector<uint64_t>& handles);
  void Delete(SessionId session, std::vector<uint64_t> handles, Ended ended);
  absl::StatusOr<bool> IsDeleted(SessionId session, uint64_t handle) const;
  // Gives the handles up. Unknown ones are named in NOT_FOUND after the others were given up.
  absl::Status Destruct(SessionId session, const std::vector<uint64_t>& handles);
  void Destruct(SessionId session, std::vector<uint64_t> handles, Ended ended, Each each = nullptr);
  // nullptr: unknown handle. Valid until the next operation.
  const ArraySpec* Spec(SessionId session, uint64_t handle) const;

  // OnWatched once all are ready, or with the error of the first failed one in the order given;
  // NOT_FOUND and deleted arrays count as failed. Of many it is done in several turns.
  void Watch(SessionId session, uint64_t token, std::vector<uint64_t> handles);
  // OnFetched with the dense bytes of an array with one shard, or of a fully replicated one.
  void Fetch(SessionId session, uint64_t token, uint64_t handle);

  // The answer to ClusterActions::PullToHost. Of transfers that nobody waits for it is ignored.
  void FetchArrived(TransferId transfer, absl::StatusOr<BytesRef> bytes);

 private:
  friend class Cluster;
  explicit Arrays(State* state) : state_(state) {}

  State* const state_;  // the cluster's: outlives this
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_ARRAYS_H_
