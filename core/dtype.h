// SPDX-License-Identifier: Apache-2.0
// Element types, and the one table of them: name, size, and their numbers in other protocols. The
// enumerators have the numbers of xla.ifrt.DTypeProto.Kind, so they cross the wire unchanged.
#ifndef FAIRWAY_CORE_DTYPE_H_
#define FAIRWAY_CORE_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace fairway {

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
  kOpaque = 14,
  kC64 = 15,
  kBF16 = 16,
  kToken = 17,
  kC128 = 18,
  kF8E5M2 = 19,
  kF8E4M3FN = 20,
  kS4 = 21,
  kU4 = 22,
  kF8E4M3B11FNUZ = 23,
  kF8E5M2FNUZ = 24,
  kF8E4M3FNUZ = 25,
  kS2 = 26,
  kU2 = 27,
  kF8E4M3 = 28,
  kF8E3M4 = 29,
  kF4E2M1FN = 30,
  kF8E8M0FNU = 31,
  kS1 = 32,
  kU1 = 33,
  kString = 99,
};

// "f32", "bf16", "pred", ...; "invalid" for a number that is not an element type.
std::string_view Name(DType dtype);

// Returns the element type of that number; nullopt: the number is not known.
std::optional<DType> DTypeFromNumber(int32_t number);

// The same for xla.PrimitiveType (HLO protos, OpSharding) and for PJRT_Buffer_Type (plugins).
std::optional<DType> DTypeFromPrimitiveType(int32_t number);
std::optional<DType> DTypeFromPjrtType(int32_t number);

// Returns the xla.PrimitiveType; 0 (invalid): XLA has no such type.
int32_t PrimitiveTypeOf(DType dtype);
// Returns the PJRT_Buffer_Type; nullopt: PJRT has no such type, or the type has no bytes.
std::optional<int32_t> PjrtTypeOf(DType dtype);

// Bits of one element in host memory and on the wire; sub-byte types take a whole byte. 0 for types
// without bytes (token, opaque, string).
int BitsInMemory(DType dtype);

// Bits of one element of a sub-byte type in device memory, where XLA puts several into a byte; 0
// for all other types.
int PackedBits(DType dtype);

// Bytes of one element, BitsInMemory / 8.
inline int64_t BytesPerElement(DType dtype) { return BitsInMemory(dtype) / 8; }

}  // namespace fairway

#endif  // FAIRWAY_CORE_DTYPE_H_
