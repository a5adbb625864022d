// SPDX-License-Identifier: Apache-2.0
// Converts IFRT's small values to ours and back: element types, shapes, statuses, strides,
// attributes, layouts. Trusts nothing from outside: bounds ranks and extents before it allocates
// anything.
#ifndef FAIRWAY_WIRE_IFRT_VALUES_H_
#define FAIRWAY_WIRE_IFRT_VALUES_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/utf8.h"
#include "core/dtype.h"
#include "core/shape.h"
#include "ifrt/ifrt.pb.h"
#include "ifrt/status.pb.h"
#include "wire/limits.h"

namespace fairway {

// UNIMPLEMENTED: a type of IFRT's that we lack, with its name. INVALID_ARGUMENT: an unknown number.
absl::StatusOr<DType> DTypeFromProto(const xla::ifrt::DTypeProto& proto);
void DTypeToProto(DType dtype, xla::ifrt::DTypeProto* proto);

// INVALID_ARGUMENT: more than kMaxRank dimensions, or a negative extent.
absl::StatusOr<Shape> ShapeFromProto(const xla::ifrt::ShapeProto& proto);
void ShapeToProto(const Shape& shape, xla::ifrt::ShapeProto* proto);

// Both sides have the same code numbers; unknown codes become UNKNOWN.
absl::Status StatusFromProto(const tensorflow::StatusProto& proto);
// Makes the text valid UTF-8: if a protobuf string is not, the client drops the whole message.
void StatusToProto(const absl::Status& status, tensorflow::StatusProto* proto);

// "{1,0}": the dense major-to-minor layout, as PjRtLayout's text.
std::string DenseLayoutText(int rank);
void DenseLayoutToProto(int rank, xla::LayoutProto* proto);

using AttributeValue = std::variant<std::string, bool, int64_t, float>;
void AttributesToProto(const std::map<std::string, AttributeValue>& attributes,
                       xla::ifrt::AttributeMapProto* proto);
// Lists of integers are left out.
std::map<std::string, AttributeValue> AttributesFromProto(
    const xla::ifrt::AttributeMapProto& proto);

}  // namespace fairway

#endif  // FAIRWAY_WIRE_IFRT_VALUES_H_
