// SPDX-License-Identifier: Apache-2.0
#include "fairway/program.h"

#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"
#include "client/cpp/access.h"
#include "fairway/v1/program.pb.h"

namespace fairway::client {
namespace {

using Type = ProgramBuilder::Type;
using Value = ProgramBuilder::Value;
using Values = ProgramBuilder::Values;

void Put(const Type& type, v1::ArrayType* to) {
  to->set_dtype(static_cast<int32_t>(type.dtype));
  to->mutable_dims()->Assign(type.shape.begin(), type.shape.end());
  to->mutable_tiles()->Assign(type.tiles.begin(), type.tiles.end());
}

void Put(int slice, const Type& type, v1::SliceType* to) {
  to->set_slice(slice);
  Put(type, to->mutable_array());
}

template <typename Refs>
void Put(const Values& values, Refs* refs) {
  for (const Value& value : values) {
    v1::ValueRef* ref = refs->Add();
    ref->set_node(value.node);
    ref->set_output(value.output);
  }
}

}  // namespace

struct ProgramBuilder::State {
  uint64_t builder = 0;  // unique in this process; copies have the same number
  v1::Program program;
  Status error;  // the first error
  // The types of the values that each node of each graph makes.
  std::vector<std::vector<std::vector<v1::SliceType>>> types = {{}};
  size_t graph = 0;  // the graph that nodes are added to
  std::string next_name, next_source;

  void Refuse(const std::string& why) {
    if (!error.ok()) return;
    error =
        Status(StatusCode::kInvalidArgument, fmt::format("program '{}': {}", program.name(), why));
  }
  Computation Added(const v1::Computation& computation) const {
    return {program.computations_size() - 1, computation.results_size(), builder};
  }
  // The name that the controller uses (graph/program.cc, NodeText).
  std::string NewestNode(const v1::Node& node) const {
    std::string text = fmt::format("node {}", types[graph].size() - 1);
    if (graph != 0) text += fmt::format(" of graph {}", graph);
    if (!node.name().empty()) text += fmt::format(" \"{}\"", node.name());
    if (!node.source().empty()) text += fmt::format(" ({})", node.source());
    return text;
  }
  v1::Node* NewNode() {
    v1::Node* node = program.mutable_graphs(static_cast<int>(graph))->add_nodes();
    node->set_name(std::exchange(next_name, {}));
    node->set_source(std::exchange(next_source, {}));
    types[graph].emplace_back();
    return node;
  }
  Values Made(std::vector<v1::SliceType> made) {
    Values out;
    const int node = static_cast<int>(types[graph].size()) - 1;
    for (size_t o = 0; o < made.size(); ++o) out.push_back({node, static_cast<int>(o)});
    types[graph].back() = std::move(made);
    return out;
  }
  // Empty for a value that does not exist; the controller will name it.
  v1::SliceType TypeOf(Value value) const {
    const auto& nodes = types[graph];
    if (value.node < 0 || static_cast<size_t>(value.node) >= nodes.size()) return {};
    const auto& outputs = nodes[value.node];
    if (value.output < 0 || static_cast<size_t>(value.output) >= outputs.size()) return {};
    return outputs[value.output];
  }
};

const v1::Program& Access::Of(const ProgramBuilder& builder) { return builder.state_->program; }
const Status& Access::ErrorOf(const ProgramBuilder& builder) { return builder.state_->error; }

ProgramBuilder Access::Make(v1::Program program) {
  ProgramBuilder builder("");
  builder.state_->program = std::move(program);
  return builder;
}

ProgramBuilder::ProgramBuilder(std::string name) : state_(std::make_unique<State>()) {
  static std::atomic<uint64_t> builders{0};
  state_->builder = ++builders;
  state_->program.set_name(ValidUtf8(name));
  state_->program.add_graphs();
}
ProgramBuilder::~ProgramBuilder() = default;
ProgramBuilder::ProgramBuilder(const ProgramBuilder& other)
    : state_(std::make_unique<State>(*other.state_)) {}
ProgramBuilder& ProgramBuilder::operator=(const ProgramBuilder& other) {
  *state_ = *other.state_;
  return *this;
}

ProgramBuilder::Slice ProgramBuilder::AddSlice(std::string name, int devices) {
  v1::ProgramSlice* slice = state_->program.add_slices();
  slice->set_name(ValidUtf8(name));
  slice->set_devices(devices);
  return {state_->program.slices_size() - 1, devices};
}

ProgramBuilder::Computation ProgramBuilder::AddNative(const NativeProgram& program, int devices,
                                                      std::vector<Type> results) {
  const v1::NativeProgram& native = Access::Of(program);
  if (const Status& error = Access::ErrorOf(program); !error.ok()) state_->Refuse(error.message());
  v1::Computation* out = state_->program.add_computations();
  out->set_name(native.name());
  out->set_native(native.SerializeAsString());
  out->set_devices(devices);
  for (const v1::NativeParameter& parameter : native.parameters()) {
    v1::ArrayType* type = out->add_parameters();
    type->set_dtype(parameter.dtype());
    *type->mutable_dims() = parameter.global_dims();
    *type->mutable_tiles() = parameter.tiles();
  }
  for (const Type& type : results) Put(type, out->add_results());
  return state_->Added(*out);
}

ProgramBuilder::Computation ProgramBuilder::AddStableHlo(std::string name,
                                                         std::string_view artifact, int devices,
                                                         std::vector<Type> parameters,
                                                         std::vector<Type> results, bool shardy) {
  v1::Computation* out = state_->program.add_computations();
  out->set_name(ValidUtf8(name));
  out->set_stablehlo(artifact.data(), artifact.size());
  out->set_devices(devices);
  out->set_shardy(shardy);
  for (const Type& type : parameters) Put(type, out->add_parameters());
  for (const Type& type : results) Put(type, out->add_results());
  return state_->Added(*out);
}

ProgramBuilder& ProgramBuilder::At(std::string name, std::string source) {
  state_->next_name = ValidUtf8(name);
  state_->next_source = ValidUtf8(source);
  return *this;
}

Value ProgramBuilder::Argument(Slice slice, Type type, bool donated) {
  v1::Node::Argument* argument = state_->NewNode()->mutable_argument();
  Put(slice.number, type, argument->mutable_type());
  argument->set_donated(donated);
  return state_->Made({argument->type()})[0];
}

Value ProgramBuilder::Constant(Slice slice, Type type, std::string_view bytes) {
  v1::Node::Constant* constant = state_->NewNode()->mutable_constant();
  Put(slice.number, type, constant->mutable_type());
  constant->set_bytes(bytes.data(), bytes.size());
  return state_->Made({constant->type()})[0];
}

Values ProgramBuilder::Call(Computation computation, Slice slice, const Values& inputs) {
  v1::Node* node = state_->NewNode();
  v1::Node::Compute* compute = node->mutable_compute();
  compute->set_computation(computation.number);
  compute->set_slice(slice.number);
  Put(inputs, compute->mutable_inputs());
  if (computation.builder != state_->builder || computation.number < 0 ||
      computation.number >= state_->program.computations_size()) {
    state_->Refuse(state_->NewestNode(*node) +
                   ": Call was given a computation that this program does not have: one that "
                   "AddNative or AddStableHlo of the same ProgramBuilder made is expected");
    // As many values as the caller expects, who uses them before it sees the error.
    return state_->Made(std::vector<v1::SliceType>(
        static_cast<size_t>(computation.results > 0 ? computation.results : 0)));
  }
  std::vector<v1::SliceType> made;
  for (const v1::ArrayType& type : state_->program.computations(computation.number).results()) {
    made.emplace_back().set_slice(slice.number);
    *made.back().mutable_array() = type;
  }
  return state_->Made(std::move(made));
}

Value ProgramBuilder::Transfer(Value input, Slice slice, std::vector<int64_t> tiles) {
  v1::SliceType type = state_->TypeOf(input);
  type.set_slice(slice.number);
  type.mutable_array()->clear_tile_of();
  type.mutable_array()->mutable_tiles()->Assign(tiles.begin(), tiles.end());
  v1::Node::Transfer* transfer = state_->NewNode()->mutable_transfer();
  transfer->mutable_input()->set_node(input.node);
  transfer->mutable_input()->set_output(input.output);
  *transfer->mutable_type() = type;
  return state_->Made({std::move(type)})[0];
}

int ProgramBuilder::NewBody(const Values& inputs, const Body& body) {
  std::vector<v1::SliceType> given;
  for (const Value& input : inputs) given.push_back(state_->TypeOf(input));
  const size_t outer = state_->graph;
  const int graph = state_->program.graphs_size();
  state_->program.add_graphs();
  state_->types.emplace_back();
  state_->graph = static_cast<size_t>(graph);
  Values arguments;
  for (const v1::SliceType& type : given) {
    *state_->NewNode()->mutable_argument()->mutable_type() = type;
    arguments.push_back(state_->Made({type})[0]);
  }
  const Values results = body(arguments);
  Put(results, state_->program.mutable_graphs(graph)->mutable_results());
  state_->graph = outer;
  return graph;
}

Values ProgramBuilder::Loop(int64_t count, const Values& inputs, const Body& body) {
  const std::string name = std::exchange(state_->next_name, {});
  const std::string source = std::exchange(state_->next_source, {});
  const int graph = NewBody(inputs, body);
  v1::Node::Loop* loop = At(name, source).state_->NewNode()->mutable_loop();
  loop->set_body(graph);
  loop->set_count(count);
  Put(inputs, loop->mutable_inputs());
  std::vector<v1::SliceType> made;
  for (const Value& input : inputs) made.push_back(state_->TypeOf(input));
  return state_->Made(std::move(made));
}

Values ProgramBuilder::Branch(Value index, const Values& inputs, const std::vector<Body>& bodies) {
  const std::string name = std::exchange(state_->next_name, {});
  const std::string source = std::exchange(state_->next_source, {});
  std::vector<int> graphs;
  for (const Body& body : bodies) graphs.push_back(NewBody(inputs, body));
  v1::Node::Branch* branch = At(name, source).state_->NewNode()->mutable_branch();
  branch->mutable_index()->set_node(index.node);
  branch->mutable_index()->set_output(index.output);
  branch->mutable_bodies()->Assign(graphs.begin(), graphs.end());
  Put(inputs, branch->mutable_inputs());
  std::vector<v1::SliceType> made;
  if (!graphs.empty()) {
    const v1::Graph& first = state_->program.graphs(graphs[0]);
    const size_t outer = std::exchange(state_->graph, static_cast<size_t>(graphs[0]));
    for (const v1::ValueRef& ref : first.results())
      made.push_back(state_->TypeOf({ref.node(), ref.output()}));
    state_->graph = outer;
  }
  return state_->Made(std::move(made));
}

void ProgramBuilder::Result(Value value) {
  Put({value}, state_->program.mutable_graphs(0)->mutable_results());
}

}  // namespace fairway::client
