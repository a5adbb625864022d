// SPDX-License-Identifier: Apache-2.0
// Strong identifiers. Two ids of different kinds never compare or convert by accident.
#ifndef FAIRWAY_BASE_IDS_H_
#define FAIRWAY_BASE_IDS_H_

#include <compare>
#include <cstdint>
#include <functional>

#include <fmt/format.h>

namespace fairway {

// An integer that names one thing of the kind `Tag`. 0 names nothing.
template <typename Tag, typename Int = uint64_t>
struct Id {
  using Integer = Int;
  Int value = 0;

  constexpr Id() = default;
  constexpr explicit Id(Int v) : value(v) {}
  constexpr explicit operator bool() const { return value != 0; }
  friend constexpr auto operator<=>(Id, Id) = default;
  template <typename H>
  friend H AbslHashValue(H h, Id id) {
    return H::combine(std::move(h), id.value);
  }
};

using SessionId = Id<struct SessionTag>;  // one client connection; dense, never shown to clients
using IslandId = Id<struct IslandTag, uint32_t>;
using ExecutorId =
    Id<struct ExecutorTag, uint32_t>;  // one worker's executor, over all its incarnations
using DeviceId = Id<struct DeviceTag, uint32_t>;  // cluster-wide; clients see virtual ids instead
using NodeId = Id<struct NodeTag>;    // a vertex of the dataflow graph; increases in program order
using GroupId = Id<struct GroupTag>;  // shard buffers made together by one producer
using ExecutableId = Id<struct ExecutableTag>;  // compiled code, by content
using TransferId = Id<struct TransferTag>;      // known to both sides of a pull
using LaunchId = Id<struct LaunchTag>;          // place of a gang in its island's order
using Incarnation = Id<struct IncarnationTag>;  // new at every start of a process

}  // namespace fairway

template <typename Tag, typename Int>
struct std::hash<fairway::Id<Tag, Int>> {
  size_t operator()(fairway::Id<Tag, Int> id) const noexcept { return std::hash<Int>()(id.value); }
};
template <typename Tag, typename Int>
struct fmt::formatter<fairway::Id<Tag, Int>> : fmt::formatter<Int> {
  template <typename Context>
  auto format(fairway::Id<Tag, Int> id, Context& context) const {
    return fmt::formatter<Int>::format(id.value, context);
  }
};

#endif  // FAIRWAY_BASE_IDS_H_
