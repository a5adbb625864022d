// SPDX-License-Identifier: Apache-2.0
// Element types, shapes and shardings of arrays. Plain values.
#ifndef FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_TYPES_H_
#define FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_TYPES_H_

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fairway/export.h"

namespace fairway::client {

// The numbers of the protocol (and of xla.ifrt.DTypeProto.Kind).
enum class DType : int32_t {
  kInvalid = 0,
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kC64 = 15,
  kBF16 = 16,
  kC128 = 18,
  kF8E5M2 = 19,
  kF8E4M3FN = 20,
  kS4 = 21,  // sub-byte types: in host memory each is the low bits of a byte, the other bits 0
  kU4 = 22,
  kF8E4M3B11FNUZ = 23,
  kF8E5M2FNUZ = 24,
  kF8E4M3FNUZ = 25,
  kF8E4M3 = 28,
  kF8E3M4 = 29,
  kF4E2M1FN = 30,
  kF8E8M0FNU = 31,
};

// "f32", "bf16", ...; "invalid".
FAIRWAY_API std::string Name(DType dtype);
// The bytes in host memory; 0 for kInvalid.
FAIRWAY_API int64_t BytesPerElement(DType dtype);

// The element type of a C++ type: DTypeOf<float>().
template <typename T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, bool>) return DType::kPred;
  if constexpr (std::is_same_v<T, int8_t>) return DType::kS8;
  if constexpr (std::is_same_v<T, int16_t>) return DType::kS16;
  if constexpr (std::is_same_v<T, int32_t>) return DType::kS32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::kS64;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::kU8;
  if constexpr (std::is_same_v<T, uint16_t>) return DType::kU16;
  if constexpr (std::is_same_v<T, uint32_t>) return DType::kU32;
  if constexpr (std::is_same_v<T, uint64_t>) return DType::kU64;
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, std::complex<float>>) return DType::kC64;
  if constexpr (std::is_same_v<T, std::complex<double>>) return DType::kC128;
  return DType::kInvalid;
}

// Extents, major dimension first; {} is a scalar.
using Shape = std::vector<int64_t>;

// How an array is cut into shards, one for each device, and on which devices they lie. Devices are
// numbered as in Session::devices(), each at most once.
struct Sharding {
  std::vector<int> devices;
  // Pieces per dimension: shard i is tile tile_of[i] of the grid, counted row-major. Empty tile_of:
  // shard i is tile i, so there are as many tiles as devices. Empty tiles: every shard is the whole
  // array.
  std::vector<int64_t> tiles;
  std::vector<int64_t> tile_of;
  std::string memory_kind;  // empty: the devices' default

  static Sharding Single(int device) { return {{device}, {}, {}, {}}; }
  static Sharding Replicated(std::vector<int> devices) { return {std::move(devices), {}, {}, {}}; }
  // {2, 1}: two pieces of rows.
  static Sharding Tiled(std::vector<int> devices, std::vector<int64_t> tiles) {
    return {std::move(devices), std::move(tiles), {}, {}};
  }
  friend bool operator==(const Sharding&, const Sharding&) = default;
};

// The type of a whole array: element type, global shape and sharding.
struct ArraySpec {
  DType dtype = DType::kInvalid;
  Shape shape;
  Sharding sharding;
  friend bool operator==(const ArraySpec&, const ArraySpec&) = default;
};

// "f32[8,128]"
FAIRWAY_API std::string ToString(const ArraySpec& spec);

// The bytes of a whole array in this process: dense, major to minor. A value; copies share the
// bytes.
class HostArray {
 public:
  HostArray() = default;
  HostArray(DType dtype, Shape shape, std::shared_ptr<const std::byte[]> bytes, size_t size)
      : dtype_(dtype), shape_(std::move(shape)), bytes_(std::move(bytes)), size_(size) {}

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::span<const std::byte> bytes() const { return {bytes_.get(), size_}; }
  // The elements if T is their type; otherwise none. Valid while a copy of this object exists.
  template <typename T>
  std::span<const T> values() const {
    if (DTypeOf<T>() != dtype_ || dtype_ == DType::kInvalid) return {};
    return {reinterpret_cast<const T*>(bytes_.get()), size_ / sizeof(T)};
  }

 private:
  DType dtype_ = DType::kInvalid;
  Shape shape_;
  std::shared_ptr<const std::byte[]> bytes_;
  size_t size_ = 0;
};

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_TYPES_H_
