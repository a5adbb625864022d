// SPDX-License-Identifier: Apache-2.0
#include "transport/frame.h"

#include <bit>
#include <cstring>

namespace fairway {
namespace {

constexpr uint32_t kMagic = 0x59575246;  // "FRWY"
constexpr uint8_t kVersion = 1;

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

template <typename T>
void Put(char*& at, T value) {
  std::memcpy(at, &value, sizeof value);
  at += sizeof value;
}

template <typename T>
void Take(const char*& at, T& value) {
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
}

}  // namespace

void EncodeFrameHeader(const FrameHeader& header, char* out) {
  Put(out, kMagic);
  Put(out, kVersion);
  Put(out, header.type);
  Put(out, header.flags);
  Put(out, header.id);
  Put(out, header.offset);
  Put(out, header.length);
  Put(out, header.crc);
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(const char* in) {
  uint32_t magic = 0;
  uint8_t version = 0;
  FrameHeader header;
  Take(in, magic);
  Take(in, version);
  Take(in, header.type);
  Take(in, header.flags);
  Take(in, header.id);
  Take(in, header.offset);
  Take(in, header.length);
  Take(in, header.crc);
  if (magic != kMagic) {
    return InvalidArgument(
        "not a Fairway link: magic {:#010x}, expected {:#010x} (a worker needs the controller's "
        "--link-port, 29002 by default; the clients' port, 29000, speaks gRPC)",
        magic, kMagic);
  }
  if (version != kVersion) {
    return InvalidArgument("the peer speaks link version {}, this process version {}", version,
                           kVersion);
  }
  if (header.length > kMaxFrameBytes) {
    return InvalidArgument("a frame of {} bytes is over the limit of {}", header.length,
                           kMaxFrameBytes);
  }
  return header;
}

}  // namespace fairway
