// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/dialogue.h"

#include <numeric>
#include <regex>
#include <sstream>

#include <fmt/ranges.h>
#include <google/protobuf/text_format.h>

#include "controller/cluster/inspection.h"
#include "wire/ifrt_sharding.h"
#include "wire/ifrt_values.h"

namespace fairway {
namespace {

std::vector<int> Numbers(const std::string& text) {
  std::istringstream in(text);
  std::vector<int> out;
  for (int n = 0; in >> n;) out.push_back(n);
  return out;
}

std::string ShardingField(const Sharding& sharding) {
  xla::ifrt::ShardingProto proto;
  EXPECT_TRUE(ShardingToProto(sharding, Shape{{8}}, &proto).ok());
  return fmt::format("sharding {{ {} }}", proto.ShortDebugString());
}

template <typename Proto>
std::string LayoutField(const std::string& type, const Proto& proto) {
  xla::ifrt::LayoutProto layout;
  layout.mutable_serialized_layout()->set_type_name(type);
  layout.mutable_serialized_layout()->set_data(proto.SerializeAsString());
  return fmt::format("layout {{ {} }}", layout.ShortDebugString());
}

std::string ProgramFields(const std::vector<int>& numbers) {
  xla::ifrt::XlaCompileOptionsProto options;
  auto* build = options.mutable_compile_options()->mutable_executable_build_options();
  const int partitions = numbers.at(0);
  build->set_num_replicas(1);
  build->set_num_partitions(partitions);
  build->set_use_spmd_partitioning(true);
  if (numbers.size() > 1) {
    build->mutable_device_assignment()->set_replica_count(1);
    build->mutable_device_assignment()->set_computation_count(partitions);
    for (size_t i = 1; i < numbers.size(); ++i)
      build->mutable_device_assignment()->add_computation_devices()->add_replica_device_ids(
          numbers[i]);
  } else {
    options.mutable_compile_options()->set_compile_portable_executable(true);
  }
  xla::ifrt::proxy::CompileRequest request;
  request.mutable_program()->set_type_name("xla::ifrt::XlaProgram");
  request.mutable_program()->set_data("a program");
  request.mutable_compile_options()->set_type_name("xla::ifrt::XlaCompileOptions");
  request.mutable_compile_options()->set_data(options.SerializeAsString());
  return request.ShortDebugString();
}

std::string Expand(const std::string& word, const std::string& argument) {
  const std::vector<int> numbers = Numbers(argument);
  if (word == "one") return ShardingField(Sharding::SingleDevice(numbers.at(0)));
  if (word == "all") return ShardingField(Sharding::Replicated({numbers.begin(), numbers.end()}));
  if (word == "cut") {
    std::vector<int64_t> tiles(numbers.size());
    std::iota(tiles.begin(), tiles.end(), 0);
    const auto count = static_cast<int64_t>(numbers.size());
    return ShardingField(Sharding::Tiled({numbers.begin(), numbers.end()}, {count}, tiles).value());
  }
  if (word == "kept") {
    std::istringstream in(argument);
    int device = 0;
    std::string kind;
    in >> device >> kind;
    return ShardingField(Sharding::SingleDevice(device, kind));
  }
  if (word == "layout") {
    xla::ifrt::PjRtLayoutProto proto;
    proto.mutable_xla_layout()->mutable_minor_to_major()->Assign(numbers.begin(), numbers.end());
    return LayoutField("xla::ifrt::PjRtLayout", proto);
  }
  if (word == "compact") {
    xla::ifrt::CompactLayoutProto proto;
    proto.mutable_major_to_minor()->Assign(numbers.begin(), numbers.end());
    return LayoutField("xla::ifrt::CompactLayout", proto);
  }
  if (word == "program") return ProgramFields(numbers);
  if (word == "map") {
    return fmt::format(
        "mappings {{ in_array: {} out_array: {} from_start: {} from_end: {} from_step: {} "
        "to_start: {} to_end: {} to_step: {} }}",
        numbers.at(0), numbers.at(1), numbers.at(2), numbers.at(3), numbers.at(4), numbers.at(5),
        numbers.at(6), numbers.at(7));
  }
  if (word == "f32")
    return fmt::format("dtype {{ kind: KIND_F32 }} shape {{ dims: [{}] }}",
                       fmt::join(numbers, ", "));
  ADD_FAILURE() << "unknown shorthand @" << word;
  return "";
}

std::string Show(xla::ifrt::proxy::IfrtResponse response) {
  const auto metadata = response.response_metadata();
  response.clear_response_metadata();
  if (response.has_loaded_executable_execute_response()) {
    for (auto& output : *response.mutable_loaded_executable_execute_response()->mutable_outputs())
      output.mutable_sharding()->mutable_serialized_sharding()->clear_data();
  }
  std::string line = fmt::format("{} ", metadata.op_id());
  if (metadata.status().code() != tensorflow::error::OK)
    line += Describe(StatusFromProto(metadata.status()));
  else
    line += fmt::format("#{} {}", metadata.seq_num(), response.ShortDebugString());
  if (!metadata.destroyed_user_context_ids().empty())
    line +=
        fmt::format(" contexts gone: {}", fmt::join(metadata.destroyed_user_context_ids(), " "));
  return line;
}

}  // namespace

std::string Expanded(std::string text) {
  static const std::regex kShorthand(R"(@(\w+)\(([^()]*)\))");
  for (std::smatch match; std::regex_search(text, match, kShorthand);)
    text = match.prefix().str() + Expand(match[1], match[2]) + match.suffix().str();
  return text;
}

Dialogue::Dialogue(int64_t stored_array_bytes, size_t record_memory)
    : cluster_(0, stored_array_bytes, {}, record_memory) {
  session_ = cluster_.door().Open(kId, "tenant", this).value();
}

void Dialogue::TearDown() {
  Run();
  cluster_.door().Close(kId);
  session_ = nullptr;
  Run();
  EXPECT_EQ(Describe(cluster_.cluster().inspection().CheckInvariants()), "OK");
  EXPECT_EQ(cluster_.cluster().inspection().counts().arrays, 0u);
  EXPECT_EQ(cluster_.cluster().inspection().counts().groups, 0u);
  EXPECT_EQ(cluster_.cluster().inspection().counts().nodes, 0u);
}

void Dialogue::Send(std::unique_ptr<xla::ifrt::proxy::IfrtResponse> response, bool /*may_wait*/) {
  const bool error = response->response_metadata().status().code() != tensorflow::error::OK;
  const bool unset = response->response_case() == xla::ifrt::proxy::IfrtResponse::RESPONSE_NOT_SET;
  EXPECT_EQ(error, unset) << "an error leaves the response unset, success sets it: "
                          << response->ShortDebugString();
  lines_.push_back(Show(*response));
}

void Dialogue::RunOffLoop(std::function<void()> work, std::function<void()> then) {
  cluster_.RunOffLoop(std::move(work), std::move(then));
}

std::string Dialogue::Ask(const std::string& text) {
  xla::ifrt::proxy::IfrtRequest request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(Expanded(text), &request))
      << Expanded(text);
  request.mutable_request_metadata()->set_op_id(next_op_++);
  session_->Handle(request);
  return Take();
}

std::string Dialogue::Take() {
  return fmt::format("{}", fmt::join(std::exchange(lines_, {}), "\n"));
}

std::string Dialogue::Run() {
  cluster_.RunAll();
  while (session_ != nullptr && session_->HasMore()) {
    session_->GoOn();
    cluster_.RunAll();
  }
  return Take();
}

void Dialogue::Put(uint64_t handle, int device, const std::string& bytes) {
  session_->host_buffers().Store(handle, Blob::Copy(bytes));
  Ask(
      fmt::format("make_array_from_host_buffer_request {{ @f32({}) @one({}) host_buffer_handle: {} "
                  "array_handle: {} }}",
                  bytes.size() / 4, device, handle, handle));
  Run();
}

uint64_t Dialogue::Compiled(const std::string& devices, int arguments, int results,
                            std::vector<int> donated) {
  const int count = std::max<int>(1, static_cast<int>(Numbers(devices).size()));
  Ask(fmt::format("compile_request {{ @program({} {}) }}", count, devices));
  if (cluster_.open_compilations() > 0)
    cluster_.AnswerCompile(TestCode(arguments, results, count, std::move(donated)));
  const std::string line = Take();
  std::smatch match;
  EXPECT_TRUE(std::regex_search(line, match, std::regex("loaded_executable_handle: (\\d+)")))
      << line;
  return std::stoull(match[1]);
}

std::string Dialogue::Lookup(uint64_t handle) {
  auto seen = std::make_shared<std::string>("waits");
  session_->host_buffers().Lookup(handle, [seen](const HostBufferStore::Bytes& bytes) {
    *seen = bytes.ok() ? std::string((*bytes)->view()) : Describe(bytes.status());
  });
  return *seen;
}

}  // namespace fairway
