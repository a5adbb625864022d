// SPDX-License-Identifier: Apache-2.0
#include "client/cli/redact.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

TEST(WithoutSecrets, LeavesTextAsItIs) {
  const std::string text =
      "controller 0.1.0 on head-1 (pid 123), up for 3 min 2 s\n"
      "--token-file=/home/a/.fairway/user.token  (flag)\n"
      "--tls-key=/var/lib/fairway/controller/controller.key  (file "
      "/etc/fairway/controller.toml:4)\n"
      "{\"level\":\"info\",\"msg\":\"token 7 (role user of tenant red) expired on 2027-01-16\"}\n"
      "fairway_uploaded_bytes_total{island=\"island0\"} 123456789012345678901234567890\n"
      "_ZN7fairway12WithoutSecretsESt17basic_string_viewIcSt11char_traitsIcEE+0x1f\n"
      "/usr/lib/python3.11/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so\n";
  EXPECT_EQ(WithoutSecrets(text), text);
}

TEST(WithoutSecrets, TokensAreLeftOut) {
  EXPECT_EQ(WithoutSecrets("a fw_0123456789abcdef0123456789abcdef b"), "a [left out: token] b");
  EXPECT_EQ(WithoutSecrets("x fw_0123456789 cut off"), "x [left out: token] cut off");
  EXPECT_EQ(WithoutSecrets("ghp_0123456789abcdefABCDEF01234567"), "[left out: token]");
  EXPECT_EQ(WithoutSecrets("AKIAIOSFODNN7EXAMPLE"), "[left out: token]");
  EXPECT_EQ(WithoutSecrets("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4f"),
            "[left out: token]");
  EXPECT_EQ(WithoutSecrets("GET / Authorization: Bearer abc.def-12345 end"),
            "GET / Authorization: [left out] [left out] end");
}

TEST(WithoutSecrets, PrivateKeysAreLeftOutAlsoIfTheyAreCutOff) {
  const std::string line(64, 'A');
  const std::string begin = "-----BEGIN EC PRIVATE KEY-----\n",
                    end = "-----END EC PRIVATE KEY-----";
  EXPECT_EQ(WithoutSecrets("a\n" + begin + line + "\nBBBB==\n" + end + "\nb"),
            "a\n[left out: private key]\nb");
  EXPECT_EQ(WithoutSecrets("a\n" + begin + line + "\nBB"), "a\n[left out: private key]");
  EXPECT_EQ(
      WithoutSecrets("{\"msg\":\"-----BEGIN PRIVATE KEY-----\\nAA\\n-----END PRIVATE KEY-----\"}"),
      "{\"msg\":\"[left out: private key]\"}");
  const std::string inner = WithoutSecrets(line + "\n" + line + "\nCCCC==\n" + end + "\nb");
  EXPECT_EQ(inner.find("AAAA"), std::string::npos) << inner;
  EXPECT_EQ(inner.find("CCCC"), std::string::npos) << inner;
  EXPECT_NE(inner.find("\nb"), std::string::npos) << inner;
}

TEST(WithoutSecrets, ValuesWhoseNamesSayThatTheyAreSecretAreLeftOut) {
  EXPECT_EQ(WithoutSecrets("DB_PASSWORD=hunter2 next=1"), "DB_PASSWORD=[left out] next=1");
  EXPECT_EQ(WithoutSecrets("{\"api_key\": \"x y\", \"n\": 1}"),
            "{\"api_key\": [left out], \"n\": 1}");
  EXPECT_EQ(WithoutSecrets("{\"msg\":\"{\\\"secret\\\": \\\"a b\\\"}\"}"),
            "{\"msg\":\"{\\\"secret\\\": [left out]}\"}");
  EXPECT_EQ(WithoutSecrets("passphrase = 'two words'"), "passphrase = [left out]");
  EXPECT_EQ(WithoutSecrets("https://user:pass@host/x"), "https://[left out]@host/x");
  EXPECT_EQ(WithoutSecrets("https://host/x?token=abc&n=1"), "https://host/x?token=[left out]&n=1");
}

TEST(WithoutSecrets, LongRandomWordsAreLeftOut) {
  EXPECT_EQ(WithoutSecrets("x 0123456789abcdef0123456789abcdef y"), "x [left out: digits] y");
  EXPECT_EQ(WithoutSecrets("x wJalrXUtnFEMI1K7MDENG2bPxRfiCYEXAMPLEKEY3 y"),
            "x [left out: random word] y");
}

TEST(WithoutSecrets, AnyBytesAreText) {
  const std::string bytes("\xff\x00\xfe fw_0123456789", 16);
  EXPECT_EQ(WithoutSecrets(bytes), std::string("\xff\x00\xfe ", 4) + "[left out: token]");
  EXPECT_EQ(WithoutSecrets(""), "");
}

// A pattern that takes more than its text's size in steps would take hours.
TEST(WithoutSecrets, LongLinesTakeNoLongerThanManyShortOnes) {
  const std::string long_line = "password=" + std::string(4 << 20, 'a');
  EXPECT_EQ(WithoutSecrets(long_line), "password=[left out]");
  EXPECT_EQ(WithoutSecrets(std::string(4 << 20, '-')).size(), size_t{4} << 20);
}

}  // namespace
}  // namespace fairway
