// SPDX-License-Identifier: Apache-2.0
#include "client/cli/values.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include <absl/numeric/int128.h>
#include <absl/strings/numbers.h>
#include <fmt/ranges.h>

namespace fairway {
namespace {

using client::DType;

constexpr size_t kShown = 8;

// Calls `work` with a value of the C++ type of `dtype`. False: there is no such C++ type.
template <typename Work>
bool OfType(DType dtype, Work work) {
  switch (dtype) {
    case DType::kPred:
      return work(uint8_t{}), true;
    case DType::kS8:
      return work(int8_t{}), true;
    case DType::kS16:
      return work(int16_t{}), true;
    case DType::kS32:
      return work(int32_t{}), true;
    case DType::kS64:
      return work(int64_t{}), true;
    case DType::kU8:
      return work(uint8_t{}), true;
    case DType::kU16:
      return work(uint16_t{}), true;
    case DType::kU32:
      return work(uint32_t{}), true;
    case DType::kU64:
      return work(uint64_t{}), true;
    case DType::kF32:
      return work(float{}), true;
    case DType::kF64:
      return work(double{}), true;
    default:
      return false;
  }
}

// The value of `text`, which is `number`, as a T: exact, except for the rounding of floats.
// nullopt: T cannot hold it.
template <typename T>
std::optional<T> As(DType dtype, const std::string& text, double number) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(number);
  } else {
    // Not through a double, which would round values above 2^53.
    absl::int128 whole = 0;
    if (!absl::SimpleAtoi(text, &whole)) {  // 1e3
      if (std::trunc(number) != number || std::abs(number) > 0x1p64) return std::nullopt;
      whole = absl::int128(number);
    }
    const absl::int128 most = dtype == DType::kPred ? 1 : std::numeric_limits<T>::max();
    if (whole < std::numeric_limits<T>::min() || whole > most) return std::nullopt;
    return static_cast<T>(whole);
  }
}

}  // namespace

absl::StatusOr<client::HostArray> Filled(DType dtype, const client::Shape& shape,
                                         const std::string& value) {
  double number = 0;
  if (!absl::SimpleAtod(value, &number))
    return InvalidArgument("'{}' is neither a number nor the name of a .npy file", value);
  int64_t size = client::BytesPerElement(dtype);
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(size, extent, &size)) return InvalidArgument("it is too large");
  }
  // calloc's zeros take no memory until they are read.
  void* data = std::calloc(std::max<size_t>(static_cast<size_t>(size), 1), 1);
  if (data == nullptr)
    return Error(absl::StatusCode::kResourceExhausted, "no memory for {} bytes", size);
  const std::shared_ptr<std::byte[]> bytes(static_cast<std::byte*>(data),
                                           [](std::byte* p) { std::free(p); });
  bool fits = true;
  const bool known = OfType(dtype, [&](auto type) {
    using T = decltype(type);
    const std::optional<T> element = As<T>(dtype, value, number);
    fits = element.has_value();
    if (!fits || number == 0) return;
    std::fill_n(static_cast<T*>(data), static_cast<size_t>(size) / sizeof(T), *element);
  });
  if (!fits || (!known && number != 0)) {
    return InvalidArgument("{} cannot be {}{}", client::Name(dtype), value,
                           known ? "" : "; give it 0 or a .npy file");
  }
  return client::HostArray(dtype, shape, bytes, static_cast<size_t>(size));
}

std::string FirstValues(const client::HostArray& array) {
  const auto bytes = array.bytes();
  std::vector<std::string> shown;
  size_t count = 0;
  const bool known = OfType(array.dtype(), [&](auto type) {
    using T = decltype(type);
    count = bytes.size() / sizeof(T);
    for (size_t i = 0; i < std::min(count, kShown); ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      shown.push_back(fmt::format("{}", +value));
    }
  });
  if (!known) {
    count = bytes.size();
    for (size_t i = 0; i < std::min(count, kShown); ++i)
      shown.push_back(fmt::format("0x{:02x}", std::to_integer<int>(bytes[i])));
  }
  if (count > kShown) shown.push_back("...");
  return fmt::format("[{}]", fmt::join(shown, ", "));
}

}  // namespace fairway
