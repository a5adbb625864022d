// SPDX-License-Identifier: Apache-2.0
#include "client/cli/program_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

namespace fairway {
namespace {

using google::protobuf::TextFormat;

absl::StatusOr<std::string> ContentsOf(const std::string& path) {
  // A stream opens a directory without an error, and throws when it is read.
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return InvalidArgument("cannot read {}: is a directory", path);
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.good() && !in.eof()) return Error(absl::StatusCode::kNotFound, "cannot read {}", path);
  return text;
}

// Keeps the first error.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(const std::string& path) : path_(path) {}
  void AddError(int line, int column, const std::string& message) override {
    if (text.empty()) text = fmt::format("{}:{}:{}: {}", path_, line + 1, column + 1, message);
  }
  std::string text;

 private:
  const std::string& path_;
};

// Gives each node without a source its place in the file.
void AddSources(const std::string& path, const TextFormat::ParseInfoTree& tree,
                v1::Program& program) {
  const auto* graphs = v1::Program::descriptor()->FindFieldByName("graphs");
  const auto* nodes = v1::Graph::descriptor()->FindFieldByName("nodes");
  for (int g = 0; g < program.graphs_size(); ++g) {
    const TextFormat::ParseInfoTree* graph = tree.GetTreeForNested(graphs, g);
    for (int n = 0; n < program.graphs(g).nodes_size(); ++n) {
      v1::Node& node = *program.mutable_graphs(g)->mutable_nodes(n);
      if (graph == nullptr || !node.source().empty()) continue;
      node.set_source(fmt::format("{}:{}", path, graph->GetLocation(nodes, n).line + 1));
    }
  }
}

absl::StatusOr<v1::Program> FromText(const std::string& path, const std::string& text) {
  v1::Program program;
  TextFormat::Parser parser;
  TextFormat::ParseInfoTree tree;
  FirstError error(path);
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&tree);
  if (!parser.ParseFromString(text, &program)) return InvalidArgument("{}", error.text);
  AddSources(path, tree, program);
  return program;
}

absl::StatusOr<v1::Program> FromJson(const std::string& path, const std::string& text) {
  v1::Program program;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &program);
  if (!status.ok())
    return InvalidArgument("{}: {}", path,
                           std::string_view(status.message().data(), status.message().size()));
  for (v1::Graph& graph : *program.mutable_graphs()) {
    for (v1::Node& node : *graph.mutable_nodes()) {
      if (node.source().empty()) node.set_source(path);
    }
  }
  return program;
}

std::vector<std::string> Unique(std::vector<std::string> names) {
  std::vector<std::string> out = names;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty() || std::count(names.begin(), names.end(), names[i]) > 1)
      out[i] = fmt::format("{}", i);
  }
  return out;
}

}  // namespace

absl::StatusOr<v1::Program> ReadProgramFile(const std::string& path) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::string text, ContentsOf(path));
  return path.ends_with(".json") ? FromJson(path, text) : FromText(path, text);
}

absl::Status AddCode(const std::vector<std::string>& given, v1::Program& program) {
  for (const std::string& pair : given) {
    const size_t at = pair.find('=');
    if (at == std::string::npos)
      return InvalidArgument("--code is '{}', not COMPUTATION=FILE", pair);
    const std::string name = pair.substr(0, at);
    FAIRWAY_ASSIGN_OR_RETURN(const std::string code, ContentsOf(pair.substr(at + 1)));
    bool found = false;
    for (v1::Computation& computation : *program.mutable_computations()) {
      if (computation.name() != name) continue;
      found = true;
      computation.set_stablehlo(code);
    }
    if (!found)
      return InvalidArgument("--code {}: no computation of the program has that name", pair);
  }
  return absl::OkStatus();
}

std::vector<std::string> ArgumentNames(const v1::Program& program) {
  std::vector<std::string> names;
  if (program.graphs().empty()) return names;
  for (const v1::Node& node : program.graphs(0).nodes()) {
    if (node.has_argument()) names.push_back(node.name());
  }
  return Unique(std::move(names));
}

std::vector<std::string> ResultNames(const v1::Program& program) {
  std::vector<std::string> names;
  if (program.graphs().empty()) return names;
  const v1::Graph& graph = program.graphs(0);
  for (const v1::ValueRef& result : graph.results()) {
    const bool there = result.node() >= 0 && result.node() < graph.nodes_size();
    names.push_back(there ? graph.nodes(result.node()).name() : "");
  }
  return Unique(std::move(names));
}

}  // namespace fairway
