// SPDX-License-Identifier: Apache-2.0
#include "base/redact.h"

#include <initializer_list>
#include <string>

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
            "GET / Authorization: [left out]");
  EXPECT_EQ(WithoutSecrets("sent bearer abc.def-12345 end"), "sent bearer [left out] end");
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

struct Case {
  const char* text;
  const char* without;
};

TEST(WithoutSecrets, EachWayToWriteASecretIsKnown) {
  for (const auto& [text, without] : std::initializer_list<Case>{
           {"Authorization: Token s3cr3t", "Authorization: [left out]"},
           {"> proxy-authorization: Digest username=\"me\", response=\"s3cr3t\"\nHost: x",
            "> proxy-authorization: [left out]\nHost: x"},
           {"{\"authorization\": \"Token s3cr3t\", \"n\": 1}",
            "{\"authorization\": [left out], \"n\": 1}"},
           {"headers={'Authorization': 'Token s3cr3t', 'n': 1}",
            "headers={'Authorization': [left out], 'n': 1}"},
           {"Cookie: a=1; session=s3cr3t; b=\"s3cr3t\"\nHost: x", "Cookie: [left out]\nHost: x"},
           {"Set-Cookie: id=s3cr3t; Path=/; key=s3cr3t", "Set-Cookie: [left out]"},
           {R"(password=a\s3cr3t\\s3cr3t n=1)", "password=[left out] n=1"},
           {R"({"msg":"\"token=s3cr3t\" n=1"})", R"({"msg":"\"token=[left out]\" n=1"})"},
           {R"(run --password a\s3cr3t next)", "run --password [left out] next"},
           {"run --password s3cr3t next", "run --password [left out] next"},
           {"run --password=s3,cr;3t next", "run --password=[left out] next"},
           {"run --db-password 's3 cr3t' next", "run --db-password [left out] next"},
           {"run -password \"s3 cr3t\" next", "run -password [left out] next"},
           {"run --api-key s3cr3t --token\ts3cr3t --pass s3cr3t",
            "run --api-key [left out] --token\t[left out] --pass [left out]"},
           {"[\"--password\", \"s3cr3t\", \"next\"]", "[\"--password\", [left out], \"next\"]"},
           {"curl -u me:s3cr3t x", "curl -u [left out] x"},
           {"curl --user=me:s3cr3t x", "curl --user=[left out] x"},
           {R"({"password": "s3\"cr3t", "n": 1})", R"({"password": [left out], "n": 1})"},
           {R"({"password": "s3cr3t\\", "n": 1})", R"({"password": [left out], "n": 1})"},
           {R"(password='s3\'cr3t' n=1)", "password=[left out] n=1"},
           {R"({"msg":"{\"secret\": \"s3\\\"cr3t\", \"n\": 1}"})",
            R"({"msg":"{\"secret\": [left out], \"n\": 1}"})"},
           {R"({"msg":"\"{\\\"secret\\\": \\\"s3cr3t\\\"}\""})",
            R"({"msg":"\"{\\\"secret\\\": [left out])"},
           {"password=\"s3 cr3t\nn=1", "password=[left out]\nn=1"},
           {"password='s3 cr3t\\\nn=1", "password=[left out]\nn=1"},
           {"{\"password\": \"s3 cr3t\\", "{\"password\": [left out]"},
           {R"({"msg":"\"secret\": \"s3 cr3t"})", R"({"msg":"\"secret\": [left out]"})"},
           {"SECRET_KEY=s3cr3t n=1", "SECRET_KEY=[left out] n=1"},
           {"DJANGO_SECRET_KEY: 's3 cr3t'", "DJANGO_SECRET_KEY: [left out]"},
           {"Server=db;Uid=me;Pwd=s3cr3t;n=1", "Server=db;Uid=me;Pwd=[left out];n=1"},
           {"Server=db;PWD=s3cr3t;n=1", "Server=db;PWD=[left out];n=1"},
           {"pwd=s3cr3t db_pwd=s3cr3t DB_PWD=/s3cr3t",
            "pwd=[left out] db_pwd=[left out] DB_PWD=[left out]"},
           {"https://x/y?se=1&sig=s3cr3t%2B&sp=r", "https://x/y?se=1&sig=[left out]&sp=r"},
           {"https://x/y?X-Amz-Signature=s3cr3t&n=1", "https://x/y?X-Amz-Signature=[left out]&n=1"},
           {"access_key=s3cr3t", "access_key=[left out]"},
           {"AccountName=me;AccountKey=s3cr3t==;n=1", "AccountName=me;AccountKey=[left out];n=1"},
           {"SharedAccessKey=s3cr3t", "SharedAccessKey=[left out]"},
           {"postgres://me:s3cr3t@db/x", "postgres://[left out]@db/x"},
           {"postgres://me:s3@cr3t@db/x", "postgres://[left out]@db/x"},
           {"redis://:s3cr3t@db", "redis://[left out]@db"},
           {"https://s3cr3ts3cr3ts3cr3ts3cr3t@host/x", "https://[left out]@host/x"},
           {"X-Auth-Token: Bearer s3cr3tvalue-1", "X-Auth-Token: [left out]"},
           {"X-Auth-Token: bearer s3c\nHost: x", "X-Auth-Token: [left out]\nHost: x"},
           {"credentials: Basic dXNlcjpwYXNz", "credentials: [left out]"},
           {R"({"msg":"\"token\": Bearer s3cr3t\" n=1"})",
            R"({"msg":"\"token\": [left out]\" n=1"})"},
           {"run --api-key Bearer s3cr3t next", "run --api-key [left out] next"},
           {"bearer secret: s3cr3t", "bearer [left out]: [left out]"},
           {"the token: Bearer", "the token: [left out]"},
       }) {
    EXPECT_EQ(WithoutSecrets(text), without) << text;
  }
}

TEST(WithoutSecrets, KeysThatAreCutOffAtOneEndAreLeftOut) {
  const std::string line = std::string(62, 'A') + "b1";
  const std::string end = "-----END PRIVATE KEY-----";
  for (const std::string& text : std::initializer_list<std::string>{
           "BBBB==\n" + end, line.substr(7) + "\n" + line + "\nBBBB==\n" + end,
           "{\"msg\":\"AABB\\n" + line + "\\nBBBB==\\n" + end + "\"}", "BBBB\r\n" + end,
           "-----BEGIN RSA PRIVATE KEY-----\nBBBB", "KEY-----\n" + line + "\nBBBB",
           "BEGIN PRIVATE KEY-----\nBBBB", "-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIV",
           "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nBBBB"}) {
    const std::string found = WithoutSecrets("before:\n" + text);
    EXPECT_EQ(found.find("BBBB"), std::string::npos) << found;
    EXPECT_EQ(found.find("AAAA"), std::string::npos) << found;
    EXPECT_TRUE(found.starts_with("before:\n")) << found;
  }
  const std::string after = WithoutSecrets("BBBB==\n" + end + "\nafter");
  EXPECT_EQ(after, "[left out: end of a private key]\nafter");
}

TEST(WithoutSecrets, WhatIsNoSecretStays) {
  for (const char* const text : {
           "PWD=/home/me OLDPWD=/tmp",
           "--tls-key /etc/fairway/worker.key --token-file /etc/fairway/worker.token",
           "the password is wrong; a token of tenant red; no cookie",
           "design=5 signal=11 sigma=2 key=3 keys: 4 passed=7 pass: 12",
           "{\"pass\": 12, \"key\": \"island0\", \"user\": \"me\"}",
           "https://host:8080/a@b?user=me@example.com",
           "ssh://me@host-1:22/x git@host:path",
           "journalctl -u fairway-controller -u fairway-worker",
           "/opt/JAX/Build123/site-packages/x/y/z/lib/python3.11/lib-dynload/array.cpython.so",
           "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
           "grpc status 16, authorization failed",
           "expires 2026-11-29 18:00:00 UTC (role: admin, tenant: red)",
       }) {
    EXPECT_EQ(WithoutSecrets(text), text);
  }
}

TEST(WithoutSecrets, LongRandomWordsAreLeftOut) {
  EXPECT_EQ(WithoutSecrets("x 0123456789abcdef0123456789abcdef y"), "x [left out: digits] y");
  EXPECT_EQ(WithoutSecrets("x wJalrXUtnFEMI1K7MDENG2bPxRfiCYEXAMPLEKEY3 y"),
            "x [left out: random word] y");
  // Its first 60 characters alone do not look random.
  EXPECT_EQ(WithoutSecrets("x " + std::string(60, 'z') + "_wJalrXUtnFEMI1K7M2b3 y"),
            "x [left out: random word] y");
  EXPECT_EQ(WithoutSecrets("x wJalrXUtnFEMI1K7/" + std::string(50, 'z') + "/b2P3xRfiCY y"),
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
