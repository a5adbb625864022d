// SPDX-License-Identifier: Apache-2.0
#include "wire/ifrt_sharding.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "wire/ifrt_values.h"

namespace fairway {
namespace {

using xla::OpSharding;

// Returns the product of positive extents, at most `limit`; else INVALID_ARGUMENT.
template <typename Range>
absl::StatusOr<int64_t> BoundedProduct(const Range& extents, int64_t limit, std::string_view what) {
  if (extents.size() > kMaxRank)
    return InvalidArgument("{} has {} dimensions", what, extents.size());
  int64_t product = 1;
  for (const int64_t extent : extents) {
    if (extent < 1 || extent > limit || product > limit / extent)
      return InvalidArgument("{} [{}] does not fit {} devices", what, fmt::join(extents, ","),
                             limit);
    product *= extent;
  }
  return product;
}

// iota(product(reshape_dims)) reshaped to reshape_dims, transposed by perm, flattened.
template <typename Dims, typename Perm>
absl::StatusOr<std::vector<int64_t>> TransposedIota(const Dims& reshape_dims, const Perm& perm,
                                                    int num_devices) {
  FAIRWAY_ASSIGN_OR_RETURN(const int64_t count,
                           BoundedProduct(reshape_dims, num_devices, "iota tile assignment"));
  if (count != num_devices)
    return InvalidArgument("iota tile assignment [{}] is not of {} devices",
                           fmt::join(reshape_dims, ","), num_devices);
  const size_t rank = reshape_dims.size();
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (perm.size() != 0) {
    if (static_cast<size_t>(perm.size()) != rank ||
        !std::is_permutation(perm.begin(), perm.end(), order.begin()))
      return InvalidArgument("iota transposition [{}] is no permutation of {} dimensions",
                             fmt::join(perm, ","), rank);
    std::copy(perm.begin(), perm.end(), order.begin());
  }
  std::vector<int64_t> stride(rank, 1);
  for (int d = static_cast<int>(rank) - 2; d >= 0; --d)
    stride[d] = stride[d + 1] * reshape_dims[d + 1];
  std::vector<int64_t> out;
  out.reserve(count);
  std::vector<int64_t> index(rank, 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t value = 0;
    for (size_t d = 0; d < rank; ++d) value += index[d] * stride[order[d]];
    out.push_back(value);
    for (int d = static_cast<int>(rank) - 1; d >= 0; --d) {
      if (++index[d] < reshape_dims[order[d]]) break;
      index[d] = 0;
    }
  }
  return out;
}

absl::Status CheckPermutation(const std::vector<int64_t>& positions, int num_devices) {
  std::vector<bool> seen(num_devices, false);
  if (positions.size() != static_cast<size_t>(num_devices))
    return InvalidArgument("tile assignment names {} devices, not {}", positions.size(),
                           num_devices);
  for (const int64_t p : positions) {
    if (p < 0 || p >= num_devices || seen[p])
      return InvalidArgument("tile assignment names device {} twice or outside 0..{}", p,
                             num_devices - 1);
    seen[p] = true;
  }
  return absl::OkStatus();
}

// `part_of`: a number for the contents of each position within its tile; equal numbers hold the
// same.
TileAssignment Assigned(std::vector<int64_t> tiles, std::vector<int64_t> tile_of,
                        const std::vector<int64_t>& part_of) {
  TileAssignment out;
  if (std::any_of(tiles.begin(), tiles.end(), [](int64_t n) { return n > 1; }))
    out.tiles = std::move(tiles);
  if (std::any_of(part_of.begin(), part_of.end(), [&](int64_t p) { return p != part_of[0]; })) {
    out.kind = TileAssignment::Kind::kPerDevice;
    const auto positions = static_cast<int64_t>(tile_of.size());
    std::map<std::pair<int64_t, int64_t>, int64_t> first;
    for (int64_t i = 0; i < positions; ++i)
      tile_of[i] =
          tile_of[i] * positions + first.try_emplace({tile_of[i], part_of[i]}, i).first->second;
  } else if (!out.tiles.empty()) {
    out.kind = TileAssignment::Kind::kTiled;
  } else {
    return out;
  }
  out.tile_of = std::move(tile_of);
  return out;
}

// A dimension of an assignment after those of the data.
struct Subgroup {
  int64_t size = 1;
  bool own = false;  // its positions hold different contents, not copies
};

// `order[i]`: device position at row-major place i of the assignment.
TileAssignment FromOrder(std::vector<int64_t> tiles, const std::vector<int64_t>& order,
                         const std::vector<Subgroup>& subgroups) {
  std::vector<int64_t> tile_of(order.size()), part_of(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    int64_t part = 0, stride = 1;
    for (auto group = subgroups.rbegin(); group != subgroups.rend(); ++group) {
      if (group->own) {
        part += rest % group->size * stride;
        stride *= group->size;
      }
      rest /= group->size;
    }
    tile_of[order[i]] = rest;
    part_of[order[i]] = part;
  }
  return Assigned(std::move(tiles), std::move(tile_of), part_of);
}

absl::StatusOr<TileAssignment> FromTiled(const OpSharding& s, int num_devices) {
  const auto& dims = s.tile_assignment_dimensions();
  FAIRWAY_ASSIGN_OR_RETURN(const int64_t count,
                           BoundedProduct(dims, num_devices, "tile assignment"));
  if (count != num_devices)
    return InvalidArgument("tile assignment [{}] is not of {} devices", fmt::join(dims, ","),
                           num_devices);
  const int extra = s.last_tile_dims_size() + (s.replicate_on_last_tile_dim() ? 1 : 0);
  if (extra > dims.size())
    return InvalidArgument("tile assignment [{}] has no data dimensions", fmt::join(dims, ","));
  std::vector<int64_t> order;
  if (!s.tile_assignment_devices().empty()) {
    order.assign(s.tile_assignment_devices().begin(), s.tile_assignment_devices().end());
  } else if (s.iota_reshape_dims().empty()) {
    order.resize(num_devices);
    std::iota(order.begin(), order.end(), 0);
  } else {
    FAIRWAY_ASSIGN_OR_RETURN(
        order, TransposedIota(s.iota_reshape_dims(), s.iota_transpose_perm(), num_devices));
  }
  FAIRWAY_RETURN_IF_ERROR(CheckPermutation(order, num_devices));
  std::vector<int64_t> tiles(dims.begin(), dims.end() - extra);
  std::vector<Subgroup> subgroups;
  for (int i = 0; i < extra; ++i) {
    const bool own = i < s.last_tile_dims_size() && (s.last_tile_dims(i) == OpSharding::MANUAL ||
                                                     s.last_tile_dims(i) == OpSharding::UNREDUCED);
    subgroups.push_back({dims[dims.size() - extra + i], own});
  }
  return FromOrder(std::move(tiles), order, subgroups);
}

// The position of a device on one mesh axis, or on a part of it.
struct AxisPart {
  int64_t divisor = 1;  // of the axis coordinate
  int64_t size = 1;
};

absl::StatusOr<AxisPart> PartOf(const xla::AxisRefProto& ref, const xla::MeshProto& mesh) {
  if (ref.mesh_axis_index() < 0 || ref.mesh_axis_index() >= mesh.axes_size())
    return InvalidArgument("sharding names mesh axis {} of {}", ref.mesh_axis_index(),
                           mesh.axes_size());
  const int64_t axis_size = mesh.axes(static_cast<int>(ref.mesh_axis_index())).size();
  if (!ref.has_sub_axis_info()) return AxisPart{1, axis_size};
  const int64_t pre = ref.sub_axis_info().pre_size();
  const int64_t size = ref.sub_axis_info().size();
  if (pre < 1 || size < 1 || pre > axis_size || size > axis_size || axis_size % (pre * size) != 0)
    return InvalidArgument("sub-axis ({}){} does not divide an axis of {}", pre, size, axis_size);
  return AxisPart{axis_size / (pre * size), size};
}

// A part of a mesh axis that cuts a dimension, or along which contents differ.
struct Cut {
  size_t axis = 0;
  AxisPart part;
};

// Returns the cuts by dimension, then those along which contents differ. Computed once: a sharding
// may have as many devices as fit into a message.
absl::StatusOr<std::vector<std::vector<Cut>>> CutsOf(const xla::NamedShardingProto& s) {
  if (s.dim_shardings_size() > kMaxRank)
    return InvalidArgument("sharding of rank {}", s.dim_shardings_size());
  std::vector<std::vector<Cut>> cuts;
  int count = 0;
  const auto add = [&](const auto& axes) -> absl::Status {
    count += std::min(axes.size(), kMaxRank + 1);
    if (count > kMaxRank)
      return InvalidArgument("a sharding names parts of mesh axes more than {} times", kMaxRank);
    for (const auto& ref : axes) {
      FAIRWAY_ASSIGN_OR_RETURN(const AxisPart part, PartOf(ref, s.mesh()));
      cuts.back().push_back({static_cast<size_t>(ref.mesh_axis_index()), part});
    }
    return absl::OkStatus();
  };
  for (const auto& dim : s.dim_shardings()) {
    cuts.emplace_back();
    FAIRWAY_RETURN_IF_ERROR(add(dim.axes()));
  }
  cuts.emplace_back();
  FAIRWAY_RETURN_IF_ERROR(add(s.unreduced_axes()));
  FAIRWAY_RETURN_IF_ERROR(add(s.manual_axes()));
  return cuts;
}

std::string ReductionName(xla::NamedShardingProto::ReductionOpProto op) {
  return xla::NamedShardingProto::ReductionOpProto_IsValid(op)
             ? xla::NamedShardingProto::ReductionOpProto_Name(op)
             : fmt::format("number {}", static_cast<int>(op));
}

absl::StatusOr<TileAssignment> FromNamed(const xla::NamedShardingProto& s, int num_devices) {
  // The core sums unreduced values up.
  if (s.reduction_op() != xla::NamedShardingProto::SUM)
    return Error(absl::StatusCode::kUnimplemented,
                 "an unreduced sharding whose reduction is {} is not served, only SUM",
                 ReductionName(s.reduction_op()));
  const xla::MeshProto& mesh = s.mesh();
  std::vector<int64_t> axes;
  for (const auto& axis : mesh.axes()) axes.push_back(axis.size());
  if (axes.empty()) return TileAssignment();
  FAIRWAY_ASSIGN_OR_RETURN(const int64_t count, BoundedProduct(axes, num_devices, "mesh"));
  if (count != num_devices)
    return InvalidArgument("mesh [{}] is not of {} devices", fmt::join(axes, ","), num_devices);
  std::vector<int64_t> order(num_devices);
  std::iota(order.begin(), order.end(), 0);
  if (!mesh.device_ids().empty()) {
    order.assign(mesh.device_ids().begin(), mesh.device_ids().end());
  } else if (mesh.has_iota_transform()) {
    FAIRWAY_ASSIGN_OR_RETURN(order,
                             TransposedIota(mesh.iota_transform().reshape_dims(),
                                            mesh.iota_transform().transpose_perm(), num_devices));
  }
  FAIRWAY_RETURN_IF_ERROR(CheckPermutation(order, num_devices));
  FAIRWAY_ASSIGN_OR_RETURN(const std::vector<std::vector<Cut>> cuts, CutsOf(s));
  std::vector<int64_t> tiles;
  for (const auto& of_dimension : cuts) {
    int64_t pieces = 1;
    for (const Cut& cut : of_dimension) {
      if (cut.part.size > num_devices / pieces)
        return InvalidArgument("sharding cuts into more pieces than devices");
      pieces *= cut.part.size;
    }
    tiles.push_back(pieces);
  }
  tiles.pop_back();  // the last one belongs to no dimension
  FAIRWAY_RETURN_IF_ERROR(BoundedProduct(tiles, num_devices, "named sharding").status());
  std::vector<int64_t> tile_of(num_devices), part_of(num_devices);
  std::vector<int64_t> coordinate(axes.size());
  for (int place = 0; place < num_devices; ++place) {
    int64_t rest = place;
    for (int a = static_cast<int>(axes.size()) - 1; a >= 0; --a) {
      coordinate[a] = rest % axes[a];
      rest /= axes[a];
    }
    int64_t tile = 0, index = 0;
    for (size_t d = 0; d < cuts.size(); ++d) {
      index = 0;
      for (const auto& [axis, part] : cuts[d])
        index = index * part.size + coordinate[axis] / part.divisor % part.size;
      if (d + 1 < cuts.size()) tile = tile * tiles[d] + index;
    }
    tile_of[order[place]] = tile;
    part_of[order[place]] = index;
  }
  return Assigned(std::move(tiles), std::move(tile_of), part_of);
}

// See xla/python/ifrt/ir/sharding_param.h: mesh axes are listed minor to major.
absl::StatusOr<TileAssignment> FromParam(const xla::ifrt::ShardingParamProto& param,
                                         int num_devices) {
  std::vector<int64_t> reshape(param.axis_sizes().rbegin(), param.axis_sizes().rend());
  std::vector<int64_t> perm;
  for (auto it = param.permutation().rbegin(); it != param.permutation().rend(); ++it)
    perm.push_back(int64_t{param.axis_sizes_size()} - *it - 1);
  FAIRWAY_ASSIGN_OR_RETURN(const std::vector<int64_t> order,
                           TransposedIota(reshape, perm, num_devices));
  std::vector<int64_t> tiles(param.dim_shards().begin(), param.dim_shards().end());
  FAIRWAY_ASSIGN_OR_RETURN(const int64_t pieces, BoundedProduct(tiles, num_devices, "dim_shards"));
  if (num_devices % pieces != 0)
    return InvalidArgument("dim_shards [{}] do not divide {} devices", fmt::join(tiles, ","),
                           num_devices);
  if (!param.unreduced_axes().empty() && num_devices > 1)
    return Error(absl::StatusCode::kUnimplemented,
                 "a ShardingParamSharding with unreduced axes is not served; use an HloSharding");
  return FromOrder(std::move(tiles), order, {{num_devices / pieces, /*own=*/false}});
}

absl::StatusOr<Sharding> FromTiles(TileAssignment tiles, std::vector<int32_t> devices,
                                   const Shape& shape, std::string memory_kind) {
  if (!tiles.tiles.empty() && tiles.tiles.size() != shape.dims.size())
    return InvalidArgument("a sharding of rank {} does not fit an array of rank {}",
                           tiles.tiles.size(), shape.dims.size());
  switch (tiles.kind) {
    case TileAssignment::Kind::kReplicated:
      return Sharding::Replicated(std::move(devices), std::move(memory_kind));
    case TileAssignment::Kind::kPerDevice: {
      Shape shard = shape;
      for (size_t d = 0; d < tiles.tiles.size(); ++d)
        shard.dims[d] = (shape.dims[d] + tiles.tiles[d] - 1) / tiles.tiles[d];
      return Sharding::PerDevice(std::move(devices), std::move(shard), std::move(tiles.tile_of),
                                 std::move(memory_kind));
    }
    case TileAssignment::Kind::kTiled:
      return Sharding::Tiled(std::move(devices), std::move(tiles.tiles), std::move(tiles.tile_of),
                             std::move(memory_kind));
  }
  return InvalidArgument("unknown kind of tile assignment");
}

absl::StatusOr<std::vector<int32_t>> Devices(const xla::ifrt::DeviceListProto& list) {
  if (list.device_ids().empty()) return InvalidArgument("a sharding without devices");
  if (list.device_ids_size() > kMaxDevices)
    return InvalidArgument("a sharding over {} devices; at most {} are served",
                           list.device_ids_size(), kMaxDevices);
  std::vector<int32_t> sorted(list.device_ids().begin(), list.device_ids().end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return InvalidArgument("a sharding names device {} twice", *twice);
  return std::vector<int32_t>(list.device_ids().begin(), list.device_ids().end());
}

template <typename Proto>
absl::StatusOr<Proto> Parse(const xla::ifrt::Serialized& serialized) {
  Proto proto;
  if (!proto.ParseFromString(serialized.data()))
    return InvalidArgument("a {} that does not parse", serialized.type_name());
  return proto;
}

absl::StatusOr<Sharding> FromConcrete(const xla::ifrt::ConcreteShardingProto& proto) {
  if (!proto.has_shape())
    return Error(absl::StatusCode::kUnimplemented, "shardings of dynamic shapes are not served");
  FAIRWAY_ASSIGN_OR_RETURN(std::vector<int32_t> devices, Devices(proto.devices()));
  std::vector<Shape> shapes;
  for (const auto& shard : proto.shard_shapes()) {
    FAIRWAY_ASSIGN_OR_RETURN(shapes.emplace_back(), ShapeFromProto(shard));
  }
  return Sharding::Concrete(std::move(devices), std::move(shapes), proto.memory_kind());
}

// Parses the proto of a concrete class out of its envelope.
template <typename Proto>
void Wrap(const char* type_name, const Sharding& sharding, Proto& proto,
          xla::ifrt::ShardingProto* out) {
  if (!sharding.memory_kind().empty()) proto.set_memory_kind(sharding.memory_kind());
  out->mutable_serialized_sharding()->set_type_name(type_name);
  proto.SerializeToString(out->mutable_serialized_sharding()->mutable_data());
}

void SetDevices(const Sharding& sharding, xla::ifrt::DeviceListProto* list) {
  list->mutable_device_ids()->Assign(sharding.devices().begin(), sharding.devices().end());
}

absl::Status ConcreteToProto(const Sharding& sharding, const Shape& shape,
                             xla::ifrt::ShardingProto* out) {
  xla::ifrt::ConcreteShardingProto proto;
  SetDevices(sharding, proto.mutable_devices());
  ShapeToProto(shape, proto.mutable_shape());
  for (int i = 0; i < sharding.num_shards(); ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(const Shape shard, sharding.ShardShape(shape, i));
    ShapeToProto(shard, proto.add_shard_shapes());
  }
  Wrap("xla::ifrt::ConcreteSharding", sharding, proto, out);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TileAssignment> TilesFromOpSharding(const OpSharding& sharding, int num_devices) {
  if (num_devices < 1) return InvalidArgument("a sharding without devices");
  if (sharding.has_named_sharding()) return FromNamed(sharding.named_sharding(), num_devices);
  switch (sharding.type()) {
    case OpSharding::REPLICATED:
    case OpSharding::MAXIMAL:
      return TileAssignment();
    case OpSharding::MANUAL:
    case OpSharding::UNREDUCED: {
      std::vector<int64_t> part_of(num_devices);
      std::iota(part_of.begin(), part_of.end(), 0);
      return Assigned({}, std::vector<int64_t>(num_devices, 0), part_of);
    }
    case OpSharding::OTHER:
      return FromTiled(sharding, num_devices);
    default:
      return InvalidArgument("sharding type {} does not describe a single array",
                             static_cast<int>(sharding.type()));
  }
}

absl::StatusOr<OpSharding> OpShardingFromTiles(const TileAssignment& tiles, int num_devices) {
  OpSharding out;
  switch (tiles.kind) {
    case TileAssignment::Kind::kReplicated:
      out.set_type(OpSharding::REPLICATED);
      return out;
    case TileAssignment::Kind::kPerDevice:
      return InvalidArgument("contents are per device: tiles cannot describe them");
    case TileAssignment::Kind::kTiled:
      break;
  }
  FAIRWAY_ASSIGN_OR_RETURN(const int64_t count, BoundedProduct(tiles.tiles, num_devices, "tiles"));
  const int64_t copies = num_devices / count;
  std::vector<std::vector<int64_t>> holders(count);
  for (size_t i = 0; i < tiles.tile_of.size(); ++i)
    holders.at(tiles.tile_of[i]).push_back(static_cast<int64_t>(i));
  out.set_type(OpSharding::OTHER);
  out.mutable_tile_assignment_dimensions()->Assign(tiles.tiles.begin(), tiles.tiles.end());
  if (copies > 1) {
    out.add_tile_assignment_dimensions(copies);
    out.set_replicate_on_last_tile_dim(true);
  }
  for (const auto& holder : holders) {
    if (static_cast<int64_t>(holder.size()) != copies)
      return InvalidArgument("tiles lie on unequal numbers of devices");
    for (const int64_t position : holder) out.add_tile_assignment_devices(position);
  }
  return out;
}

absl::StatusOr<Sharding> ShardingFromProto(const xla::ifrt::ShardingProto& proto,
                                           const Shape& shape) {
  const xla::ifrt::Serialized& s = proto.serialized_sharding();
  if (s.type_name() == "xla::ifrt::SingleDeviceSharding") {
    FAIRWAY_ASSIGN_OR_RETURN(const auto single, Parse<xla::ifrt::SingleDeviceShardingProto>(s));
    return Sharding::SingleDevice(single.device_id(), single.memory_kind());
  }
  if (s.type_name() == "xla::ifrt::HloSharding") {
    FAIRWAY_ASSIGN_OR_RETURN(const auto hlo, Parse<xla::ifrt::HloShardingProto>(s));
    FAIRWAY_ASSIGN_OR_RETURN(std::vector<int32_t> devices, Devices(hlo.devices()));
    FAIRWAY_ASSIGN_OR_RETURN(
        TileAssignment tiles,
        TilesFromOpSharding(hlo.xla_op_sharding(), static_cast<int>(devices.size())));
    return FromTiles(std::move(tiles), std::move(devices), shape, hlo.memory_kind());
  }
  if (s.type_name() == "xla::ifrt::ConcreteEvenSharding") {
    FAIRWAY_ASSIGN_OR_RETURN(const auto even, Parse<xla::ifrt::ConcreteEvenShardingProto>(s));
    FAIRWAY_ASSIGN_OR_RETURN(std::vector<int32_t> devices, Devices(even.devices()));
    FAIRWAY_ASSIGN_OR_RETURN(Shape shard, ShapeFromProto(even.shard_shape()));
    return Sharding::ConcreteEven(std::move(devices), std::move(shard), even.is_fully_replicated(),
                                  even.memory_kind());
  }
  if (s.type_name() == "xla::ifrt::ConcreteSharding") {
    FAIRWAY_ASSIGN_OR_RETURN(const auto concrete, Parse<xla::ifrt::ConcreteShardingProto>(s));
    return FromConcrete(concrete);
  }
  if (s.type_name() == "xla::ifrt::OpaqueSharding") {
    FAIRWAY_ASSIGN_OR_RETURN(const auto opaque, Parse<xla::ifrt::OpaqueShardingProto>(s));
    FAIRWAY_ASSIGN_OR_RETURN(std::vector<int32_t> devices, Devices(opaque.devices()));
    return Sharding::Opaque(std::move(devices), opaque.memory_kind());
  }
  if (s.type_name() == "xla::ifrt::ShardingParamSharding") {
    FAIRWAY_ASSIGN_OR_RETURN(const auto param, Parse<xla::ifrt::ShardingParamShardingProto>(s));
    FAIRWAY_ASSIGN_OR_RETURN(std::vector<int32_t> devices, Devices(param.devices()));
    FAIRWAY_ASSIGN_OR_RETURN(TileAssignment tiles,
                             FromParam(param.sharding_param(), static_cast<int>(devices.size())));
    return FromTiles(std::move(tiles), std::move(devices), shape, param.memory_kind());
  }
  return Error(absl::StatusCode::kUnimplemented, "sharding type \"{}\" is not served",
               ValidUtf8(s.type_name()));
}

absl::Status ShardingToProto(const Sharding& sharding, const Shape& shape,
                             xla::ifrt::ShardingProto* proto) {
  switch (sharding.kind()) {
    case Sharding::Kind::kSingleDevice: {
      xla::ifrt::SingleDeviceShardingProto single;
      single.set_device_id(sharding.devices()[0]);
      Wrap("xla::ifrt::SingleDeviceSharding", sharding, single, proto);
      return absl::OkStatus();
    }
    case Sharding::Kind::kTiled: {
      TileAssignment tiles;
      if (!sharding.fully_replicated())
        tiles = {TileAssignment::Kind::kTiled, sharding.tiles(), sharding.tile_of()};
      const auto op = OpShardingFromTiles(tiles, sharding.num_shards());
      if (!op.ok()) return ConcreteToProto(sharding, shape, proto);
      xla::ifrt::HloShardingProto hlo;
      SetDevices(sharding, hlo.mutable_devices());
      *hlo.mutable_xla_op_sharding() = *op;
      Wrap("xla::ifrt::HloSharding", sharding, hlo, proto);
      return absl::OkStatus();
    }
    case Sharding::Kind::kConcreteEven: {
      xla::ifrt::ConcreteEvenShardingProto even;
      SetDevices(sharding, even.mutable_devices());
      ShapeToProto(shape, even.mutable_shape());
      FAIRWAY_ASSIGN_OR_RETURN(const Shape shard, sharding.ShardShape(shape, 0));
      ShapeToProto(shard, even.mutable_shard_shape());
      even.set_is_fully_replicated(sharding.fully_replicated());
      Wrap("xla::ifrt::ConcreteEvenSharding", sharding, even, proto);
      return absl::OkStatus();
    }
    case Sharding::Kind::kConcrete:
      return ConcreteToProto(sharding, shape, proto);
    case Sharding::Kind::kOpaque: {
      xla::ifrt::OpaqueShardingProto opaque;
      SetDevices(sharding, opaque.mutable_devices());
      Wrap("xla::ifrt::OpaqueSharding", sharding, opaque, proto);
      return absl::OkStatus();
    }
  }
  return InvalidArgument("unknown sharding kind");
}

absl::StatusOr<ArraySpec> ArraySpecFromProtos(const xla::ifrt::DTypeProto& dtype,
                                              const xla::ifrt::ShapeProto& shape,
                                              const xla::ifrt::ShardingProto& sharding) {
  ArraySpec spec;
  FAIRWAY_ASSIGN_OR_RETURN(spec.dtype, DTypeFromProto(dtype));
  FAIRWAY_ASSIGN_OR_RETURN(spec.shape, ShapeFromProto(shape));
  FAIRWAY_RETURN_IF_ERROR(ByteSize(spec.dtype, spec.shape).status());
  FAIRWAY_ASSIGN_OR_RETURN(spec.sharding, ShardingFromProto(sharding, spec.shape));
  return spec;
}

absl::StatusOr<ArraySpec> ArraySpecFromProto(const xla::ifrt::ArraySpecProto& proto) {
  return ArraySpecFromProtos(proto.dtype(), proto.shape(), proto.sharding());
}

}  // namespace fairway
