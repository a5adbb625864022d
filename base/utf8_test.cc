// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(Utf8Test, WhatIsNoSequenceBecomesAQuestionMark) {
  EXPECT_EQ(ValidUtf8("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(ValidUtf8("a\xff\xc0\xaf z"), "a??? z");
  EXPECT_EQ(ValidUtf8("\xed\xa0\x80"), "???");  // a surrogate
  EXPECT_EQ(ValidUtf8("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
  EXPECT_EQ(ValidUtf8("cut \xe2\x82"), "cut ??");
  EXPECT_EQ(ValidUtf8(""), "");
  EXPECT_EQ(ValidUtf8("\xff"), "?");
}

// Eight bytes of ASCII are looked at together.
TEST(Utf8Test, WhereASequenceLiesMakesNoDifference) {
  for (size_t before = 0; before < 20; ++before) {
    for (size_t after = 0; after < 20; ++after) {
      const std::string left(before, 'x'), right(after, 'y');
      EXPECT_EQ(ValidUtf8(left + "\xc3\xbc" + right), left + "\xc3\xbc" + right);
      EXPECT_EQ(ValidUtf8(left + "\xc3" + right), left + "?" + right);
    }
  }
}

}  // namespace
}  // namespace fairway
