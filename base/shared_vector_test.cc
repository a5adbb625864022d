// SPDX-License-Identifier: Apache-2.0
#include "base/shared_vector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SharedVectorTest, CopiesShareUntilOneIsChanged) {
  SharedVector<int> a = std::vector<int>{1, 2};
  SharedVector<int> b = a;
  EXPECT_EQ(a.begin(), b.begin());
  b.push_back(3);
  EXPECT_THAT(a.get(), ElementsAre(1, 2));
  EXPECT_THAT(b.get(), ElementsAre(1, 2, 3));
  b.push_back(4);
  EXPECT_EQ(b[0], 1);
  EXPECT_EQ(b.size(), 4u);
}

TEST(SharedVectorTest, AnEmptyOneHasNoElements) {
  SharedVector<int> a;
  EXPECT_TRUE(a.empty());
  EXPECT_THAT(a.get(), IsEmpty());
  EXPECT_EQ(a, SharedVector<int>(std::vector<int>()));
  a.push_back(7);
  EXPECT_THAT(a.get(), ElementsAre(7));
}

TEST(SharedVectorTest, TheyAreEqualWhenTheirElementsAre) {
  const SharedVector<int> a = std::vector<int>{1, 2};
  EXPECT_EQ(a, SharedVector<int>(std::vector<int>{1, 2}));
  EXPECT_FALSE(a == SharedVector<int>(std::vector<int>{2, 1}));
  EXPECT_FALSE(a == SharedVector<int>());
}

}  // namespace
}  // namespace fairway
