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
}

}  // namespace
}  // namespace fairway
