// SPDX-License-Identifier: Apache-2.0
// The values in IFRT requests: shardings, element types, shapes, compile options, statuses, byte
// strides, uploads. An accepted value must survive being written and read again, and every shard
// must lie inside its array.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "controller/ifrt/compile_request.h"
#include "controller/ifrt/strided.h"
#include "controller/sessions/upload_buffer.h"
#include "ifrt/ifrt.pb.h"
#include "ifrt/messages.pb.h"
#include "tests/fuzz/fuzz.h"
#include "wire/ifrt_sharding.h"
#include "wire/ifrt_values.h"

namespace fairway::fuzz {
namespace {

constexpr int64_t kLargest = 1 << 20;  // the most bytes that an input may make this allocate
constexpr int kMostShards = 64;        // the most shards that are checked

enum Kind : uint8_t {
  kArraySpec = 0,        // ArraySpecProto
  kOpSharding = 1,       // byte: devices; OpSharding
  kCompile = 2,          // CompileRequest
  kStatus = 3,           // StatusProto
  kAttributes = 4,       // AttributeMapProto
  kStrides = 5,          // byte: element type; byte: rank; per dimension a short and a long
  kUpload = 6,           // long: announced size; then bytes in pieces as large as the first says
  kOpShardingAlone = 7,  // OpSharding, over 8 devices
  kText = 8,             // any text
};

void CheckDomain(const Shape& whole, const IndexDomain& domain) {
  FUZZ_CHECK(domain.origin.size() == whole.dims.size());
  FUZZ_CHECK(domain.shape.dims.size() == whole.dims.size());
  for (size_t d = 0; d < whole.dims.size(); ++d) {
    FUZZ_CHECK(domain.origin[d] >= 0 && domain.shape.dims[d] >= 0);
    FUZZ_CHECK(domain.origin[d] <= whole.dims[d] - domain.shape.dims[d]);
  }
}

void OnArraySpec(std::string_view bytes) {
  xla::ifrt::ArraySpecProto proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const auto spec = ArraySpecFromProto(proto);
  if (!spec.ok()) return;
  (void)ToString(spec->dtype, spec->shape);
  (void)PrimitiveTypeOf(spec->dtype);
  for (int i = 0; i < std::min(spec->sharding.num_shards(), kMostShards); ++i) {
    const auto domain = spec->sharding.Domain(spec->shape, i);
    if (domain.ok()) CheckDomain(spec->shape, *domain);
    const auto shape = spec->sharding.ShardShape(spec->shape, i);
    if (shape.ok()) (void)ByteSize(spec->dtype, *shape);
    if (domain.ok() && shape.ok()) FUZZ_CHECK(*shape == domain->shape);
  }
  xla::ifrt::ShardingProto written;
  if (!ShardingToProto(spec->sharding, spec->shape, &written).ok()) return;
  const auto again = ShardingFromProto(written, spec->shape);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again->devices() == spec->sharding.devices());
  FUZZ_CHECK(again->memory_kind() == spec->sharding.memory_kind());
  if (again->kind() == spec->sharding.kind() && !spec->sharding.per_device())
    FUZZ_CHECK(*again == spec->sharding);
}

void OnOpSharding(int devices, std::string_view bytes) {
  xla::OpSharding proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const auto tiles = TilesFromOpSharding(proto, devices);
  if (!tiles.ok()) return;
  const auto written = OpShardingFromTiles(*tiles, devices);
  if (!written.ok()) return;
  const auto again = TilesFromOpSharding(*written, devices);
  FUZZ_CHECK(again.ok() && *again == *tiles);
}

void OnCompile(std::string_view bytes) {
  xla::ifrt::proxy::CompileRequest request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const auto parsed = ParseCompile(request, 4);
  if (!parsed.ok()) return;
  FUZZ_CHECK(!parsed->devices.empty() && parsed->devices.size() <= 4);
  FUZZ_CHECK(parsed->options.num_replicas() * parsed->options.num_partitions() ==
             static_cast<int64_t>(parsed->devices.size()));
  FUZZ_CHECK(v1::CompileOptions().ParseFromString(parsed->options.SerializeAsString()));
}

void OnStatus(std::string_view bytes) {
  tensorflow::StatusProto proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const absl::Status status = StatusFromProto(proto);
  tensorflow::StatusProto written;
  StatusToProto(status, &written);
  FUZZ_CHECK(tensorflow::StatusProto().ParseFromString(written.SerializeAsString()));
  FUZZ_CHECK(StatusFromProto(written).code() == status.code());
}

void OnAttributes(std::string_view bytes) {
  xla::ifrt::AttributeMapProto proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const auto attributes = AttributesFromProto(proto);
  xla::ifrt::AttributeMapProto written;
  AttributesToProto(attributes, &written);
  FUZZ_CHECK(AttributesFromProto(written).size() == attributes.size());
}

void OnStrides(Reader in) {
  const auto dtype = DTypeFromNumber(in.Byte());
  if (!dtype.has_value()) return;
  Shape shape;
  std::vector<int64_t> strides;
  for (int rank = in.Byte() % 6; rank > 0; --rank) {
    shape.dims.push_back(in.Short());
    strides.push_back(in.Long());
  }
  if (in.Byte() == 1) strides.push_back(4);
  const auto layout = CheckStrides(*dtype, shape, strides);
  if (!layout.ok() || layout->block_bytes > kLargest || ByteSize(*dtype, shape).value() > kLargest)
    return;
  static const auto blocks = BlockPool::Make(0);
  auto block = Blob::Make(static_cast<size_t>(layout->block_bytes));
  for (size_t i = 0; i < block->size(); ++i) block->data()[i] = static_cast<char>(i * 7);
  const auto dense = ToDense(*layout, block, *blocks);
  if (!dense.ok()) return;
  const auto back = FromDense(*layout, *dense, *blocks);
  FUZZ_CHECK(back.ok() && (*back)->size() == block->size());
}

void OnUpload(Reader in) {
  static const auto budget = std::make_shared<MemoryBudget>(4 << 20);
  const int64_t announced = in.Long();
  const size_t piece = 1 + in.Byte();
  std::string_view bytes = in.Rest();
  const std::string sent(bytes);
  UploadBuffer buffer(announced, Spool{budget, "/tmp"});
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size())))
    buffer.Append(bytes.substr(0, piece));
  const auto blob = buffer.Finish();
  FUZZ_CHECK(blob.ok() == (announced == static_cast<int64_t>(sent.size())));
  if (blob.ok()) FUZZ_CHECK((*blob)->view() == sent);
}

void OnText(std::string_view bytes) {
  const std::string text = ValidUtf8(bytes);
  FUZZ_CHECK(ValidUtf8(text) == text);
  tensorflow::StatusProto proto;
  proto.set_message(text);
  FUZZ_CHECK(tensorflow::StatusProto().ParseFromString(proto.SerializeAsString()));
}

void On(const Record& record) {
  Reader in(record.payload);
  switch (record.kind) {
    case kArraySpec:
      return OnArraySpec(in.Rest());
    case kOpSharding: {
      const int devices = in.Byte();
      return OnOpSharding(devices, in.Rest());
    }
    case kOpShardingAlone:
      return OnOpSharding(8, in.Rest());
    case kCompile:
      return OnCompile(in.Rest());
    case kStatus:
      return OnStatus(in.Rest());
    case kAttributes:
      return OnAttributes(in.Rest());
    case kStrides:
      return OnStrides(in);
    case kUpload:
      return OnUpload(in);
    default:
      return OnText(in.Rest());
  }
}

}  // namespace

const google::protobuf::Message* Prototype(uint8_t kind) {
  switch (kind) {
    case kArraySpec:
      return &xla::ifrt::ArraySpecProto::default_instance();
    case kCompile:
      return &xla::ifrt::proxy::CompileRequest::default_instance();
    case kStatus:
      return &tensorflow::StatusProto::default_instance();
    case kAttributes:
      return &xla::ifrt::AttributeMapProto::default_instance();
    case kOpShardingAlone:
      return &xla::OpSharding::default_instance();
    default:
      return nullptr;
  }
}

}  // namespace fairway::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fairway::fuzz;
  for (const Record& record : Cut({reinterpret_cast<const char*>(data), size})) On(record);
  return 0;
}
