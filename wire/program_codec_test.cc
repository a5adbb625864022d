// SPDX-License-Identifier: Apache-2.0
#include "wire/program_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::HasSubstr;

Program Some() {
  const ArraySpec whole{DType::kF32, Shape{{4}}, Sharding::Replicated({0, 1})};
  const ArraySpec split{DType::kF32, Shape{{4}}, *Sharding::Tiled({0, 1}, {2}, {1, 0})};
  const ArraySpec index{DType::kS32, Shape{}, Sharding::Replicated({0, 1})};
  Program out;
  out.name = "some";
  out.slices = {{"a", 2}, {"b", 2}};
  for (const auto format : {Computation::Format::kStableHlo, Computation::Format::kNative})
    out.computations.push_back({"f",
                                format,
                                std::make_shared<const std::string>("code"),
                                format == Computation::Format::kStableHlo,
                                {whole},
                                {split}});
  out.graphs.resize(2);
  auto& nodes = out.graphs[0].nodes;
  nodes.push_back({"x", "a.py:1", ArgumentNode{{0, whole}, true}});
  nodes.push_back(
      {"k", "", ConstantNode{{1, whole}, std::make_shared<const std::string>(16, 'k')}});
  nodes.push_back({"y", "", ComputeNode{0, 1, {{0, 0}}}});
  nodes.push_back({"t", "", TransferNode{{2, 0}, {0, split}}});
  nodes.push_back({"l", "", LoopNode{1, 7, {{3, 0}}}});
  nodes.push_back({"i", "", ArgumentNode{{0, index}}});
  nodes.push_back({"b", "", BranchNode{{5, 0}, {1, 1}, {{4, 0}}}});
  out.graphs[0].results = {{6, 0}, {0, 0}};
  out.graphs[1].nodes.push_back({"c", "", ArgumentNode{{0, split}}});
  out.graphs[1].results = {{0, 0}};
  return out;
}

TEST(ProgramCodec, RoundTrip) {
  const Program in = Some();
  ASSERT_TRUE(CheckProgram(in).ok()) << CheckProgram(in).status();
  v1::Program proto, again;
  ToProto(in, &proto);
  ASSERT_TRUE(proto.ParseFromString(proto.SerializeAsString()));
  const auto back = ProgramFromProto(proto);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*CheckProgram(*back), *CheckProgram(in));
  ToProto(*back, &again);
  EXPECT_EQ(again.DebugString(), proto.DebugString());
}

TEST(ProgramCodec, KernelsAreANativeProgram) {
  v1::Program proto;
  ToProto(Some(), &proto);
  proto.mutable_computations(1)->mutable_kernels()->set_name("twice");
  const auto program = ProgramFromProto(proto);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->computations[1].format, Computation::Format::kNative);
  EXPECT_EQ(*program->computations[1].code, proto.computations(1).kernels().SerializeAsString());
}

TEST(ProgramCodec, WhatIsNoProgramIsNamed) {
  const auto refused = [](auto change) {
    v1::Program proto;
    ToProto(Some(), &proto);
    change(proto);
    const auto back = ProgramFromProto(proto);
    EXPECT_EQ(back.status().code(), absl::StatusCode::kInvalidArgument);
    return Text(back.status());
  };
  EXPECT_THAT(refused([](v1::Program& p) {
                p.mutable_graphs(0)
                    ->mutable_nodes(0)
                    ->mutable_argument()
                    ->mutable_type()
                    ->mutable_array()
                    ->set_dtype(4711);
              }),
              HasSubstr("node 0 of graph 0 \"x\" (a.py:1): there is no element type 4711"));
  EXPECT_THAT(refused([](v1::Program& p) { p.mutable_graphs(0)->add_nodes()->set_name("z"); }),
              HasSubstr("does not know"));
  EXPECT_THAT(refused([](v1::Program& p) { p.mutable_computations(0)->set_devices(0); }),
              HasSubstr("on 0 devices"));
  EXPECT_THAT(refused([](v1::Program& p) { p.mutable_computations(0)->set_devices(INT32_MAX); }),
              HasSubstr("positions in all"));
  EXPECT_THAT(
      refused([](v1::Program& p) { p.mutable_computations(0)->mutable_results(0)->add_tiles(-3); }),
      HasSubstr("computation \"f\""));
}

}  // namespace
}  // namespace fairway
