// SPDX-License-Identifier: Apache-2.0
#include "wire/client_values.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

// Converts the spec of this text to core and back; returns the text, or the error.
std::string Through(const std::string& text) {
  v1::ArraySpec proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto)) << text;
  const absl::StatusOr<ArraySpec> spec = ArraySpecFromProto(proto);
  if (!spec.ok()) return Describe(spec.status());
  v1::ArraySpec back;
  ArraySpecToProto(*spec, &back);
  return back.ShortDebugString();
}

TEST(ClientValuesTest, SpecsComeBackAsTheyWere) {
  for (const std::string text : {
           "dtype: 11 sharding { devices: 3 }",
           "dtype: 11 dims: 8 sharding { devices: 0 devices: 1 memory_kind: \"pinned_host\" }",
           "dtype: 1 dims: 8 dims: 2 sharding { devices: 1 devices: 0 tiles: 2 tiles: 1 }",
           "dtype: 1 dims: 8 sharding { devices: 1 devices: 0 tiles: 2 tile_of: 1 tile_of: 0 }",
       }) {
    EXPECT_EQ(Through(text), text);
  }
}

TEST(ClientValuesTest, WhatNoArrayCanBeIsNamed) {
  const std::string one = "sharding { devices: 0 }";
  EXPECT_EQ(Through("dtype: 4711 " + one), "INVALID_ARGUMENT: element type number 4711 is unknown");
  EXPECT_EQ(Through("dtype: 17 " + one),
            "INVALID_ARGUMENT: arrays of element type token have no bytes");
  EXPECT_EQ(Through("dtype: 11"), "INVALID_ARGUMENT: a sharding names no device");
  EXPECT_EQ(Through("dtype: 11 sharding { devices: [1, 0, 1] }"),
            "INVALID_ARGUMENT: a sharding names device 1 twice");
  EXPECT_EQ(Through("dtype: 11 dims: 8 sharding { devices: [0, 1] tiles: 3 }"),
            "INVALID_ARGUMENT: a sharding over 2 devices has another number of tiles");
  EXPECT_EQ(Through("dtype: 11 dims: 8 sharding { devices: [0, 1] tiles: [2, 1] }"),
            "INVALID_ARGUMENT: a sharding cuts 2 dimensions of an array of rank 1");
  EXPECT_EQ(Through("dtype: 11 dims: 8 sharding { devices: [0, 1] tiles: 2 tile_of: [0, 2] }"),
            "INVALID_ARGUMENT: tiled sharding places tile 2 of 2");
  EXPECT_EQ(Through("dtype: 11 sharding { devices: 0 tile_of: 0 }"),
            "INVALID_ARGUMENT: a sharding places tiles but names none");
  EXPECT_EQ(Through("dtype: 11 dims: -1 " + one).substr(0, 16), "INVALID_ARGUMENT");
}

TEST(ClientValuesTest, ErrorsKeepCodeAndText) {
  v1::Error error;
  ErrorFromStatus(absl::DataLossError("gone \xff"), &error);
  EXPECT_EQ(Describe(StatusFromError(error)), "DATA_LOSS: gone ?");
  error.set_code(0);
  EXPECT_EQ(Describe(StatusFromError(error)), "UNKNOWN: gone ?");
}

}  // namespace
}  // namespace fairway
