// SPDX-License-Identifier: Apache-2.0
#include "base/redact.h"

#include <algorithm>
#include <cctype>
#include <string>

#include <re2/re2.h>

namespace fairway {
namespace {

struct Rule {
  std::string pattern;
  const char* instead;
};

// A value in quotes, as JSON, Python and shells write it, or in quotes that a string of JSON has
// (\"a b\"). One that is not closed goes on to the end of its line; so do deeper ones.
constexpr char kQuoted[] =
    R"re("(?:[^"\\\n]|\\.)*\\?"?|'(?:[^'\\\n]|\\.)*\\?'?|)re"
    R"re(\\"(?:\\{4}|\\\\\\"|\\\\|\\[^"\\\n]|[^"\\\n])*(?:\\")?|\\{2,}["'][^\n]*)re";
// How the names of secrets end.
constexpr char kNames[] =
    "(?:password|passwd|passphrase|secret|credential|token|"
    "(?:secret|api|access|account|private|shared|signing|encryption|master)[_-]?key)s?";
// What is between a name and its value: NAME=value, NAME: value, "NAME": "value".
constexpr char kIs[] = R"re(\\*["']?\s*[:=]\s*)re";

// What may stand before a value, with a space: without it the word would be taken for the value.
constexpr char kScheme[] = R"re((?:(?:bearer|basic|digest|negotiate|token)[ \t]+)?)re";

// Each is tried at each place of the text, the first one that fits is taken.
std::string Values() {
  const std::string quoted = kQuoted, names = kNames, is = kIs, scheme = kScheme;
  // Headers: all of the line is their value.
  return "(?i)((?:authorization|cookies?2?)" + is + ")(?:" + quoted +
         R"re(|\\?[^\s"'\\][^\n]*)|)re" +
         // --password value, "--password", "value"
         R"re((--?[\w.-]*(?:pass|pwd|)re" + names + R"re()(?:=|[ \t]+|["'],[ \t]*)))re" + scheme +
         "(?:" + quoted + R"re(|(?:\\*[^\s"'\\])+)|)re" +
         R"re(((?:-u|--user|--proxy-user)[ =])[^\s:"']+:[^\s"']+|)re" +
         // Not of names that end otherwise, like token-file.
         R"re(((?:[\w.-]*(?:)re" + names +
         R"re(|(?-i:[pP]wd|[._-]PWD))|\bsig|[\w-]*-signature))re" + is + ")" + scheme +
         "(?:" + quoted + R"re(|(?:\\*[^\s"',;&\\])+)|)re" +
         // The working directory is no secret.
         R"re(\b((?-i:PWD)=)\\*[^\s/"',;&\\](?:\\*[^\s"',;&\\])*)re";
}

// In this order: what an earlier one has left out is nothing to the later ones.
const Rule kRules[] = {
    {"(?s)-{0,5}BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?"
     "(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\\z)",
     "[left out: private key]"},
    // The end of a key whose first lines are cut off.
    {R"re((?:[A-Za-z0-9+/=]+(?:\s|\\[nr])+)*-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-{0,5})re",
     "[left out: end of a private key]"},
    // The inner lines of a key of which both ends are cut off.
    {"(?m)(?:^[A-Za-z0-9+/]{60,80}[ \\t\\r]*\\n)+(?:[A-Za-z0-9+/]{1,80}={0,2}[ \\t\\r]*$)?",
     "[left out: lines of base64]\n"},
    {"(?m)^[A-Za-z0-9+/]{60,}={0,2}[ \\t\\r]*$", "[left out: base64]"},
    {Values(), "\\1\\2\\3\\4\\5[left out]"},
    {"(?i)\\b(bearer|basic|negotiate)\\s+[A-Za-z0-9+/_=.~-]{6,}", "\\1 [left out]"},
    {"fw_[0-9a-fA-F]{8,}", "[left out: token]"},
    // In addresses: user:password@, and long users, which are tokens.
    {"([A-Za-z][A-Za-z0-9+.-]*://)(?:[^/\\s:@\"']*:[^/\\s\"']+|[^/\\s:@\"']{20,})@",
     "\\1[left out]@"},
    {"\\b(?:AKIA|ASIA)[A-Z0-9]{16}\\b|\\bgh[pousr]_[A-Za-z0-9]{16,}|\\bgithub_pat_\\w{16,}|"
     "\\bglpat-[\\w-]{16,}|\\bhf_[A-Za-z0-9]{16,}|\\bsk-[\\w-]{16,}|\\bxox[a-z]-[\\w-]{10,}|"
     "\\bya29\\.[\\w-]+|\\bAIza[\\w-]{30,}|\\beyJ[\\w-]{8,}\\.[\\w-]{8,}(?:\\.[\\w-]*)?",
     "[left out: token]"},
    {"\\b[0-9a-fA-F]{32,}\\b", "[left out: digits]"},
};

// Words of random characters have all of these; names of functions as linkers have them do, too.
bool LooksRandom(std::string_view word) {
  const auto count = [&](int (*is)(int)) {
    return std::ranges::count_if(word, [is](char c) { return is(static_cast<unsigned char>(c)); });
  };
  return !word.starts_with("_Z") && count(std::isdigit) >= 3 && count(std::islower) >= 3 &&
         count(std::isupper) >= 3;
}

// `word` has one group.
std::string WithoutRandomWords(const std::string& text, const RE2& word) {
  std::string out;
  re2::StringPiece rest(text), found;
  const char* done = text.data();
  while (RE2::FindAndConsume(&rest, word, &found)) {
    if (!LooksRandom({found.data(), found.size()})) continue;
    out.append(done, found.data());
    out += "[left out: random word]";
    done = found.data() + found.size();
  }
  return out.append(done, text.data() + text.size());
}

}  // namespace

std::string WithoutSecrets(std::string_view text) {
  std::string out(text);
  RE2::Options options;
  options.set_encoding(RE2::Options::EncodingLatin1);  // logs may have any bytes
  for (const Rule& rule : kRules)
    RE2::GlobalReplace(&out, RE2(rule.pattern, options), rule.instead);
  // One after the other: else the first part of a word, as one of them has it, hides the rest.
  static const RE2 word("([A-Za-z0-9_+=-]{32,})"), base64("([A-Za-z0-9+/=]{60,})");
  return WithoutRandomWords(WithoutRandomWords(out, word), base64);
}

}  // namespace fairway
