// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace fairway {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

using Table = std::array<std::array<uint32_t, 256>, 8>;

constexpr Table MakeTable() {
  Table table{};
  for (uint32_t n = 0; n < 256; ++n) {
    uint32_t crc = n;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[0][n] = crc;
  }
  for (uint32_t n = 0; n < 256; ++n) {
    for (size_t k = 1; k < 8; ++k) {
      table[k][n] = (table[k - 1][n] >> 8) ^ table[0][table[k - 1][n] & 0xff];
    }
  }
  return table;
}

constexpr Table kTable = MakeTable();

#if defined(__x86_64__)

// The instruction has a latency of three cycles but can start every cycle. So three blocks are
// summed side by side and joined by "append kBlock zero bytes", a linear map that is kept as a
// table per byte of the sum.
constexpr size_t kBlock = 1024;
using Shift = std::array<std::array<uint32_t, 256>, 4>;

Shift MakeShift() {
  // Column i: the value that bit i has after kBlock zero bytes.
  std::array<uint32_t, 32> column{};
  for (int i = 0; i < 32; ++i) {
    uint32_t crc = uint32_t{1} << i;
    for (size_t byte = 0; byte < kBlock; ++byte) crc = (crc >> 8) ^ kTable[0][crc & 0xff];
    column[i] = crc;
  }
  Shift shift{};
  for (size_t k = 0; k < 4; ++k) {
    for (uint32_t n = 0; n < 256; ++n) {
      uint32_t crc = 0;
      for (int bit = 0; bit < 8; ++bit) {
        if ((n >> bit & 1) != 0) crc ^= column[8 * k + bit];
      }
      shift[k][n] = crc;
    }
  }
  return shift;
}

uint32_t Shifted(const Shift& shift, uint32_t crc) {
  return shift[0][crc & 0xff] ^ shift[1][crc >> 8 & 0xff] ^ shift[2][crc >> 16 & 0xff] ^
         shift[3][crc >> 24];
}

uint64_t Load64(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

__attribute__((target("sse4.2"))) uint32_t ExtendHardware(uint32_t crc, std::string_view bytes) {
  static const Shift shift = MakeShift();
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint64_t a = ~crc;
  for (; left >= 3 * kBlock; left -= 3 * kBlock, at += 3 * kBlock) {
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < kBlock; i += 8) {
      a = _mm_crc32_u64(a, Load64(at + i));
      b = _mm_crc32_u64(b, Load64(at + kBlock + i));
      c = _mm_crc32_u64(c, Load64(at + 2 * kBlock + i));
    }
    a = Shifted(shift, static_cast<uint32_t>(a)) ^ b;
    a = Shifted(shift, static_cast<uint32_t>(a)) ^ c;
  }
  for (; left >= 8; left -= 8, at += 8) a = _mm_crc32_u64(a, Load64(at));
  uint32_t sum = static_cast<uint32_t>(a);
  for (; left > 0; --left, ++at) sum = _mm_crc32_u8(sum, static_cast<uint8_t>(*at));
  return ~sum;
}

#endif

}  // namespace

uint32_t ExtendCrc32cPortable(uint32_t crc, std::string_view bytes) {
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  crc = ~crc;
  for (; left >= 8; left -= 8, at += 8) {
    const uint32_t low =
        crc ^ (at[0] | at[1] << 8 | at[2] << 16 | static_cast<uint32_t>(at[3]) << 24);
    crc = kTable[7][low & 0xff] ^ kTable[6][low >> 8 & 0xff] ^ kTable[5][low >> 16 & 0xff] ^
          kTable[4][low >> 24] ^ kTable[3][at[4]] ^ kTable[2][at[5]] ^ kTable[1][at[6]] ^
          kTable[0][at[7]];
  }
  for (; left > 0; --left, ++at) crc = (crc >> 8) ^ kTable[0][(crc ^ *at) & 0xff];
  return ~crc;
}

uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes) {
#if defined(__x86_64__)
  static const bool hardware = __builtin_cpu_supports("sse4.2") != 0;
  if (hardware) return ExtendHardware(crc, bytes);
#endif
  return ExtendCrc32cPortable(crc, bytes);
}

uint32_t CombineCrc32c(uint32_t first, uint32_t second, size_t second_bytes) {
  // A matrix over bits: what a number of zero bits does to a checksum. Squares have twice as many.
  using Matrix = std::array<uint32_t, 32>;
  const auto times = [](const Matrix& m, uint32_t v) {
    uint32_t sum = 0;
    for (size_t i = 0; v != 0; v >>= 1, ++i) sum ^= (v & 1) != 0 ? m[i] : 0;
    return sum;
  };
  const auto squared = [&](const Matrix& m) {
    Matrix out;
    for (size_t i = 0; i < m.size(); ++i) out[i] = times(m, m[i]);
    return out;
  };
  constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
  Matrix zeros{kPolynomial};                    // of one bit
  for (size_t i = 1; i < zeros.size(); ++i) zeros[i] = uint32_t{1} << (i - 1);
  for (int bits = 1; bits < 8; bits *= 2) zeros = squared(zeros);
  for (; second_bytes != 0; second_bytes >>= 1, zeros = squared(zeros)) {
    if ((second_bytes & 1) != 0) first = times(zeros, first);
  }
  return first ^ second;
}

}  // namespace fairway
