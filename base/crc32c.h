// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli): uses the SSE4.2 instruction if the CPU has it, else tables.
#ifndef FAIRWAY_BASE_CRC32C_H_
#define FAIRWAY_BASE_CRC32C_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fairway {

// Returns the checksum of earlier bytes, which gave `crc`, followed by `bytes`; begin with 0.
// Thread-safe.
uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes);

inline uint32_t Crc32c(std::string_view bytes) { return ExtendCrc32c(0, bytes); }

// The checksum of bytes that gave `first`, followed by `second_bytes` bytes that gave `second`.
uint32_t CombineCrc32c(uint32_t first, uint32_t second, size_t second_bytes);

// The form with tables, for tests and other CPUs.
uint32_t ExtendCrc32cPortable(uint32_t crc, std::string_view bytes);

}  // namespace fairway

#endif  // FAIRWAY_BASE_CRC32C_H_
