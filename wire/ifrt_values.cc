// SPDX-License-Identifier: Apache-2.0
#include "wire/ifrt_values.h"

#include <fmt/ranges.h>

namespace fairway {

absl::StatusOr<DType> DTypeFromProto(const xla::ifrt::DTypeProto& proto) {
  const auto number = static_cast<int32_t>(proto.kind());
  if (const std::optional<DType> dtype = DTypeFromNumber(number)) return *dtype;
  if (xla::ifrt::DTypeProto::Kind_IsValid(number) && number != 0)
    return Error(absl::StatusCode::kUnimplemented, "arrays of element type {} are not served",
                 xla::ifrt::DTypeProto::Kind_Name(proto.kind()).substr(sizeof("KIND_") - 1));
  return InvalidArgument("element type number {} is unknown", number);
}

void DTypeToProto(DType dtype, xla::ifrt::DTypeProto* proto) {
  proto->set_kind(static_cast<xla::ifrt::DTypeProto::Kind>(static_cast<int32_t>(dtype)));
}

absl::StatusOr<Shape> ShapeFromProto(const xla::ifrt::ShapeProto& proto) {
  if (proto.dims_size() > kMaxRank)
    return InvalidArgument("a shape of rank {} is larger than the limit of {}", proto.dims_size(),
                           kMaxRank);
  Shape shape{{proto.dims().begin(), proto.dims().end()}};
  for (const int64_t dim : shape.dims) {
    if (dim < 0)
      return InvalidArgument("shape [{}] has a negative extent", fmt::join(shape.dims, ","));
  }
  return shape;
}

void ShapeToProto(const Shape& shape, xla::ifrt::ShapeProto* proto) {
  proto->mutable_dims()->Assign(shape.dims.begin(), shape.dims.end());
}

absl::Status StatusFromProto(const tensorflow::StatusProto& proto) {
  const int code = static_cast<int>(proto.code());
  if (code == 0) return absl::OkStatus();
  const bool known = code >= 1 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  absl::Status status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      BoundedText(proto.message()));
  size_t payloads = 0;
  for (const auto& [url, value] : proto.payload()) payloads += url.size() + value.size();
  if (payloads > kMaxErrorText) return status;
  for (const auto& [url, value] : proto.payload()) status.SetPayload(url, absl::Cord(value));
  return status;
}

void StatusToProto(const absl::Status& status, tensorflow::StatusProto* proto) {
  proto->Clear();
  if (status.ok()) return;
  proto->set_code(static_cast<tensorflow::error::Code>(static_cast<int>(status.code())));
  proto->set_message(ValidUtf8(Text(status)));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& value) {
    (*proto->mutable_payload())[ValidUtf8(std::string(url))] = std::string(value);
  });
}

std::string DenseLayoutText(int rank) {
  std::string out = "{";
  for (int d = rank - 1; d >= 0; --d) {
    out += std::to_string(d);
    if (d > 0) out += ",";
  }
  return out + "}";
}

void DenseLayoutToProto(int rank, xla::LayoutProto* proto) {
  proto->clear_minor_to_major();
  for (int d = rank - 1; d >= 0; --d) proto->add_minor_to_major(d);
}

void AttributesToProto(const std::map<std::string, AttributeValue>& attributes,
                       xla::ifrt::AttributeMapProto* proto) {
  for (const auto& [name, value] : attributes) {
    auto& out = (*proto->mutable_attributes())[name];
    if (const auto* text = std::get_if<std::string>(&value)) out.set_string_value(*text);
    if (const auto* flag = std::get_if<bool>(&value)) out.set_bool_value(*flag);
    if (const auto* number = std::get_if<int64_t>(&value)) out.set_int64_value(*number);
    if (const auto* real = std::get_if<float>(&value)) out.set_float_value(*real);
  }
}

std::map<std::string, AttributeValue> AttributesFromProto(
    const xla::ifrt::AttributeMapProto& proto) {
  using Value = xla::ifrt::AttributeMapProto::Value;
  std::map<std::string, AttributeValue> out;
  for (const auto& [name, value] : proto.attributes()) {
    switch (value.value_case()) {
      case Value::kStringValue:
        out[name] = std::string(value.string_value());
        break;
      case Value::kBoolValue:
        out[name] = value.bool_value();
        break;
      case Value::kInt64Value:
        out[name] = static_cast<int64_t>(value.int64_value());
        break;
      case Value::kFloatValue:
        out[name] = value.float_value();
        break;
      case Value::kInt64ListValue:
      case Value::VALUE_NOT_SET:
        break;
    }
  }
  return out;
}

}  // namespace fairway
