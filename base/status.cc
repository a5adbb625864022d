// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <algorithm>

namespace fairway {
namespace {

// How much of its end a cut text keeps: at the end of a traceback stands the error.
constexpr size_t kEnd = 1024;  // a quarter of the kept text, at most

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Returns both ends of the text; never cuts within a character (UTF-8).
std::string Cut(std::string_view text, size_t most) {
  const size_t end = std::min(kEnd, most / 4);
  size_t head = most - end;
  while (head > 0 && Continues(text[head])) --head;
  size_t tail = text.size() - end;
  while (tail < text.size() && Continues(text[tail])) ++tail;
  return fmt::format("{}\n... ({} bytes in all) ...\n{}", text.substr(0, head), text.size(),
                     text.substr(tail));
}

// A cut text is a little longer than `most`; it is not cut again.
bool Fits(std::string_view text, size_t most) { return text.size() <= most + 64; }

}  // namespace

std::string BoundedText(std::string_view text, size_t most) {
  return Fits(text, most) ? std::string(text) : Cut(text, most);
}

absl::Status Bounded(absl::Status status, size_t most) {
  size_t payloads = 0;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& value) {
    payloads += url.size() + value.size();
  });
  const std::string_view text(status.message().data(), status.message().size());
  if (Fits(text, most) && payloads <= most) return status;
  absl::Status out(status.code(), BoundedText(text, most));
  if (payloads <= most) {
    status.ForEachPayload(
        [&](absl::string_view url, const absl::Cord& value) { out.SetPayload(url, value); });
  }
  return out;
}

size_t TextShare(size_t errors) {
  return std::clamp<size_t>(kTextBytes / std::max<size_t>(errors, 1), 64, kMaxErrorText);
}

}  // namespace fairway
