// SPDX-License-Identifier: Apache-2.0
#include "wire/ifrt_remap.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "wire/ifrt_sharding.h"
#include "wire/ifrt_values.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using From = RemapPlan::From;
using Proto = xla::ifrt::RemapPlanProto;

// f32 over these devices, one element each.
void Spec(const std::vector<int32_t>& devices, xla::ifrt::ArraySpecProto* proto,
          DType dtype = DType::kF32) {
  const auto count = static_cast<int64_t>(devices.size());
  DTypeToProto(dtype, proto->mutable_dtype());
  ShapeToProto(Shape{{count}}, proto->mutable_shape());
  std::vector<int64_t> tiles;
  for (int64_t i = 0; i < count; ++i) tiles.push_back(i);
  const Sharding sharding = Sharding::Tiled(devices, {count}, tiles).value();
  EXPECT_TRUE(ShardingToProto(sharding, Shape{{count}}, proto->mutable_sharding()).ok());
}

// One input over devices 0 to 3, two outputs over its even and its odd devices.
Proto Halves() {
  Proto proto;
  Spec({0, 1, 2, 3}, proto.add_input_specs());
  Spec({0, 2}, proto.add_output_specs());
  Spec({1, 3}, proto.add_output_specs());
  return proto;
}

void Map(Proto& proto, int out, std::array<int64_t, 3> from, std::array<int64_t, 3> to) {
  auto* mapping = proto.add_mappings();
  mapping->set_out_array(out);
  mapping->add_from_start(from[0]);
  mapping->add_from_end(from[1]);
  mapping->add_from_step(from[2]);
  mapping->add_to_start(to[0]);
  mapping->add_to_end(to[1]);
  mapping->add_to_step(to[2]);
}

std::string Refused(const Proto& proto) {
  const auto plan = RemapPlanFromProto(proto);
  return plan.ok() ? "accepted" : std::string(plan.status().message());
}

TEST(RemapPlanTest, IntervalsPickShardsByStart_End_Step) {
  Proto proto = Halves();
  Map(proto, 0, {0, 4, 2}, {0, 2, 1});
  Map(proto, 1, {1, 4, 2}, {0, 2, 1});
  const auto plan = RemapPlanFromProto(proto);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->shards[0], ElementsAre(From{0, 0}, From{0, 2}));
  EXPECT_THAT(plan->shards[1], ElementsAre(From{0, 1}, From{0, 3}));
  EXPECT_EQ(plan->outputs[1].sharding.devices(), (std::vector<int32_t>{1, 3}));
}

TEST(RemapPlanTest, ListsOfDevicesPickTheShardsThere) {
  Proto proto = Halves();
  for (int out = 0; out < 2; ++out) {
    auto* devices = proto.add_input_devices_for_output();
    devices->set_out_array(out);
    auto* list = devices->add_input_devices()->mutable_device_list();
    list->add_device_ids(out + 2);
    list->add_device_ids(out);
  }
  const auto plan = RemapPlanFromProto(proto);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->shards[0], ElementsAre(From{0, 0}, From{0, 2}));
  EXPECT_THAT(plan->shards[1], ElementsAre(From{0, 1}, From{0, 3}));
  proto.mutable_input_devices_for_output(0)
      ->mutable_input_devices(0)
      ->mutable_device_list()
      ->set_device_ids(0, 1);
  EXPECT_THAT(Refused(proto), HasSubstr("device 1 is none of input 0 or none of output 0"));
}

TEST(RemapPlanTest, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(Refused(Proto()), HasSubstr("it has no input"));
  EXPECT_THAT(Refused(Halves()), HasSubstr("nothing is given for shard 0 of output 0"));
  const auto with = [](int out, std::array<int64_t, 3> from, std::array<int64_t, 3> to) {
    Proto proto = Halves();
    Map(proto, 1, {1, 4, 2}, {0, 2, 1});
    Map(proto, out, from, to);
    return Refused(proto);
  };
  EXPECT_EQ(with(0, {0, 4, 2}, {0, 2, 1}), "accepted");
  EXPECT_THAT(with(2, {0, 4, 2}, {0, 2, 1}), HasSubstr("it makes output 2 of 2"));
  EXPECT_THAT(with(-1, {0, 4, 2}, {0, 2, 1}), HasSubstr("it makes output -1 of 2"));
  EXPECT_THAT(with(0, {1, 4, 2}, {0, 2, 1}), HasSubstr("shard 1 of input 0 is used twice"));
  EXPECT_THAT(with(1, {0, 4, 2}, {0, 2, 1}), HasSubstr("shard 0 of output 1 is given twice"));
  EXPECT_THAT(with(0, {0, 4, 2}, {0, 1, 1}), HasSubstr("not as long as"));
  EXPECT_THAT(with(0, {0, 4, 0}, {0, 2, 1}), HasSubstr("an interval by steps of 0"));
  EXPECT_THAT(with(0, {-1, 4, 2}, {0, 2, 1}), HasSubstr("shard -1 of input 0"));
  EXPECT_THAT(with(0, {4, INT64_MAX, INT64_MAX}, {0, 1, 1}), HasSubstr("shard 4 of input 0"));
  EXPECT_THAT(with(0, {0, INT64_MAX, 2}, {0, INT64_MAX, 2}), HasSubstr("shard 2 of output 0"));
  Proto other = Halves();
  other.mutable_output_specs(0)->mutable_dtype()->set_kind(xla::ifrt::DTypeProto::KIND_S32);
  Map(other, 0, {0, 4, 2}, {0, 2, 1});
  EXPECT_THAT(Refused(other), HasSubstr("input 0 is f32, output 0 is s32"));
  Proto lists = Halves();
  Map(lists, 0, {0, 4, 2}, {0, 2, 1});
  lists.mutable_mappings(0)->add_to_end(3);
  EXPECT_THAT(Refused(lists), HasSubstr("different lengths"));
}

}  // namespace
}  // namespace fairway
