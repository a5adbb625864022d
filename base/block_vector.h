// SPDX-License-Identifier: Apache-2.0
// A vector of which long stretches are mostly equal and are changed together: for what is counted
// by device, of which an island may have many thousand.
#ifndef FAIRWAY_BASE_BLOCK_VECTOR_H_
#define FAIRWAY_BASE_BLOCK_VECTOR_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace fairway {

// A block of elements that are all equal is held, changed and looked at as one. A change of a part
// of a block makes it a block of single elements; a change of the whole block makes it one again if
// they are equal then. T is default-constructible, copyable and equality comparable. Not
// thread-safe.
template <typename T>
class BlockVector {
 public:
  static constexpr size_t kBlock = 64;

  size_t size() const { return size_; }
  const T& operator[](size_t i) const {
    const Block& block = blocks_[i / kBlock];
    return block.each == nullptr ? block.same : (*block.each)[i % kBlock];
  }

  // New elements are T(). It never shrinks.
  void Grow(size_t size) {
    if (size <= size_) return;
    if (const size_t has = size_ % kBlock; has > 0) {
      Block& last = blocks_.back();
      if (last.each != nullptr || last.same != T()) {
        Split(last);
        std::fill(last.each->begin() + has, last.each->end(), T());
      }
    }
    size_ = size;
    blocks_.resize((size + kBlock - 1) / kBlock);
  }
  void clear() {
    blocks_.clear();
    size_ = 0;
  }

  // Calls `change` with a reference to each of `count` elements from `first` on, or once for a
  // block of equal ones. Returns the number of calls.
  template <typename F>
  size_t Change(size_t first, size_t count, F change) {
    size_t calls = 0;
    ForEachStretch(first, count, [&](size_t number, size_t from, size_t to, bool whole) {
      Block& block = blocks_[number];
      if (whole && block.each == nullptr) {
        change(block.same);
        ++calls;
        return true;
      }
      Split(block);
      for (size_t i = from; i < to; ++i) change((*block.each)[i]);
      calls += to - from;
      if (whole) Join(block, to);
      return true;
    });
    return calls;
  }

  // Whether `holds` is true of all of `count` elements from `first` on. Calls it as Change does.
  template <typename P>
  bool AllOf(size_t first, size_t count, P holds) const {
    return ForEachStretch(first, count, [&](size_t number, size_t from, size_t to, bool) {
      const Block& block = blocks_[number];
      if (block.each == nullptr) return static_cast<bool>(holds(block.same));
      return std::all_of(block.each->begin() + from, block.each->begin() + to, holds);
    });
  }

 private:
  struct Block {
    T same = T();
    std::unique_ptr<std::array<T, kBlock>> each;  // nullptr: all are `same`
  };

  // Calls `visit(block, from, to, whole)` for the elements [from, to) of each block, until it
  // returns false. `whole`: the block has no others.
  template <typename F>
  bool ForEachStretch(size_t first, size_t count, F visit) const {
    for (const size_t end = first + count; first < end;) {
      const size_t from = first % kBlock, to = std::min(kBlock, from + end - first);
      const bool whole = from == 0 && (to == kBlock || first + to == size_);
      if (!visit(first / kBlock, from, to, whole)) return false;
      first += to - from;
    }
    return true;
  }

  static void Split(Block& block) {
    if (block.each != nullptr) return;
    block.each = std::make_unique<std::array<T, kBlock>>();
    block.each->fill(block.same);
  }
  static void Join(Block& block, size_t elements) {
    const T& first = block.each->front();
    if (!std::all_of(block.each->begin(), block.each->begin() + elements,
                     [&](const T& element) { return element == first; }))
      return;
    block.same = first;
    block.each = nullptr;
  }

  size_t size_ = 0;
  std::vector<Block> blocks_;
};

}  // namespace fairway

#endif  // FAIRWAY_BASE_BLOCK_VECTOR_H_
