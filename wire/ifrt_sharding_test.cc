// SPDX-License-Identifier: Apache-2.0
#include "wire/ifrt_sharding.h"

#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

xla::OpSharding Op(const std::string& text) {
  xla::OpSharding op;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &op)) << text;
  return op;
}

TileAssignment Tiled(std::vector<int64_t> tiles, std::vector<int64_t> tile_of) {
  return {TileAssignment::Kind::kTiled, std::move(tiles), std::move(tile_of)};
}

TEST(OpShardingTest, ExplicitDevicesGiveEachDeviceItsTile) {
  const auto op =
      Op("type: OTHER tile_assignment_dimensions: [2,2] tile_assignment_devices: [0,2,1,3]");
  EXPECT_EQ(TilesFromOpSharding(op, 4).value(), Tiled({2, 2}, {0, 2, 1, 3}));
}

TEST(OpShardingTest, IotaIsReshapedThenTransposed) {
  // iota(4) as [2,2], transposed: places 0..3 hold devices 0,2,1,3.
  const auto op =
      Op("type: OTHER tile_assignment_dimensions: [4,1] iota_reshape_dims: [2,2] "
         "iota_transpose_perm: [1,0]");
  EXPECT_EQ(TilesFromOpSharding(op, 4).value(), Tiled({4, 1}, {0, 2, 1, 3}));
}

TEST(OpShardingTest, TheReplicatedLastDimensionIsNoDataDimension) {
  const auto op = Op(
      "type: OTHER tile_assignment_dimensions: [2,1,4] iota_reshape_dims: 8 iota_transpose_perm: 0 "
      "replicate_on_last_tile_dim: true");
  EXPECT_EQ(TilesFromOpSharding(op, 8).value(), Tiled({2, 1}, {0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(OpShardingTest, SubgroupsAreNoDataDimensions) {
  const auto op = Op(
      "type: OTHER tile_assignment_dimensions: [2,1,4] iota_reshape_dims: 8 iota_transpose_perm: 0 "
      "last_tile_dims: [MANUAL, REPLICATED]");
  EXPECT_EQ(TilesFromOpSharding(op, 8).value(), Tiled({2}, {0, 0, 0, 0, 1, 1, 1, 1}));
}

// Once as JAX writes them for a mesh of x=2 and y=2, once as shardings that name their axes.
TEST(OpShardingTest, UnreducedAndManualAxesAreNoCopies) {
  const auto per_device = [](std::vector<int64_t> tiles, std::vector<int64_t> contents) {
    return TileAssignment{TileAssignment::Kind::kPerDevice, std::move(tiles), std::move(contents)};
  };
  const std::string mesh =
      "mesh { axes { name: 'x' size: 2 } axes { name: 'y' size: 2 } } dim_shardings { } ";
  const std::string other = "type: OTHER tile_assignment_dimensions: ";
  const std::string transposed = " iota_reshape_dims: [2,2] iota_transpose_perm: [1,0] ";
  const struct {
    TileAssignment tiles;
    std::vector<std::string> texts;
  } cases[] = {
      {per_device({}, {0, 0, 2, 2}),  // P(unreduced={"x"})
       {other + "[1,1,2,2] last_tile_dims: [UNREDUCED, REPLICATED]",
        other + "[1,1,2,2] last_tile_dims: [MANUAL, REPLICATED]",
        other + "[1,1,2,2]" + transposed + "last_tile_dims: [REPLICATED, UNREDUCED]",
        "named_sharding { " + mesh + "unreduced_axes { } }",
        "named_sharding { " + mesh + "manual_axes { } }"}},
      {per_device({}, {0, 1, 0, 1}),  // P(unreduced={"y"})
       {other + "[1,1,2,2]" + transposed + "last_tile_dims: [UNREDUCED, REPLICATED]",
        "named_sharding { " + mesh + "unreduced_axes { mesh_axis_index: 1 } }"}},
      {per_device({1, 2}, {0, 5, 2, 7}),  // P(None, "y", unreduced={"x"})
       {other + "[1,2,2]" + transposed + "last_tile_dims: UNREDUCED",
        "named_sharding { " + mesh +
            "dim_shardings { axes { mesh_axis_index: 1 } } unreduced_axes { } }"}},
      {per_device({}, {0, 1, 2, 3}),  // P(unreduced={"x", "y"})
       {"type: UNREDUCED", "type: MANUAL",
        "named_sharding { " + mesh + "unreduced_axes { } unreduced_axes { mesh_axis_index: 1 } }"}},
  };
  for (const auto& [tiles, texts] : cases) {
    for (const std::string& text : texts)
      EXPECT_EQ(TilesFromOpSharding(Op(text), 4).value(), tiles) << text;
  }
  // Unreduced over an axis of one device means whole.
  EXPECT_EQ(
      TilesFromOpSharding(Op(other + "[1,4,1] last_tile_dims: [REPLICATED, UNREDUCED]"), 4).value(),
      TileAssignment{});
}

TEST(OpShardingTest, WholeArraysAreReplicatedOrPerDevice) {
  EXPECT_EQ(TilesFromOpSharding(Op("type: REPLICATED"), 8).value(), TileAssignment{});
  EXPECT_EQ(TilesFromOpSharding(
                Op("type: MAXIMAL tile_assignment_dimensions: 1 tile_assignment_devices: 0"), 1)
                .value(),
            TileAssignment{});
  EXPECT_EQ(TilesFromOpSharding(Op("type: MANUAL"), 8)->kind, TileAssignment::Kind::kPerDevice);
  EXPECT_EQ(TilesFromOpSharding(Op("type: MANUAL"), 1)->kind, TileAssignment::Kind::kReplicated);
}

TEST(OpShardingTest, NamedShardingsFollowTheMesh) {
  const auto op = Op(R"(named_sharding {
    mesh { axes { name: "x" size: 2 } axes { name: "y" size: 4 } }
    dim_shardings { axes { mesh_axis_index: 1 } } dim_shardings { }
  })");
  EXPECT_EQ(TilesFromOpSharding(op, 8).value(), Tiled({4, 1}, {0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(OpShardingTest, NamedShardingsSplitAxesAndPermuteDevices) {
  const auto op = Op(R"(named_sharding {
    mesh { axes { name: "x" size: 4 } iota_transform { reshape_dims: [2,2] transpose_perm: [1,0] } }
    dim_shardings { axes { mesh_axis_index: 0 sub_axis_info { pre_size: 1 size: 2 } } }
  })");
  // The major half of x: places 0,1 -> 0; 2,3 -> 1; places hold devices 0,2,1,3.
  EXPECT_EQ(TilesFromOpSharding(op, 4).value(), Tiled({2}, {0, 1, 0, 1}));
}

TEST(OpShardingTest, HostileSizesAreRefusedBeforeTheyAreUsed) {
  for (const char* text : {
           "type: OTHER tile_assignment_dimensions: [1099511627776, 1099511627776]",
           "type: OTHER tile_assignment_dimensions: [-1, -4]",
           "type: OTHER tile_assignment_dimensions: 0",
           "type: OTHER tile_assignment_dimensions: 4 iota_reshape_dims: [1099511627776, "
           "1099511627776]",
           "type: OTHER tile_assignment_dimensions: 4 iota_reshape_dims: 2",
           "type: OTHER tile_assignment_dimensions: 4 iota_reshape_dims: 4 iota_transpose_perm: 7",
           "type: OTHER tile_assignment_dimensions: 4 iota_reshape_dims: [2,2] "
           "iota_transpose_perm: [0,0]",
           "type: OTHER tile_assignment_dimensions: 4 tile_assignment_devices: [0,1,2,2]",
           "type: OTHER tile_assignment_dimensions: 4 tile_assignment_devices: [0,1,2,9]",
           "type: OTHER tile_assignment_dimensions: 4 tile_assignment_devices: [0,1,2,-3]",
           "type: OTHER tile_assignment_dimensions: 4 last_tile_dims: [MANUAL, MANUAL]",
           "type: OTHER tile_assignment_dimensions: 2",
           "type: TUPLE",
           "named_sharding { mesh { axes { size: -4 } } }",
           "named_sharding { mesh { axes { size: 1099511627776 } axes { size: 1099511627776 } } }",
           "named_sharding { mesh { axes { size: 4 } } dim_shardings { axes { mesh_axis_index: 5 } "
           "} }",
           "named_sharding { mesh { axes { size: 4 } } dim_shardings { axes { mesh_axis_index: -1 "
           "} } }",
           "named_sharding { mesh { axes { size: 4 } } dim_shardings { axes { sub_axis_info { "
           "pre_size: 0 size: 2 } } } }",
           "named_sharding { mesh { axes { size: 4 } } dim_shardings { axes { } axes { } } }",
       }) {
    EXPECT_EQ(TilesFromOpSharding(Op(text), 4).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(OpShardingTest, AReductionOtherThanASumIsRefusedByName) {
  const std::string text = "named_sharding { mesh { axes { size: 4 } } unreduced_axes { } ";
  EXPECT_TRUE(TilesFromOpSharding(Op(text + "reduction_op: SUM }"), 4).ok());
  for (const auto& [op, name] : {std::pair{"MAX", "MAX"}, {"MIN", "MIN"}, {"7", "number 7"}}) {
    const absl::Status status =
        TilesFromOpSharding(Op(text + "reduction_op: " + op + " }"), 4).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(Text(status),
              fmt::format("an unreduced sharding whose reduction is {} is not served, "
                          "only SUM",
                          name));
  }
}

TEST(OpShardingTest, AxesAreNamedAsOftenAsThereCanBeDimensions) {
  xla::OpSharding op = Op("named_sharding { mesh { axes { size: 4 } axes { size: 1 } } }");
  auto* dim = op.mutable_named_sharding()->add_dim_shardings();
  dim->add_axes()->set_mesh_axis_index(0);
  for (int i = 1; i < 64; ++i) dim->add_axes()->set_mesh_axis_index(1);
  EXPECT_EQ(TilesFromOpSharding(op, 4).value(), Tiled({4}, {0, 1, 2, 3}));
  op.mutable_named_sharding()->add_dim_shardings()->add_axes()->set_mesh_axis_index(1);
  EXPECT_EQ(TilesFromOpSharding(op, 4).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(OpShardingTest, TilesSurviveTheWayThere) {
  for (const auto& [tiles, devices] :
       std::vector<std::pair<TileAssignment, int>>{{TileAssignment{}, 4},
                                                   {Tiled({2, 2}, {3, 1, 0, 2}), 4},
                                                   {Tiled({2}, {0, 1, 0, 1}), 4}}) {
    EXPECT_EQ(TilesFromOpSharding(OpShardingFromTiles(tiles, devices).value(), devices).value(),
              tiles);
  }
}

TEST(ShardingTest, EveryKindSurvivesTheWayThereAndBack) {
  const Shape shape{{8, 4}};
  const std::vector<Sharding> shardings = {
      Sharding::SingleDevice(3, "pinned_host"),
      Sharding::Replicated({0, 1}, "device"),
      Sharding::Tiled({4, 5, 6, 7}, {2, 2}, {0, 1, 2, 3}).value(),
      Sharding::ConcreteEven({0, 1}, Shape{{4, 4}}, false),
      Sharding::Concrete({0, 1}, {Shape{{5, 4}}, Shape{{3, 4}}}).value(),
      Sharding::Opaque({0, 1}, "device"),
  };
  for (const Sharding& sharding : shardings) {
    xla::ifrt::ShardingProto proto;
    ASSERT_TRUE(ShardingToProto(sharding, shape, &proto).ok());
    const auto back = ShardingFromProto(proto, shape);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, sharding) << proto.serialized_sharding().type_name();
  }
}

// The number of devices bounds the commands about an array.
TEST(ShardingTest, DevicesAreNamedOnceAndAreNotTooMany) {
  const auto refused = [](const std::vector<int32_t>& devices) {
    xla::ifrt::ShardingProto proto;
    EXPECT_TRUE(ShardingToProto(Sharding::Replicated(devices, ""), Shape{{1}}, &proto).ok());
    return std::string(ShardingFromProto(proto, Shape{{1}}).status().message());
  };
  EXPECT_EQ(refused({3, 1, 2, 3}), "a sharding names device 3 twice");
  std::vector<int32_t> devices(kMaxDevices);
  std::iota(devices.begin(), devices.end(), 0);
  EXPECT_EQ(refused(devices), "");
  devices.push_back(kMaxDevices);
  EXPECT_EQ(refused(devices), "a sharding over 65537 devices; at most 65536 are served");
}

TEST(ShardingTest, CutsThatDifferInWhatIsUnreducedDiffer) {
  const auto from = [](const std::string& op) {
    xla::ifrt::HloShardingProto hlo;
    for (int i = 4; i < 8; ++i) hlo.mutable_devices()->add_device_ids(i);
    *hlo.mutable_xla_op_sharding() = Op(op);
    xla::ifrt::ShardingProto proto;
    proto.mutable_serialized_sharding()->set_type_name("xla::ifrt::HloSharding");
    hlo.SerializeToString(proto.mutable_serialized_sharding()->mutable_data());
    return ShardingFromProto(proto, Shape{{4, 6}}).value();
  };
  const Sharding x = from(
      "type: OTHER tile_assignment_dimensions: [1,2,2] iota_reshape_dims: [2,2] "
      "iota_transpose_perm: [1,0] last_tile_dims: UNREDUCED");
  const Sharding y =
      from("type: OTHER tile_assignment_dimensions: [1,2,2] last_tile_dims: UNREDUCED");
  EXPECT_EQ(x.ShardShape(Shape{{4, 6}}, 3).value(), (Shape{{4, 3}}));
  EXPECT_EQ(y.ShardShape(Shape{{4, 6}}, 3).value(), (Shape{{4, 3}}));
  EXPECT_NE(x, y);
  EXPECT_FALSE(x.fully_replicated());
  EXPECT_THAT(std::string(x.Domain(Shape{{4, 6}}, 0).status().message()),
              testing::HasSubstr("unreduced or manual over axes"));
}

TEST(ShardingTest, TilesOnUnequalNumbersOfDevicesTravelAsConcrete) {
  const auto sharding = Sharding::Tiled({0, 1, 2}, {2}, {0, 0, 1}).value();
  xla::ifrt::ShardingProto proto;
  ASSERT_TRUE(ShardingToProto(sharding, Shape{{4}}, &proto).ok());
  EXPECT_EQ(proto.serialized_sharding().type_name(), "xla::ifrt::ConcreteSharding");
}

TEST(ShardingTest, ShardingParamsAreMinorToMajor) {
  xla::ifrt::ShardingParamShardingProto param;
  param.mutable_devices()->mutable_device_ids()->Add(0);
  for (int i = 1; i < 6; ++i) param.mutable_devices()->add_device_ids(i);
  auto* p = param.mutable_sharding_param();
  p->add_dim_shards(2);
  p->add_dim_shards(3);
  p->add_permutation(0);
  p->add_permutation(1);
  p->add_axis_sizes(3);
  p->add_axis_sizes(2);
  xla::ifrt::ShardingProto proto;
  proto.mutable_serialized_sharding()->set_type_name("xla::ifrt::ShardingParamSharding");
  param.SerializeToString(proto.mutable_serialized_sharding()->mutable_data());
  const auto sharding = ShardingFromProto(proto, Shape{{4, 6}}).value();
  EXPECT_EQ(sharding.tiles(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(sharding.tile_of(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  p->set_permutation(1, std::numeric_limits<int32_t>::min());
  param.SerializeToString(proto.mutable_serialized_sharding()->mutable_data());
  EXPECT_EQ(ShardingFromProto(proto, Shape{{4, 6}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ShardingTest, UnknownKindsAndGarbageAreRefused) {
  xla::ifrt::ShardingProto proto;
  proto.mutable_serialized_sharding()->set_type_name("xla::ifrt::MoonSharding");
  EXPECT_EQ(ShardingFromProto(proto, Shape{}).status().code(), absl::StatusCode::kUnimplemented);
  proto.mutable_serialized_sharding()->set_type_name("xla::ifrt::HloSharding");
  proto.mutable_serialized_sharding()->set_data("\xff\xff\xff");
  EXPECT_EQ(ShardingFromProto(proto, Shape{}).status().code(), absl::StatusCode::kInvalidArgument);
  proto.mutable_serialized_sharding()->set_data("");
  EXPECT_EQ(ShardingFromProto(proto, Shape{}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ArraySpecTest, RankMustFitAndBytesAreBounded) {
  xla::ifrt::ArraySpecProto proto;
  proto.mutable_dtype()->set_kind(xla::ifrt::DTypeProto::KIND_F32);
  proto.mutable_shape()->add_dims(8);
  const auto sharding = Sharding::Tiled({0, 1}, {2, 1}, {0, 1}).value();
  ASSERT_TRUE(ShardingToProto(sharding, Shape{{8, 8}}, proto.mutable_sharding()).ok());
  EXPECT_EQ(ArraySpecFromProto(proto).status().code(), absl::StatusCode::kInvalidArgument);
  proto.mutable_shape()->add_dims(8);
  EXPECT_EQ(ArraySpecFromProto(proto)->sharding, sharding);
  proto.mutable_shape()->set_dims(0, int64_t{1} << 61);
  proto.mutable_shape()->set_dims(1, 8);
  EXPECT_EQ(ArraySpecFromProto(proto).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fairway
