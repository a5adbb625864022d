// SPDX-License-Identifier: Apache-2.0
#include "controller/ifrt/version.h"

#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::HasSubstr;

constexpr int kHighest = std::numeric_limits<int>::max();
constexpr int kLowest = std::numeric_limits<int>::min();

// "protocol/serdes" as chosen, or the error.
std::string Choose(int min_protocol, int max_protocol, int min_serdes, int max_serdes) {
  xla::ifrt::proxy::IfrtProxyVersion min, max;
  min.set_protocol_version(min_protocol);
  min.set_ifrt_serdes_version_number(min_serdes);
  max.set_protocol_version(max_protocol);
  max.set_ifrt_serdes_version_number(max_serdes);
  const auto chosen = ChooseVersion(min, max);
  if (!chosen.ok()) return Text(chosen.status());
  return fmt::format("{}/{}", chosen->protocol_version(), chosen->ifrt_serdes_version_number());
}

TEST(VersionTest, EveryTestedJaxlibGetsItsHighestVersionThatIsServed) {
  EXPECT_EQ(Choose(15, 22, 0, 0), "22/0");  // 0.8.2
  EXPECT_EQ(Choose(16, 25, 0, 1), "25/1");  // 0.9.2
  EXPECT_EQ(Choose(16, 25, 0, 3), "25/3");  // 0.10.2
  EXPECT_EQ(Choose(16, 25, 0, 6), "25/6");  // 0.11.2
  EXPECT_EQ(Choose(16, 25, 2, 6), "25/6");  // 0.12.0.1
}

TEST(VersionTest, ANewerClientThatKnowsOursIsServed) {
  EXPECT_EQ(Choose(25, 40, 6, 40), "25/6");
  EXPECT_EQ(Choose(0, kHighest, 0, kHighest), "25/6");
  EXPECT_EQ(Choose(kLowest, kHighest, kLowest, kHighest), "25/6");
}

TEST(VersionTest, OneVersionAloneIsARange) {
  EXPECT_EQ(Choose(23, 23, 2, 2), "23/2");
  EXPECT_EQ(Choose(22, 22, 0, 0), "22/0");
}

TEST(VersionTest, ATooOldClientIsToldBothRangesAndToInstallANewerJaxlib) {
  EXPECT_EQ(Choose(3, 14, 0, 0),
            "this client's jaxlib speaks versions 3 to 14 of the IFRT proxy protocol with serdes "
            "versions 0 to 0; this Fairway controller serves versions 22 to 25 with serdes "
            "versions 0 to 6. Install a newer jaxlib: pip install --upgrade 'jax>=0.8.2' "
            "'jaxlib>=0.8.2'");
  for (const std::string& text : {Choose(0, 0, 0, 0), Choose(16, 21, 0, 3), Choose(16, 25, -2, -1),
                                  Choose(kLowest, kLowest, 0, 3)})
    EXPECT_THAT(text, HasSubstr("Install a newer jaxlib"));
}

TEST(VersionTest, ATooNewClientIsToldToUpdateFairwayOrTakeAnOlderJaxlib) {
  EXPECT_EQ(Choose(26, 30, 2, 8),
            "this client's jaxlib speaks versions 26 to 30 of the IFRT proxy protocol with serdes "
            "versions 2 to 8; this Fairway controller serves versions 22 to 25 with serdes "
            "versions 0 to 6. Update Fairway, or install an older jaxlib: pip install 'jax<0.13' "
            "'jaxlib<0.13'");
  for (const std::string& text : {Choose(16, 25, 7, 9), Choose(kHighest, kHighest, 0, 3)})
    EXPECT_THAT(text, HasSubstr("Update Fairway"));
}

TEST(VersionTest, ARangeWhoseMinimumIsAboveItsMaximumIsRefused) {
  for (const std::string& text : {Choose(25, 22, 0, 3), Choose(16, 25, 3, 0),
                                  Choose(kHighest, kLowest, 0, 3), Choose(16, 25, 6, kLowest)})
    EXPECT_THAT(text, HasSubstr("a minimum is above its maximum"));
}

}  // namespace
}  // namespace fairway
