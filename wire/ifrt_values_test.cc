// SPDX-License-Identifier: Apache-2.0
#include "wire/ifrt_values.h"

#include <limits>

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(IfrtValuesTest, ElementTypesCrossByNumber) {
  xla::ifrt::DTypeProto proto;
  DTypeToProto(DType::kBF16, &proto);
  EXPECT_EQ(proto.kind(), xla::ifrt::DTypeProto::KIND_BF16);
  EXPECT_EQ(DTypeFromProto(proto).value(), DType::kBF16);
  proto.set_kind(static_cast<xla::ifrt::DTypeProto::Kind>(13));
  EXPECT_EQ(DTypeFromProto(proto).status().code(), absl::StatusCode::kInvalidArgument);
  proto.set_kind(xla::ifrt::DTypeProto::KIND_F6E2M3FN);  // of JAX 0.11
  EXPECT_EQ(DTypeFromProto(proto).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Text(DTypeFromProto(proto).status()), "arrays of element type F6E2M3FN are not served");
}

TEST(IfrtValuesTest, PrimitiveTypesDifferFromElementTypesWhereXlaDoes) {
  EXPECT_EQ(PrimitiveTypeOf(DType::kF32), xla::F32);
  EXPECT_EQ(PrimitiveTypeOf(DType::kF4E2M1FN), xla::F4E2M1FN);
  EXPECT_EQ(PrimitiveTypeOf(DType::kF8E8M0FNU), xla::F8E8M0FNU);
  EXPECT_EQ(PrimitiveTypeOf(DType::kU1), xla::U1);
  EXPECT_EQ(PrimitiveTypeOf(DType::kC128), xla::C128);
}

TEST(IfrtValuesTest, ShapesAreBounded) {
  xla::ifrt::ShapeProto proto;
  ShapeToProto(Shape{{3, 0, 5}}, &proto);
  EXPECT_EQ(ShapeFromProto(proto).value(), (Shape{{3, 0, 5}}));
  proto.add_dims(-1);
  EXPECT_EQ(ShapeFromProto(proto).status().code(), absl::StatusCode::kInvalidArgument);
  proto.mutable_dims()->Resize(kMaxRank + 1, 1);
  EXPECT_EQ(ShapeFromProto(proto).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(IfrtValuesTest, StatusesKeepCodeTextAndPayload) {
  absl::Status status(absl::StatusCode::kDataLoss, "worker w0 died");
  status.SetPayload("fairway/cause", absl::Cord("x"));
  tensorflow::StatusProto proto;
  StatusToProto(status, &proto);
  EXPECT_EQ(proto.code(), tensorflow::error::DATA_LOSS);
  EXPECT_EQ(StatusFromProto(proto), status);
  StatusToProto(absl::OkStatus(), &proto);
  EXPECT_EQ(proto.ByteSizeLong(), 0u);
}

TEST(IfrtValuesTest, UnknownStatusCodesBecomeUnknown) {
  tensorflow::StatusProto proto;
  proto.set_code(static_cast<tensorflow::error::Code>(4711));
  EXPECT_EQ(StatusFromProto(proto).code(), absl::StatusCode::kUnknown);
}

TEST(IfrtValuesTest, LayoutsAreMajorToMinor) {
  EXPECT_EQ(DenseLayoutText(0), "{}");
  EXPECT_EQ(DenseLayoutText(1), "{0}");
  EXPECT_EQ(DenseLayoutText(3), "{2,1,0}");
}

TEST(IfrtValuesTest, AttributesCrossBothWays) {
  const std::map<std::string, AttributeValue> attributes = {
      {"slice_index", int64_t{-1}}, {"island", std::string("i0")}, {"flag", true}, {"share", 0.5f}};
  xla::ifrt::AttributeMapProto proto;
  AttributesToProto(attributes, &proto);
  EXPECT_EQ(AttributesFromProto(proto), attributes);
}

}  // namespace
}  // namespace fairway
