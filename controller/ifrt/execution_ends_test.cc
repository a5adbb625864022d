// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/execution_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ExecutionEndsTest : public testing::Test {
 protected:
  std::vector<uint64_t> Told() {
    std::vector<uint64_t> told;
    while (const auto end = ends_.Next()) told.push_back(end->first);
    return told;
  }
  ExecutionEnds ends_;
};

TEST_F(ExecutionEndsTest, OnOneDeviceTheyAreToldInTheOrderOfTheRequests) {
  const uint64_t a = ends_.Begin({0}), b = ends_.Begin({0}), c = ends_.Begin({0});
  ends_.Ended(c, absl::OkStatus());
  ends_.Ended(b, absl::OkStatus());
  EXPECT_THAT(Told(), IsEmpty());
  ends_.Ended(a, absl::OkStatus());
  EXPECT_THAT(Told(), ElementsAre(a, b, c));
  EXPECT_EQ(ends_.size(), 0);
}

TEST_F(ExecutionEndsTest, OnOtherDevicesTheyDoNotWait) {
  const uint64_t a = ends_.Begin({0}), b = ends_.Begin({1, 2}), c = ends_.Begin({2, 0});
  ends_.Ended(b, absl::OkStatus());
  EXPECT_THAT(Told(), ElementsAre(b));
  ends_.Ended(c, absl::OkStatus());
  EXPECT_THAT(Told(), IsEmpty());
  ends_.Ended(a, absl::OkStatus());
  EXPECT_THAT(Told(), ElementsAre(a, c));
}

TEST_F(ExecutionEndsTest, OneThatSharesSeveralDevicesWithAnotherWaitsForItOnce) {
  const uint64_t a = ends_.Begin({0, 1, 2}), b = ends_.Begin({2, 1, 0});
  ends_.Ended(b, absl::OkStatus());
  ends_.Ended(a, absl::OkStatus());
  EXPECT_THAT(Told(), ElementsAre(a, b));
}

TEST_F(ExecutionEndsTest, EachKeepsItsOwnStatus) {
  const uint64_t a = ends_.Begin({0}), b = ends_.Begin({0});
  ends_.Ended(b, absl::OkStatus());
  ends_.Ended(a, absl::AbortedError("a"));
  EXPECT_EQ(ends_.Next()->second, absl::AbortedError("a"));
  EXPECT_TRUE(ends_.has_next());
  EXPECT_EQ(ends_.Next()->second, absl::OkStatus());
  EXPECT_FALSE(ends_.has_next());
  const uint64_t c = ends_.Begin({0});
  ends_.Ended(c, absl::OkStatus());
  EXPECT_THAT(Told(), ElementsAre(c));
}

}  // namespace
}  // namespace fairway
