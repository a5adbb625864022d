// SPDX-License-Identifier: Apache-2.0
#include "client/cli/redact.h"

#include <algorithm>
#include <cctype>

#include <re2/re2.h>

namespace fairway {
namespace {

struct Rule {
  const char* pattern;
  const char* instead;
};

// In this order: what an earlier one has left out is nothing to the later ones.
constexpr Rule kRules[] = {
    {"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\\z)",
     "[left out: private key]"},
    // The inner lines of a key whose first one is cut off.
    {"(?m)(?:^[A-Za-z0-9+/]{60,80}[ \\t\\r]*\\n)+(?:[A-Za-z0-9+/]{1,80}={0,2}[ \\t\\r]*$)?",
     "[left out: lines of base64]\n"},
    {"(?m)^[A-Za-z0-9+/]{60,}={0,2}[ \\t\\r]*$", "[left out: base64]"},
    {"(?i)\\b(bearer|basic|negotiate)\\s+[A-Za-z0-9+/_=.~-]{6,}", "\\1 [left out]"},
    // NAME=value, NAME: value, "NAME": "value"; not of names that end otherwise, like token-file.
    {"(?i)([\\w.-]*(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|"
     "credential|authorization|cookie|token)s?\\\\?[\"']?\\s*[:=]\\s*)"
     "(?:\\\\\"[^\"\\n]*\\\\\"|\"[^\"\\n]*\"|'[^'\\n]*'|[^\\s\"',;&]+)",
     "\\1[left out]"},
    {"fw_[0-9a-fA-F]{8,}", "[left out: token]"},
    {"([A-Za-z][A-Za-z0-9+.-]*://)[^/\\s:@\"']*:[^/\\s@\"']+@", "\\1[left out]@"},
    {"\\b(?:AKIA|ASIA)[A-Z0-9]{16}\\b|\\bgh[pousr]_[A-Za-z0-9]{16,}|\\bgithub_pat_\\w{16,}|"
     "\\bglpat-[\\w-]{16,}|\\bhf_[A-Za-z0-9]{16,}|\\bsk-[\\w-]{16,}|\\bxox[a-z]-[\\w-]{10,}|"
     "\\bya29\\.[\\w-]+|\\beyJ[\\w-]{8,}\\.[\\w-]{8,}(?:\\.[\\w-]*)?",
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

std::string WithoutRandomWords(const std::string& text) {
  static const RE2 word("([A-Za-z0-9_+=-]{32,})");
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
  return WithoutRandomWords(out);
}

}  // namespace fairway
