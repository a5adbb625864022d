// SPDX-License-Identifier: Apache-2.0
#include "client/cli/printable.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(PrintableTest, NothingInATextControlsATerminal) {
  EXPECT_EQ(Printable("a\x1b[2J\n\x7f\xc2\x9b\xc3\xa9"), "a?[2J???\xc3\xa9");
  EXPECT_EQ(Printable("\x9b"
                      "31m \xff"),
            "?31m ?");  // what a terminal of Latin-1 obeys
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b\xe2\x81\xa6"
                      "c\xe2\x82\xac"),
            "a?b?c\xe2\x82\xac");
}

TEST(PrintableTest, LinesStayLines) {
  EXPECT_EQ(PrintableLines("a\x1b[2J\n\nb\r"), "a?[2J\n\nb?");
  EXPECT_EQ(PrintableLines(""), "");
}

}  // namespace
}  // namespace fairway
