// SPDX-License-Identifier: Apache-2.0
#include "wire/program_codec.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "wire/limits.h"

namespace fairway {
namespace {

class Decoder {
 public:
  explicit Decoder(const v1::Program& in) : in_(in) {}

  absl::StatusOr<Program> Decode() {
    Program out;
    out.name = in_.name().empty() ? "program" : in_.name();
    size_t nodes = 0;
    for (const v1::Graph& graph : in_.graphs()) nodes += static_cast<size_t>(graph.nodes_size());
    if (nodes > kMaxNodes)
      return InvalidArgument("program {} has {} nodes, at most {} are allowed; use loops", out.name,
                             nodes, kMaxNodes);
    for (const v1::ProgramSlice& slice : in_.slices())
      out.slices.push_back({slice.name(), slice.devices()});
    for (const v1::Computation& computation : in_.computations()) {
      absl::StatusOr<Computation> taken = Take(computation);
      if (!taken.ok())
        return Annotate(taken.status(), fmt::format("program {}: computation \"{}\"", out.name,
                                                    computation.name()));
      out.computations.push_back(*std::move(taken));
    }
    for (const v1::Graph& graph : in_.graphs()) {
      Graph& to = out.graphs.emplace_back();
      for (const v1::Node& node : graph.nodes()) {
        absl::StatusOr<ProgramNode> taken = Take(node);
        if (!taken.ok())
          return Annotate(
              taken.status(),
              fmt::format("program {}: node {} of graph {} \"{}\" ({})", out.name, to.nodes.size(),
                          out.graphs.size() - 1, node.name(), node.source()));
        to.nodes.push_back(*std::move(taken));
      }
      to.results = Take(graph.results());
    }
    return out;
  }

 private:
  static ValueRef Take(const v1::ValueRef& in) { return {in.node(), in.output()}; }
  static std::vector<ValueRef> Take(const google::protobuf::RepeatedPtrField<v1::ValueRef>& in) {
    std::vector<ValueRef> out;
    for (const v1::ValueRef& ref : in) out.push_back(Take(ref));
    return out;
  }

  absl::StatusOr<ArraySpec> Take(const v1::ArrayType& in, int32_t devices) {
    const auto dtype = DTypeFromNumber(in.dtype());
    if (!dtype.has_value()) return InvalidArgument("there is no element type {}", in.dtype());
    if (in.dims_size() > kMaxRank) return InvalidArgument("rank {} is too high", in.dims_size());
    if (devices < 1) return InvalidArgument("a value on {} devices", devices);
    positions_ += devices;
    if (positions_ > kMaxPositions)
      return InvalidArgument("the program's types name more than {} positions in all",
                             kMaxPositions);
    ArraySpec out{*dtype, Shape{{in.dims().begin(), in.dims().end()}}, {}};
    FAIRWAY_RETURN_IF_ERROR(ByteSize(out.dtype, out.shape).status());
    const Sharding& whole = WholeOn(devices);
    if (in.tiles().empty()) {
      FAIRWAY_ASSIGN_OR_RETURN(out.sharding, whole.OnDevicesOf(whole, in.memory_kind()));
      return out;
    }
    const std::vector<int32_t>& positions = whole.devices();
    std::vector<int64_t> tile_of(in.tile_of().begin(), in.tile_of().end());
    if (tile_of.empty()) tile_of.assign(positions.begin(), positions.end());
    FAIRWAY_ASSIGN_OR_RETURN(
        const Sharding tiled,
        Sharding::Tiled(positions, {in.tiles().begin(), in.tiles().end()}, std::move(tile_of)));
    FAIRWAY_ASSIGN_OR_RETURN(out.sharding, tiled.OnDevicesOf(whole, in.memory_kind()));
    return out;
  }

  // Returns the sharding over positions 0 to n-1; all types over n devices share it.
  const Sharding& WholeOn(int32_t devices) {
    Sharding& known = whole_[devices];
    if (known.num_shards() == 0) {
      std::vector<int32_t> positions(devices);
      std::iota(positions.begin(), positions.end(), 0);
      known = Sharding::Replicated(std::move(positions));
    }
    return known;
  }

  absl::StatusOr<SliceSpec> Take(const v1::SliceType& in) {
    if (in.slice() < 0 || in.slice() >= in_.slices_size())
      return InvalidArgument("slice {} does not exist; the program has {}", in.slice(),
                             in_.slices_size());
    SliceSpec out{in.slice(), {}};
    FAIRWAY_ASSIGN_OR_RETURN(out.array, Take(in.array(), in_.slices(in.slice()).devices()));
    return out;
  }

  absl::StatusOr<Computation> Take(const v1::Computation& in) {
    Computation out;
    out.name = in.name();
    const bool native = in.has_native() || in.has_kernels();
    out.format = native ? Computation::Format::kNative : Computation::Format::kStableHlo;
    out.code =
        std::make_shared<const std::string>(in.has_kernels() ? in.kernels().SerializeAsString()
                                            : native         ? in.native()
                                                             : in.stablehlo());
    out.shardy = in.shardy();
    for (const v1::ArrayType& type : in.parameters()) {
      FAIRWAY_ASSIGN_OR_RETURN(out.parameters.emplace_back(), Take(type, in.devices()));
    }
    for (const v1::ArrayType& type : in.results()) {
      FAIRWAY_ASSIGN_OR_RETURN(out.results.emplace_back(), Take(type, in.devices()));
    }
    return out;
  }

  absl::StatusOr<ProgramNode> Take(const v1::Node& in) {
    ProgramNode out{in.name(), in.source(), ArgumentNode()};
    switch (in.op_case()) {
      case v1::Node::kArgument: {
        ArgumentNode op{{}, in.argument().donated()};
        FAIRWAY_ASSIGN_OR_RETURN(op.type, Take(in.argument().type()));
        out.op = std::move(op);
        return out;
      }
      case v1::Node::kConstant: {
        ConstantNode op{{}, std::make_shared<const std::string>(in.constant().bytes())};
        FAIRWAY_ASSIGN_OR_RETURN(op.type, Take(in.constant().type()));
        out.op = std::move(op);
        return out;
      }
      case v1::Node::kCompute:
        out.op = ComputeNode{in.compute().computation(), in.compute().slice(),
                             Take(in.compute().inputs())};
        return out;
      case v1::Node::kTransfer: {
        TransferNode op{Take(in.transfer().input()), {}};
        FAIRWAY_ASSIGN_OR_RETURN(op.type, Take(in.transfer().type()));
        out.op = std::move(op);
        return out;
      }
      case v1::Node::kLoop:
        out.op = LoopNode{in.loop().body(), in.loop().count(), Take(in.loop().inputs())};
        return out;
      case v1::Node::kBranch:
        out.op = BranchNode{Take(in.branch().index()),
                            {in.branch().bodies().begin(), in.branch().bodies().end()},
                            Take(in.branch().inputs())};
        return out;
      case v1::Node::OP_NOT_SET:
        break;
    }
    return InvalidArgument("it is of a kind that this version does not know");
  }

  const v1::Program& in_;
  int64_t positions_ = 0;
  std::map<int32_t, Sharding> whole_;  // by number of devices
};

struct Encoder {
  v1::Node* out;

  static void Put(ValueRef ref, v1::ValueRef* to) {
    to->set_node(ref.node);
    to->set_output(ref.output);
  }
  static void Put(const std::vector<ValueRef>& refs,
                  google::protobuf::RepeatedPtrField<v1::ValueRef>* to) {
    for (const ValueRef ref : refs) Put(ref, to->Add());
  }
  static void Put(const ArraySpec& type, v1::ArrayType* to) {
    to->set_dtype(static_cast<int32_t>(type.dtype));
    to->mutable_dims()->Assign(type.shape.dims.begin(), type.shape.dims.end());
    to->set_memory_kind(type.sharding.memory_kind());
    if (type.sharding.fully_replicated()) return;
    const auto& tiles = type.sharding.tiles();
    const auto& tile_of = type.sharding.tile_of();
    to->mutable_tiles()->Assign(tiles.begin(), tiles.end());
    to->mutable_tile_of()->Assign(tile_of.begin(), tile_of.end());
  }
  static void Put(const SliceSpec& type, v1::SliceType* to) {
    to->set_slice(type.slice);
    Put(type.array, to->mutable_array());
  }

  void operator()(const ArgumentNode& op) {
    Put(op.type, out->mutable_argument()->mutable_type());
    out->mutable_argument()->set_donated(op.donated);
  }
  void operator()(const ConstantNode& op) {
    Put(op.type, out->mutable_constant()->mutable_type());
    if (op.bytes != nullptr) out->mutable_constant()->set_bytes(*op.bytes);
  }
  void operator()(const ComputeNode& op) {
    out->mutable_compute()->set_computation(op.computation);
    out->mutable_compute()->set_slice(op.slice);
    Put(op.inputs, out->mutable_compute()->mutable_inputs());
  }
  void operator()(const TransferNode& op) {
    Put(op.input, out->mutable_transfer()->mutable_input());
    Put(op.type, out->mutable_transfer()->mutable_type());
  }
  void operator()(const LoopNode& op) {
    out->mutable_loop()->set_body(op.body);
    out->mutable_loop()->set_count(op.count);
    Put(op.inputs, out->mutable_loop()->mutable_inputs());
  }
  void operator()(const BranchNode& op) {
    Put(op.index, out->mutable_branch()->mutable_index());
    out->mutable_branch()->mutable_bodies()->Assign(op.bodies.begin(), op.bodies.end());
    Put(op.inputs, out->mutable_branch()->mutable_inputs());
  }
};

}  // namespace

absl::StatusOr<Program> ProgramFromProto(const v1::Program& in) { return Decoder(in).Decode(); }

size_t ProgramBytes(const v1::Program& in) {
  constexpr size_t kNode = 512;  // the memory of a node beyond its message
  size_t nodes = 0;
  for (const v1::Graph& graph : in.graphs()) nodes += static_cast<size_t>(graph.nodes_size());
  return 2 * in.SpaceUsedLong() + nodes * kNode;
}

void ToProto(const Program& program, v1::Program* out) {
  out->set_name(program.name);
  for (const ProgramSlice& slice : program.slices) {
    v1::ProgramSlice* to = out->add_slices();
    to->set_name(slice.name);
    to->set_devices(slice.devices);
  }
  for (const Computation& computation : program.computations) {
    v1::Computation* to = out->add_computations();
    to->set_name(computation.name);
    const bool native = computation.format == Computation::Format::kNative;
    const std::string code = computation.code == nullptr ? "" : *computation.code;
    native ? to->set_native(code) : to->set_stablehlo(code);
    to->set_shardy(computation.shardy);
    const auto devices = [&](const ArraySpec& type) {
      to->set_devices(type.sharding.num_shards());
      return type;
    };
    for (const ArraySpec& type : computation.parameters)
      Encoder::Put(devices(type), to->add_parameters());
    for (const ArraySpec& type : computation.results)
      Encoder::Put(devices(type), to->add_results());
  }
  for (const Graph& graph : program.graphs) {
    v1::Graph* to = out->add_graphs();
    for (const ProgramNode& node : graph.nodes) {
      v1::Node* at = to->add_nodes();
      at->set_name(node.name);
      at->set_source(node.source);
      std::visit(Encoder{at}, node.op);
    }
    Encoder::Put(graph.results, to->mutable_results());
  }
}

}  // namespace fairway
