// SPDX-License-Identifier: Apache-2.0
// The support of the fuzz targets. A target is one file NAME_fuzz.cc with LLVMFuzzerTestOneInput
// and Prototype; docs/testing.md describes how to run it.
//
// An input is a list of records, so that one input can be a whole conversation. A record is a byte
// with its kind (the target's own numbers), two bytes of length, little-endian, and the payload.
// Any bytes are a list of records: a length beyond the end means the bytes up to the end.
#ifndef FAIRWAY_TESTS_FUZZ_FUZZ_H_
#define FAIRWAY_TESTS_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/message.h>

// Checks a property that must hold for every input.
#define FUZZ_CHECK(condition)                                                \
  do {                                                                       \
    if (!(condition)) ::fairway::fuzz::Fail(__FILE__, __LINE__, #condition); \
  } while (false)

namespace fairway::fuzz {

struct Record {
  uint8_t kind = 0;
  std::string payload;
};

inline constexpr size_t kMaxPayload = 0xffff;

std::vector<Record> Cut(std::string_view input);
// Payloads are cut at kMaxPayload.
std::string Join(const std::vector<Record>& records);

// Each target defines it: the message type of such a payload, for mutations that keep it parsable;
// nullptr: plain bytes.
const google::protobuf::Message* Prototype(uint8_t kind);

// Takes values off the front of a payload. Missing bytes read as zero or empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  uint8_t Byte();
  uint16_t Short();
  int64_t Long();
  std::string_view Rest();
  bool empty() const { return bytes_.empty(); }

 private:
  uint64_t Take(size_t size);
  std::string_view bytes_;
};

[[noreturn]] void Fail(const char* file, int line, const char* what);

}  // namespace fairway::fuzz

#endif  // FAIRWAY_TESTS_FUZZ_FUZZ_H_
