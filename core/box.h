// SPDX-License-Identifier: Apache-2.0
// A box inside a dense array of bytes, major to minor, and the copy of one box into another.
#ifndef FAIRWAY_CORE_BOX_H_
#define FAIRWAY_CORE_BOX_H_

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace fairway {

// A box, and the array that it lies in.
struct Box {
  int64_t element_bytes = 0;
  std::vector<int64_t> dims;     // of the array
  std::vector<int64_t> origin;   // where the box begins
  std::vector<int64_t> extents;  // of the box

  // The box that is the whole array of these extents.
  static Box Whole(int64_t element_bytes, std::vector<int64_t> dims);
  // The box alone, as a dense array.
  Box Alone() const { return Whole(element_bytes, extents); }
  bool whole() const { return extents == dims; }

  // The bytes of the box, which has passed CheckBox.
  int64_t bytes() const;
  int64_t array_bytes() const;

  friend bool operator==(const Box&, const Box&) = default;
};

// INVALID_ARGUMENT: lists of different lengths or longer than 64, an element of no bytes or of more
// than 64, an array of more than 2^62 bytes, or a box that reaches beyond its array.
absl::Status CheckBox(const Box& box);

// Copies box `from` of `source` to box `to` of `target`. Both boxes have the same extents and have
// passed CheckBox; source and target are as long as the boxes' arrays. Other bytes of `target` do
// not change.
void CopyBox(const Box& from, const char* source, const Box& to, char* target);

}  // namespace fairway

#endif  // FAIRWAY_CORE_BOX_H_
