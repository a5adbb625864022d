// SPDX-License-Identifier: Apache-2.0
// The shards that an executor puts together from pieces: when a shard has all its bytes, and when
// nobody wants it any more.
#ifndef FAIRWAY_WORKER_EXECUTOR_ASSEMBLY_H_
#define FAIRWAY_WORKER_EXECUTOR_ASSEMBLY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/planted.h"
#include "graph/plan.h"

namespace fairway {

// Owned by ExecutorSession (in the simulation: by a machine). Loop-confined. `Bytes` is what the
// pieces are copied into.
template <typename Bytes>
class Assemblies {
 public:
  // A shard that is being put together. The pieces under way share it.
  struct Assembly {
    Bytes bytes{};
    size_t open = 0;  // pieces that have not ended
    bool failed = false;
  };
  using Ref = std::shared_ptr<Assembly>;

  // Returns the assembly of `ref`, the shard that the piece at `position` belongs to; and whether
  // it was made by this call. Then the caller gives it its bytes.
  std::pair<Ref, bool> Of(ShardRef ref, const PrepareReceive& node, size_t position) {
    Ref& assembly = assemblies_[ref];
    if (assembly != nullptr) return {assembly, false};
    assembly = std::make_shared<Assembly>();
    for (const Piece& other : node.pieces)
      assembly->open += other.out == node.pieces[position].out ? 1 : 0;
    return {assembly, true};
  }

  // What the end of a piece means for its shard.
  enum class End : uint8_t {
    kNothing,  // other pieces are under way, or the shard was dropped
    kMake,     // all its bytes have come
    kFail,     // all its pieces have ended, and one has failed
  };
  End PieceEnded(ShardRef ref, const Ref& assembly, bool ok) {
    assembly->failed = assembly->failed || !ok;
    const bool last = --assembly->open == 0 || (Planted(Bug::kShardOfOnePiece) && ok);
    const auto at = assemblies_.find(ref);
    if (!last || at == assemblies_.end() || at->second != assembly) return End::kNothing;
    assemblies_.erase(at);
    return assembly->failed ? End::kFail : End::kMake;
  }

  // The shard is not wanted any more. Returns its assembly; nullptr: there is none.
  Ref Drop(ShardRef ref) {
    const auto at = assemblies_.find(ref);
    if (at == assemblies_.end()) return nullptr;
    const Ref dropped = std::move(at->second);
    assemblies_.erase(at);
    return dropped;
  }
  void Clear() { assemblies_.clear(); }

  size_t size() const { return assemblies_.size(); }
  auto begin() const { return assemblies_.begin(); }
  auto end() const { return assemblies_.end(); }

 private:
  // A shard that was dropped and is received anew has another assembly than the pieces under way.
  std::map<ShardRef, Ref> assemblies_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_ASSEMBLY_H_
