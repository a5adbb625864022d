// SPDX-License-Identifier: Apache-2.0
#include "client/cli/npy.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <fmt/ranges.h>

namespace fairway {
namespace {

using client::DType;
using client::HostArray;

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kAlignment = 64;  // of the array's bytes within the file

struct Name {
  std::string_view descr;
  DType dtype;
};
constexpr Name kNames[] = {{"|b1", DType::kPred}, {"|i1", DType::kS8},   {"<i2", DType::kS16},
                           {"<i4", DType::kS32},  {"<i8", DType::kS64},  {"|u1", DType::kU8},
                           {"<u2", DType::kU16},  {"<u4", DType::kU32},  {"<u8", DType::kU64},
                           {"<f2", DType::kF16},  {"<f4", DType::kF32},  {"<f8", DType::kF64},
                           {"<c8", DType::kC64},  {"<c16", DType::kC128}};

// The text after `'key': ` in the header, up to one of `ends`.
std::optional<std::string> Field(const std::string& header, std::string_view key,
                                 std::string_view ends) {
  const size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = header.find_first_not_of(' ', at + key.size() + 3);
  if (begin == std::string::npos) return std::nullopt;
  const size_t end = header.find_first_of(ends, begin + 1);
  if (end == std::string::npos) return std::nullopt;
  return header.substr(begin, end - begin);
}

absl::StatusOr<client::Shape> ShapeOf(const std::string& text) {
  client::Shape shape;
  for (const auto part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    int64_t extent = 0;
    if (!absl::SimpleAtoi(part, &extent) || extent < 0)
      return InvalidArgument("its shape is ({})", text);
    shape.push_back(extent);
  }
  return shape;
}

absl::StatusOr<size_t> SizeOf(DType dtype, const client::Shape& shape) {
  int64_t size = client::BytesPerElement(dtype);
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(size, extent, &size)) return InvalidArgument("it is too large");
  }
  return static_cast<size_t>(size);
}

// The header's text; afterwards the stream is at its end.
absl::StatusOr<std::string> HeaderOf(std::istream& in) {
  char start[8] = {};
  in.read(start, sizeof start);
  if (!in || std::string_view(start, kMagic.size()) != kMagic || start[6] < 1 || start[6] > 3)
    return InvalidArgument("it is no .npy file of version 1 to 3");
  unsigned char size[4] = {};
  in.read(reinterpret_cast<char*>(size), start[6] == 1 ? 2 : 4);
  const size_t length = size[0] + (size_t{size[1]} << 8) + (size_t{size[2]} << 16);
  std::string header(length, '\0');
  in.read(header.data(), static_cast<std::streamsize>(length));
  if (!in || size[3] != 0) return InvalidArgument("its header is cut off");
  return header;
}

absl::StatusOr<HostArray> Read(std::istream& in) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::string header, HeaderOf(in));
  const auto descr = Field(header, "descr", ",}");
  const auto order = Field(header, "fortran_order", ",}");
  const auto dims = Field(header, "shape", ")");
  if (!descr.has_value() || !order.has_value() || !dims.has_value())
    return InvalidArgument("its header is {}", header);
  const auto* name = std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& n) {
    return *descr == fmt::format("'{}'", n.descr);
  });
  if (name == std::end(kNames)) return InvalidArgument("no array has its type {}", *descr);
  if (*order != "False")
    return InvalidArgument("it is in Fortran order; write numpy.ascontiguousarray of it");
  FAIRWAY_ASSIGN_OR_RETURN(client::Shape shape, ShapeOf(dims->substr(1)));
  FAIRWAY_ASSIGN_OR_RETURN(const size_t size, SizeOf(name->dtype, shape));
  const auto here = in.tellg();
  in.seekg(0, std::ios::end);
  const auto there = static_cast<size_t>(in.tellg() - here);
  if (there != size) return InvalidArgument("it has {} bytes of data, not {}", there, size);
  in.seekg(here);
  std::shared_ptr<std::byte[]> bytes(new std::byte[size]);
  in.read(reinterpret_cast<char*>(bytes.get()), static_cast<std::streamsize>(size));
  if (!in) return InvalidArgument("it cannot be read to its end");
  return HostArray(name->dtype, std::move(shape), std::move(bytes), size);
}

}  // namespace

absl::StatusOr<HostArray> ReadNpy(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error(absl::StatusCode::kNotFound, "cannot read {}", path);
  auto array = Read(in);
  if (!array.ok()) return Annotate(array.status(), path);
  return array;
}

absl::Status WriteNpy(const std::string& path, const HostArray& array) {
  const auto* name = std::find_if(std::begin(kNames), std::end(kNames),
                                  [&](const Name& n) { return n.dtype == array.dtype(); });
  if (name == std::end(kNames))
    return InvalidArgument("{}: NumPy has no type for {}", path, client::Name(array.dtype()));
  std::string dims = fmt::format("{}", fmt::join(array.shape(), ", "));
  if (array.shape().size() == 1) dims += ",";
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", name->descr, dims);
  const size_t before = kMagic.size() + 4;
  header.append(kAlignment - (before + header.size() + 1) % kAlignment, ' ');
  header += '\n';
  const char version_and_size[] = {1, 0, static_cast<char>(header.size() & 0xff),
                                   static_cast<char>(header.size() >> 8)};
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << kMagic << std::string_view(version_and_size, sizeof version_and_size) << header;
  out.write(reinterpret_cast<const char*>(array.bytes().data()),
            static_cast<std::streamsize>(array.bytes().size()));
  out.close();
  if (!out) return Error(absl::StatusCode::kUnavailable, "cannot write {}", path);
  return absl::OkStatus();
}

}  // namespace fairway
