// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <google/protobuf/stubs/logging.h>
#include <spdlog/spdlog.h>

namespace fairway::fuzz {
namespace {

constexpr size_t kHeader = 3;

// Silent, because millions of refusals would log a line each.
const bool kQuiet = [] {
  google::protobuf::SetLogHandler(nullptr);
  spdlog::set_level(spdlog::level::off);
  return true;
}();

}  // namespace

std::vector<Record> Cut(std::string_view input) {
  std::vector<Record> out;
  while (input.size() >= kHeader) {
    const size_t length = static_cast<uint8_t>(input[1]) | size_t{static_cast<uint8_t>(input[2])}
                                                               << 8;
    out.push_back({static_cast<uint8_t>(input[0]), std::string(input.substr(kHeader, length))});
    input.remove_prefix(std::min(input.size(), kHeader + length));
  }
  return out;
}

std::string Join(const std::vector<Record>& records) {
  std::string out;
  for (const Record& record : records) {
    const size_t length = std::min(record.payload.size(), kMaxPayload);
    out += static_cast<char>(record.kind);
    out += static_cast<char>(length & 0xff);
    out += static_cast<char>(length >> 8);
    out.append(record.payload, 0, length);
  }
  return out;
}

uint64_t Reader::Take(size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < std::min(size, bytes_.size()); ++i) {
    value |= uint64_t{static_cast<uint8_t>(bytes_[i])} << (8 * i);
  }
  bytes_.remove_prefix(std::min(size, bytes_.size()));
  return value;
}

uint8_t Reader::Byte() { return static_cast<uint8_t>(Take(1)); }
uint16_t Reader::Short() { return static_cast<uint16_t>(Take(2)); }
int64_t Reader::Long() { return static_cast<int64_t>(Take(8)); }
std::string_view Reader::Rest() { return std::exchange(bytes_, {}); }

void Fail(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: must hold for every input: %s\n", file, line, what);
  std::abort();
}

}  // namespace fairway::fuzz
