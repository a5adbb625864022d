// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(LogTest, OnlyTheDocumentedLevelsAreLevels) {
  for (const char* level : {"trace", "debug", "info", "warn", "error"}) {
    EXPECT_TRUE(CheckLogLevel(level).ok()) << level;
    InitLogging({.component = "test", .island = {}, .worker = {}}, level);
    EXPECT_NE(spdlog::default_logger()->level(), spdlog::level::off) << level;
  }
  for (const char* level : {"", "off", "INFO", "inof", "warning"})
    EXPECT_EQ(CheckLogLevel(level).code(), absl::StatusCode::kInvalidArgument) << level;
  EXPECT_EQ(
      Text(CheckLogLevel("inof")),
      "--log-level (or FAIRWAY_LOG_LEVEL): 'inof' is none of trace, debug, info, warn and error");
}

}  // namespace
}  // namespace fairway
