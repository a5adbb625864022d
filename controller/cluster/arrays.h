// SPDX-License-Identifier: Apache-2.0
// The arrays of a session: how they are made, moved, deleted, watched and fetched.
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

// An array is a handle of a session. It points at shards, which lie on devices or are still to be
// made. Every operation returns at once, before the bytes are there: a later failure becomes an
// error in the array, which Watch and Fetch report.
//
// NOT_FOUND names an unknown handle, or a session that has ended. ALREADY_EXISTS: a result handle
// is in use; INVALID_ARGUMENT: it is outside the client's range. Where `out` is 0 the core makes
// the handle; the handle in use is returned. RESOURCE_EXHAUSTED: the session may have no more
// arrays (ClusterOptions::record_memory).
//
// Operations on many arrays take long. The forms with `done` (or `ended`) are for front doors: they
// take several turns, and the session is busy meanwhile (Sessions::Busy). `done` is called when all
// was done, or refused; it may call the core. If the session was closed before, it is not called.
// `each` is called with each handle as it is made or given up; it must not call the core. The forms
// without `done` work at once: for tests, and for a few arrays.
//
// Loop-confined. Nothing blocks.
class Cluster::Arrays {
 public:
  // Makes an array from host bytes: shard i is blob blob_of_shard[i], dense and major to minor.
  // ProvideUpload gives each blob, before or after this call. The bytes are released once they are
  // on the device; those of a small array are kept, and go to devices when something there reads
  // it. Never fails for want of memory: the error goes into the array. Returns the node for
  // ProvideUpload.
  struct PutResult {
    uint64_t handle = 0;
    NodeId upload;
  };
  absl::StatusOr<PutResult> Put(SessionId session, uint64_t out, const ArraySpec& spec,
                                std::vector<int32_t> blob_of_shard);
  // Gives blob `blob` of `upload`, or the error that the array is to hold. Unknown uploads (freed
  // meanwhile) are ignored.
  void ProvideUpload(NodeId upload, int32_t blob, absl::StatusOr<BytesRef> bytes);

  absl::StatusOr<uint64_t> MakeError(SessionId session, uint64_t out, const ArraySpec& spec,
                                     absl::Status error);

  // Makes error arrays for handles that are not in use: the results of refused requests, of which
  // not even the type is known. A request that takes such an array is refused with its error,
  // except executions, whose results hold it. Handles in use keep what they have.
  void MakeErrors(SessionId session, std::vector<uint64_t> handles, absl::Status error);
  // OK, or the error of an array that MakeErrors made.
  absl::Status CheckKnown(SessionId session, uint64_t handle) const;

  // Makes arrays with the same shards on other devices or in other memories: aliases where nothing
  // moves, otherwise transfers. All `in` must have the same device list. `devices` are virtual ids;
  // without them the devices stay.
  absl::StatusOr<std::vector<uint64_t>> Copy(SessionId session, const std::vector<uint64_t>& in,
                                             const std::optional<std::vector<int32_t>>& devices,
                                             const std::optional<std::string>& memory_kind,
                                             CopySemantics semantics,
                                             const std::vector<uint64_t>& out);
  void Copy(SessionId session, std::vector<uint64_t> in,
            std::optional<std::vector<int32_t>> devices, std::optional<std::string> memory_kind,
            CopySemantics semantics, std::vector<uint64_t> out, Done done, Each each = nullptr);
  // Makes one array from single-device arrays, shard i = in[i]. If spec.dtype is kInvalid, the
  // element type is that of the inputs.
  absl::StatusOr<uint64_t> Assemble(SessionId session, ArraySpec spec,
                                    const std::vector<uint64_t>& in, CopySemantics semantics,
                                    uint64_t out);
  absl::StatusOr<std::vector<uint64_t>> Disassemble(SessionId session, uint64_t in,
                                                    CopySemantics semantics,
                                                    const std::vector<uint64_t>& out);
  // INVALID_ARGUMENT: `in` is not fully replicated.
  absl::StatusOr<uint64_t> FullyReplicatedShard(SessionId session, uint64_t in,
                                                CopySemantics semantics, uint64_t out);

  // Makes arrays of shards of `in`, which stay where they are. kDonateInput: `in` count as deleted
  // afterwards. INVALID_ARGUMENT: the number, element type, shape or devices of `in` differ from
  // the plan; a shard lies on another device or in another memory, or has another shape, than the
  // output's sharding says; or kAlwaysCopy, since this copies nothing. An output made of an error
  // array is an error array.
  absl::StatusOr<std::vector<uint64_t>> Remap(SessionId session, const std::vector<uint64_t>& in,
                                              const RemapPlan& plan, CopySemantics semantics,
                                              const std::vector<uint64_t>& out);
  void Remap(SessionId session, std::vector<uint64_t> in, RemapPlan plan, CopySemantics semantics,
             std::vector<uint64_t> out, Done done, Each each = nullptr);

  // Gives the same values another sharding, on the same islands or others. Shards that keep their
  // contents and place are shared, unless kAlwaysCopy; the others are made of boxes of the old
  // ones, from executor to executor. kDonateInput: `in` count as deleted afterwards.
  // INVALID_ARGUMENT: element type or shape differ, or a sharding does not tell where its shards
  // lie and the cuts differ.
  absl::StatusOr<std::vector<uint64_t>> Reshard(SessionId session, const std::vector<uint64_t>& in,
                                                const std::vector<ArraySpec>& targets,
                                                CopySemantics semantics,
                                                const std::vector<uint64_t>& out);
  // Reads the bytes of the same shards, on the same devices, as another type. INVALID_ARGUMENT: the
  // devices, the memory or the bytes of a shard differ.
  absl::StatusOr<std::vector<uint64_t>> Bitcast(SessionId session, const std::vector<uint64_t>& in,
                                                const std::vector<ArraySpec>& targets,
                                                CopySemantics semantics,
                                                const std::vector<uint64_t>& out);
  // The types that the arrays are to have.
  struct Targets {
    size_t count = 0;
    std::function<absl::StatusOr<ArraySpec>(size_t i, const ArraySpec& source)> of;
  };
  void Reshard(SessionId session, std::vector<uint64_t> in, Targets targets,
               CopySemantics semantics, std::vector<uint64_t> out, Done done, Each each = nullptr);
  void Bitcast(SessionId session, std::vector<uint64_t> in, Targets targets,
               CopySemantics semantics, std::vector<uint64_t> out, Done done, Each each = nullptr);

  // Deletes the shard buffers, and with them all arrays that share them. The handles stay.
  absl::Status Delete(SessionId session, const std::vector<uint64_t>& handles);
  void Delete(SessionId session, std::vector<uint64_t> handles, Ended ended);
  absl::StatusOr<bool> IsDeleted(SessionId session, uint64_t handle) const;
  // Gives the handles up. NOT_FOUND names unknown ones, after all others were given up.
  absl::Status Destruct(SessionId session, const std::vector<uint64_t>& handles);
  void Destruct(SessionId session, std::vector<uint64_t> handles, Ended ended, Each each = nullptr);
  // nullptr: the handle is unknown. Valid until the next operation.
  const ArraySpec* Spec(SessionId session, uint64_t handle) const;

  // Calls OnWatched once all are ready, or with the error of the first failed one in the order
  // given; unknown handles and deleted arrays count as failed. Many arrays take several turns.
  void Watch(SessionId session, uint64_t token, std::vector<uint64_t> handles);
  // Calls OnFetched with the dense bytes of an array that has one shard or is fully replicated.
  void Fetch(SessionId session, uint64_t token, uint64_t handle);

  // The shell's answer to ClusterActions::PullToHost. Ignored if nobody waits for the transfer.
  void FetchArrived(TransferId transfer, absl::StatusOr<BytesRef> bytes);

 private:
  friend class Cluster;
  explicit Arrays(State* state) : state_(state) {}

  State* const state_;  // the cluster's: outlives this
};

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_CLUSTER_ARRAYS_H_
