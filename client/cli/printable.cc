// SPDX-License-Identifier: Apache-2.0
#include "client/cli/printable.h"

#include <algorithm>
#include <cstddef>

#include "base/utf8.h"

namespace fairway {
namespace {

// How many bytes at the start of `text`, which is UTF-8, are a character that is not shown.
size_t Controls(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  if (byte(0) == 0xc2 && byte(1) < 0xa0) return 2;  // U+0080 to U+009F
  // U+200E, U+200F, U+2028 to U+202E: marks of direction, and ends of lines.
  if (byte(0) == 0xe2 && byte(1) == 0x80 &&
      (byte(2) == 0x8e || byte(2) == 0x8f || (byte(2) >= 0xa8 && byte(2) <= 0xae)))
    return 3;
  // U+2066 to U+2069
  return byte(0) == 0xe2 && byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9 ? 3 : 0;
}

}  // namespace

std::string Printable(std::string_view text) {
  const std::string valid = ValidUtf8(text);
  std::string out;
  for (size_t i = 0; i < valid.size();) {
    const size_t controls = Controls(std::string_view(valid).substr(i));
    out += controls > 0 ? '?' : valid[i];
    i += controls > 0 ? controls : 1;
  }
  return out;
}

std::string PrintableLines(std::string_view text) {
  std::string out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out += (at > 0 ? "\n" : "") + Printable(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace fairway
