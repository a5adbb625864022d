// SPDX-License-Identifier: Apache-2.0
#include "client/cli/json_text.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(JsonTextTest, YamlHasBlocksAndEmptyListsAndObjectsStayOnTheirLine) {
  const Json value = {{"kind", "islands"},
                      {"items",
                       {{{"name", "island0"}, {"up", true}, {"devices", {1, 2}}},
                        {{"name", ""}, {"nested", {{"a", 1}}}}}},
                      {"none", Json::array()},
                      {"nothing", Json::object()},
                      {"left_out", uint64_t{1} << 63}};
  EXPECT_EQ(YamlText(value),
            "kind: islands\n"
            "items:\n"
            "  - name: island0\n"
            "    up: true\n"
            "    devices:\n"
            "      - 1\n"
            "      - 2\n"
            "  - name: \"\"\n"
            "    nested:\n"
            "      a: 1\n"
            "none: []\n"
            "nothing: {}\n"
            "left_out: 9223372036854775808\n");
  EXPECT_EQ(YamlText(Json::array()), "[]\n");
  EXPECT_EQ(YamlText("text"), "text\n");
  EXPECT_EQ(YamlText(Json::array({Json::array({1, 2}), "b"})), "- - 1\n  - 2\n- b\n");
}

TEST(JsonTextTest, JsonIsShownInLinesOrInOne) {
  const Json value = {{"a", 1}, {"b", "cut \xe2\x82"}};
  EXPECT_EQ(JsonText(value), "{\n  \"a\": 1,\n  \"b\": \"cut \xef\xbf\xbd\"\n}\n");
  EXPECT_EQ(JsonLine(value), "{\"a\":1,\"b\":\"cut \xef\xbf\xbd\"}\n");
}

TEST(JsonTextTest, StringsThatYamlReadsAsSomethingElseHaveQuotes) {
  for (const char* plain : {"island0", "a_b-c.d/e", "Yes-no", "truely", "e5"})
    EXPECT_EQ(YamlText(plain), std::string(plain) + "\n");
  for (const char* other :
       {"true", "NO", "null", "y",  "Off", "12", "1e5",  "0x1f",  "-",  "~",   "a: b",
        "a #b", "a:", "[a",   "*a", "",    " a", ".inf", "12:30", "@a", "a b", "="}) {
    EXPECT_EQ(YamlText(other), "\"" + std::string(other) + "\"\n");
  }
  EXPECT_EQ(YamlText("a\"b\\c\nd\x1b"), "\"a\\\"b\\\\c\\nd\\u001b\"\n");
}

TEST(JsonTextTest, CharactersThatYamlDoesNotPrintAreEscaped) {
  EXPECT_EQ(YamlText("\x7f\xc2\x85\xc2\x9f\xe2\x80\xa8\xe2\x80\xa9\xef\xbb\xbf"),
            "\"\\u007f\\u0085\\u009f\\u2028\\u2029\\ufeff\"\n");
  EXPECT_EQ(YamlText("\xc2\xa0\xe2\x80\xa7\xc3\xa9"), "\"\xc2\xa0\xe2\x80\xa7\xc3\xa9\"\n");
  EXPECT_EQ(YamlText("cut \xe2\x82"), "\"cut \xef\xbf\xbd\"\n");
}

}  // namespace
}  // namespace fairway
