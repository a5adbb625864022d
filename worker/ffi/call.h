// SPDX-License-Identifier: Apache-2.0
// A custom call as a kernel sees it, and the checks of its shapes. The checks look at no data, so a
// compile process runs them on a compiled program (worker/compiler/check_custom_calls.h) before
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

// An operand or a result.
struct Value {
  DType dtype = DType::kInvalid;
  std::span<const int64_t> dims;
  void* data = nullptr;  // null while only shapes are checked

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// Attributes that are integers and bools; others are left out.
struct Attribute {
  std::string_view name;
  int64_t value = 0;
};

// A view: the caller owns the values and attributes.
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

// `count` matrices of rows x cols, one after another. Each is stored column by column (the layout
// that JAX asks for).
struct Matrices {
  std::span<const int64_t> batch;
  int64_t count = 0, rows = 0, cols = 0;
  int64_t size() const { return rows * cols; }
  int64_t smaller() const { return rows < cols ? rows : cols; }
  // LAPACK wants at least 1, even for an empty matrix.
  int64_t leading() const { return rows > 1 ? rows : 1; }
};

// Returns the matrices of a value that has passed CheckMatrices.
Matrices MatricesOf(const Value& value);

// All checks below return INVALID_ARGUMENT with the value found and the value expected.

absl::Status CheckCounts(const Call& call, size_t args, size_t rets);

// Checks that operand `arg` is a batch of matrices of `dtype`. Refuses extents beyond 2^31-1,
// because JAX's pivots are 32-bit numbers.
absl::Status CheckMatrices(const Call& call, size_t arg, DType dtype);
absl::Status CheckSquare(const Call& call, size_t arg, DType dtype);

// Checks that the value has `dtype` and the shape `batch` + `inner`.
absl::Status CheckArg(const Call& call, size_t arg, DType dtype, const Matrices& like,
                      std::initializer_list<int64_t> inner);
absl::Status CheckRet(const Call& call, size_t ret, DType dtype, const Matrices& like,
                      std::initializer_list<int64_t> inner);

// Returns the attribute, which was checked before; `otherwise` if there is none.
int64_t AttributeOr(const Call& call, std::string_view name, int64_t otherwise);
// Checks that the attribute is present and one of the letters.
absl::Status CheckLetter(const Call& call, std::string_view name, std::string_view letters);
absl::Status CheckFlag(const Call& call, std::string_view name);

inline char Letter(const Call& call, std::string_view name) {
  return static_cast<char>(AttributeOr(call, name, 0));
}

// Copies operand `arg` to result `ret`, unless they are the same memory.
void CopyToResult(const Call& call, size_t arg, size_t ret);

// Returns the bytes of the value's memory. Types smaller than a byte have several elements in each
// byte.
int64_t MemoryBytes(const Value& value);

// Copies all elements to `bytes` (or from it), which has ByteSize bytes, in the form of hosts and
// of the wire: an element smaller than a byte is the low bits of a byte of its own. Reading sets
// the other bits to 0.
void ReadElements(const Value& value, char* bytes);
void WriteElements(const char* bytes, const Value& value);

// Fills every result with NaN, or with -1 if the type has no NaN: JAX's results of a failed
// computation.
void Poison(const Call& call);

}  // namespace fairway::ffi

#endif  // FAIRWAY_WORKER_FFI_CALL_H_
