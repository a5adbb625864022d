// SPDX-License-Identifier: Apache-2.0
// IFRT's small values <-> ours: element types, shapes, statuses, strides, attributes, layouts.
// Nothing from outside is trusted: ranks and extents are bounded before anything is allocated.
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

// UNIMPLEMENTED: one of IFRT's that is not ours, by its name. INVALID_ARGUMENT: an unknown number.
absl::StatusOr<DType> DTypeFromProto(const xla::ifrt::DTypeProto& proto);
void DTypeToProto(DType dtype, xla::ifrt::DTypeProto* proto);

// INVALID_ARGUMENT: more than kMaxRank dimensions, or a negative extent.
absl::StatusOr<Shape> ShapeFromProto(const xla::ifrt::ShapeProto& proto);
void ShapeToProto(const Shape& shape, xla::ifrt::ShapeProto* proto);

// The code numbers are the same on both sides; codes we do not know become UNKNOWN.
absl::Status StatusFromProto(const tensorflow::StatusProto& proto);
// The text is made valid UTF-8: a protobuf string that is not makes the client drop the whole
// message.
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
