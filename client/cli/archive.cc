// SPDX-License-Identifier: Apache-2.0
#include "client/cli/archive.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

namespace fairway {
namespace {

constexpr size_t kBlock = 512;

// A header as POSIX's ustar has it (IEEE 1003.1, pax). All its fields are text.
struct Header {
  char name[100], mode[8], user[8], group[8], size[12], time[12], checksum[8], type, link[100],
      magic[6], version[2], user_name[32], group_name[32], major[8], minor[8], prefix[155],
      rest[12];
};
static_assert(sizeof(Header) == kBlock);

template <size_t n>
void Put(char (&field)[n], std::string_view text) {
  std::memcpy(field, text.data(), std::min(n, text.size()));
}

std::string HeaderOf(const ArchivedFile& file, int64_t time_s) {
  Header header{};
  Put(header.name, file.name);
  Put(header.mode, "0000600");
  Put(header.user, "0000000");
  Put(header.group, "0000000");
  Put(header.size, fmt::format("{:011o}", file.text.size()));
  Put(header.time, fmt::format("{:011o}", time_s));
  Put(header.checksum, "        ");
  header.type = '0';
  Put(header.magic, "ustar");
  Put(header.version, "00");
  std::string out(reinterpret_cast<const char*>(&header), sizeof header);
  unsigned sum = 0;
  for (const char byte : out) sum += static_cast<unsigned char>(byte);
  Put(header.checksum, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

absl::StatusOr<std::string> Gzip(std::string& text) {
  constexpr int kWithGzipHeader = 16;
  z_stream stream{};
  if (::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + kWithGzipHeader, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK)
    return absl::ResourceExhaustedError("no memory to compress the archive");
  std::string out(::deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = ::deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  ::deflateEnd(&stream);
  if (result != Z_STREAM_END) return absl::InternalError("zlib cannot compress the archive");
  return out;
}

}  // namespace

absl::StatusOr<std::string> TarGz(const std::vector<ArchivedFile>& files, int64_t time_s) {
  std::string tar;
  for (const ArchivedFile& file : files) {
    if (file.name.size() > sizeof Header().name)
      return InvalidArgument("'{}' is too long a name for an archive", file.name);
    tar += HeaderOf(file, time_s) + file.text;
    tar.append((kBlock - file.text.size() % kBlock) % kBlock, '\0');
  }
  tar.append(2 * kBlock, '\0');
  return Gzip(tar);
}

}  // namespace fairway
