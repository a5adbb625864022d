// SPDX-License-Identifier: Apache-2.0
// Writes a protobuf message without making one: for the few that are sent for each gang.
#ifndef FAIRWAY_WIRE_BACKWARDS_WRITER_H_
#define FAIRWAY_WIRE_BACKWARDS_WRITER_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

namespace fairway {

// A list from its last element to its first. (std::views::reverse does not compile with clang 14.)
template <typename Values>
class Backwards {
 public:
  explicit Backwards(const Values& values) : values_(values) {}
  auto begin() const { return std::rbegin(values_); }
  auto end() const { return std::rend(values_); }

 private:
  const Values& values_;
};

// Writes from the last field to the first, so that the length of a nested message is known when its
// turn comes. Leaves out fields that have their default, as proto3 does. A value of one call.
class BackwardsWriter {
 public:
  BackwardsWriter() = default;
  BackwardsWriter(const BackwardsWriter&) = delete;
  BackwardsWriter& operator=(const BackwardsWriter&) = delete;

  // A number or bool. A negative int32 has ten bytes, as protobuf's.
  void Number(int field, uint64_t value) {
    if (value == 0) return;
    Varint(value);
    Tag(field, 0);
  }
  // A fixed64.
  void Fixed(int field, uint64_t value) {
    if (value == 0) return;
    char* const to = Room(sizeof value);
    for (size_t i = 0; i < sizeof value; ++i) to[i] = static_cast<char>(value >> 8 * i);
    Tag(field, 1);
  }
  void Bytes(int field, std::string_view bytes) {
    if (bytes.empty()) return;
    std::ranges::copy(bytes, Room(bytes.size()));
    Nested(field, size() - bytes.size());
  }
  // An element of a packed list; Nested ends the list.
  void Element(uint64_t value) { Varint(value); }
  template <typename Values>
  void Numbers(int field, const Values& values) {
    const size_t before = size();
    for (const auto value : Backwards(values)) Element(static_cast<uint64_t>(value));
    if (size() > before) Nested(field, before);
  }
  // What was written since there were `before` bytes is a nested message, or a list.
  void Nested(int field, size_t before) {
    Varint(size() - before);
    Tag(field, 2);
  }

  size_t size() const { return static_cast<size_t>(end_ - at_); }
  std::string_view bytes() const { return {at_, size()}; }

 private:
  void Tag(int field, int type) { Varint(static_cast<uint64_t>(field) << 3 | type); }
  void Varint(uint64_t value) {
    if (value < 0x80) {  // as most are
      *Room(1) = static_cast<char>(value);
    } else {
      LongVarint(value);
    }
  }
  void LongVarint(uint64_t value) {
    char* to = Room((std::bit_width(value) + 6) / 7);
    for (; value >= 0x80; value >>= 7) *to++ = static_cast<char>(value | 0x80);
    *to = static_cast<char>(value);
  }
  // Room for `bytes` before the rest.
  char* Room(size_t bytes) {
    if (static_cast<size_t>(at_ - begin_) < bytes) Grow(bytes);
    return at_ -= bytes;
  }
  void Grow(size_t bytes) {
    const size_t had = size(), all = 2 * static_cast<size_t>(end_ - begin_) + bytes;
    auto larger = std::make_unique_for_overwrite<char[]>(all);
    std::copy(at_, end_, larger.get() + (all - had));
    heap_ = std::move(larger);
    begin_ = heap_.get();
    end_ = begin_ + all;
    at_ = end_ - had;
  }

  char small_[512];
  std::unique_ptr<char[]> heap_;  // in place of small_, once that is full
  // Invariant: begin_ to end_ is small_ or heap_, and what was written is at_ to end_.
  char* begin_ = small_;
  char* end_ = small_ + sizeof(small_);
  char* at_ = end_;
};

}  // namespace fairway

#endif  // FAIRWAY_WIRE_BACKWARDS_WRITER_H_
