// SPDX-License-Identifier: Apache-2.0
// A custom call as a kernel sees it, and the checks of its shapes. The checks look at no data, so
// the compile helper runs them on a compiled program (worker/compiler/custom_calls.h) before
// anything is launched.
#ifndef FAIRWAY_WORKER_FFI_CALL_H_
#define FAIRWAY_WORKER_FFI_CALL_H_

#include <complex>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "base/status.h"
#include "core/dtype.h"

namespace fairway::ffi {

struct Value {
  DType dtype = DType::kInvalid;
  std::span<const int64_t> dims;
  void* data = nullptr;  // null while only shapes are checked

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// Integers and bools; other attributes are left out.
struct Attribute {
  std::string_view name;
  int64_t value = 0;
};

// A view: what it points at belongs to the caller.
struct Call {
  std::span<const Value> args;
  std::span<const Value> rets;
  std::span<const Attribute> attributes;
  int64_t device = -1;  // the executor's ordinal of the device that runs it; -1: unknown
  int64_t run = 0;      // the plugin's number of the launch; 0: unknown
};

template <typename T>
struct TypeTraits;
template <>
struct TypeTraits<float> {
  using Real = float;
  static constexpr DType kDType = DType::kF32;
  static constexpr bool kComplex = false;
};
template <>
struct TypeTraits<double> {
  using Real = double;
  static constexpr DType kDType = DType::kF64;
  static constexpr bool kComplex = false;
};
template <>
struct TypeTraits<std::complex<float>> {
  using Real = float;
  static constexpr DType kDType = DType::kC64;
  static constexpr bool kComplex = true;
};
template <>
struct TypeTraits<std::complex<double>> {
  using Real = double;
  static constexpr DType kDType = DType::kC128;
  static constexpr bool kComplex = true;
};
template <typename T>
using RealOf = typename TypeTraits<T>::Real;
template <typename T>
inline constexpr DType kDTypeOf = TypeTraits<T>::kDType;
template <typename T>
inline constexpr bool kIsComplex = TypeTraits<T>::kComplex;

// `count` matrices of rows x cols, column by column (JAX asks for that layout), one behind another.
struct Matrices {
  std::span<const int64_t> batch;
  int64_t count = 0, rows = 0, cols = 0;
  int64_t size() const { return rows * cols; }
  int64_t smaller() const { return rows < cols ? rows : cols; }
  // LAPACK wants at least 1, also where there is nothing.
  int64_t leading() const { return rows > 1 ? rows : 1; }
};

// Of a value that has passed CheckMatrices.
Matrices MatricesOf(const Value& value);

// Errors of all below: INVALID_ARGUMENT, with what was found and what was expected.

absl::Status CheckCounts(const Call& call, size_t args, size_t rets);

// Operand `arg` is a batch of matrices of `dtype`. Extents beyond 2^31-1 are refused: JAX's pivots
// are 32-bit numbers.
absl::Status CheckMatrices(const Call& call, size_t arg, DType dtype);
absl::Status CheckSquare(const Call& call, size_t arg, DType dtype);

// The value has `dtype` and the shape `batch` + `inner`.
absl::Status CheckArg(const Call& call, size_t arg, DType dtype, const Matrices& like,
                      std::initializer_list<int64_t> inner);
absl::Status CheckRet(const Call& call, size_t ret, DType dtype, const Matrices& like,
                      std::initializer_list<int64_t> inner);

// The attribute as it was checked before; `otherwise` if there is none.
int64_t AttributeOr(const Call& call, std::string_view name, int64_t otherwise);
// Present, and one of the letters.
absl::Status CheckLetter(const Call& call, std::string_view name, std::string_view letters);
absl::Status CheckFlag(const Call& call, std::string_view name);

inline char Letter(const Call& call, std::string_view name) {
  return static_cast<char>(AttributeOr(call, name, 0));
}

// Result `ret` begins as a copy of operand `arg`, unless it is the same memory.
void CopyToResult(const Call& call, size_t arg, size_t ret);

// Bytes of the value's memory. A type of less than a byte has several elements in each.
int64_t MemoryBytes(const Value& value);

// Copies all elements to and from `bytes`, which has ByteSize of them: as hosts hold them and as
// they cross the wire, so that one of less than a byte is the low bits of a byte. The others are 0
// when read.
void ReadElements(const Value& value, char* bytes);
void WriteElements(const char* bytes, const Value& value);

// Fills every result with NaN, or -1 where there is none: what JAX makes of a failed computation.
void Poison(const Call& call);

}  // namespace fairway::ffi

#endif  // FAIRWAY_WORKER_FFI_CALL_H_
