// SPDX-License-Identifier: Apache-2.0
// Varints as protobuf's: one to ten bytes of seven bits each, the lowest first; the highest bit of
// a byte says that another one follows. Only the shortest form of a number is accepted.
#ifndef FAIRWAY_LOG_VARINT_H_
#define FAIRWAY_LOG_VARINT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace fairway {

// Returns the end of what was written, at most kMaxVarintBytes.
inline constexpr size_t kMaxVarintBytes = 10;
inline char* PutVarint(uint64_t value, char* out) {
  for (; value >= 0x80; value >>= 7) *out++ = static_cast<char>(value | 0x80);
  *out++ = static_cast<char>(value);
  return out;
}

inline void PutVarint(uint64_t value, std::string* out) {
  char bytes[kMaxVarintBytes];
  out->append(bytes, PutVarint(value, bytes));
}

constexpr size_t VarintBytes(uint64_t value) {
  size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

// Reads values from the front of untrusted bytes.
class VarintReader {
 public:
  explicit VarintReader(std::string_view bytes) : rest_(bytes) {}

  // INVALID_ARGUMENT with `what`: the value is cut off, has more than 64 bits, or is not in its
  // shortest form.
  absl::StatusOr<uint64_t> Take(std::string_view what) {
    uint64_t value = 0;
    for (size_t i = 0; i < rest_.size() && i < kMost; ++i) {
      const uint8_t byte = static_cast<uint8_t>(rest_[i]);
      if (i == kMost - 1 && byte > 1) break;
      value |= uint64_t{byte & 0x7fu} << (7 * i);
      if ((byte & 0x80) != 0) continue;
      if (byte == 0 && i > 0)
        return InvalidArgument("{} of {} bytes, expected its shortest form", what, i + 1);
      rest_.remove_prefix(i + 1);
      return value;
    }
    if (rest_.size() < kMost)
      return InvalidArgument("{} is cut off after {} bytes", what, rest_.size());
    return InvalidArgument("{} has more than 64 bits", what);
  }

  // The next `size` bytes, or all left() if these are fewer.
  std::string_view TakeBytes(size_t size) {
    const std::string_view out = rest_.substr(0, size);
    rest_.remove_prefix(out.size());
    return out;
  }
  size_t left() const { return rest_.size(); }

 private:
  static constexpr size_t kMost = 10;
  std::string_view rest_;
};

}  // namespace fairway

#endif  // FAIRWAY_LOG_VARINT_H_
