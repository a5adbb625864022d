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

namespace fairway {

// Blocks of 8 elements lie in blocks of 8 blocks, and so on. A block whose elements are all equal
// is held, changed and looked at as one. A change of a part of a block parts it; a change of the
// whole block makes it one again if its elements are equal then. T is default-constructible,
// copyable and equality comparable. Not thread-safe.
template <typename T>
class BlockVector {
 public:
  static constexpr size_t kBlock = 8;

  size_t size() const { return size_; }
  const T& operator[](size_t i) const {
    const Node* node = &root_;
    for (size_t part = width_; node->parts != nullptr; i %= part) {
      part /= kBlock;
      node = &(*node->parts)[i / part];
    }
    return node->same;
  }

  // New elements are T(). It never shrinks.
  void Grow(size_t size) {
    if (size <= size_) return;
    while (size > width_) {
      if (size_ > 0) {  // what there is becomes the first part of a wider block
        Node all;
        all.parts = std::make_unique<Parts>();
        all.parts->front() = std::move(root_);
        root_ = std::move(all);
      }
      width_ *= kBlock;
    }
    const size_t had = std::exchange(size_, size);
    // What is behind the last element may be anything.
    if (AllOf(had, size - had, [](const T& element) { return element == T(); })) return;
    Change(had, size - had, [](T& element) { element = T(); });
  }
  void clear() { *this = BlockVector(); }

  // Calls `change` with a reference to each of `count` elements from `first` on, or once for a
  // block of equal ones. Returns the number of calls.
  template <typename F>
  size_t Change(size_t first, size_t count, F change) {
    return count == 0 ? 0 : Change(root_, width_, size_, first, first + count, change);
  }

  // Whether `holds` is true of all of `count` elements from `first` on. Calls it as Change does.
  template <typename P>
  bool AllOf(size_t first, size_t count, P holds) const {
    return count == 0 || AllOf(root_, width_, first, first + count, holds);
  }

 private:
  struct Node;
  using Parts = std::array<Node, kBlock>;
  struct Node {
    T same = T();                  // if there are no parts: each element
    std::unique_ptr<Parts> parts;  // nullptr: all elements are equal
  };

  // Calls `visit(part, begin, from, to)` for the parts of a block that has elements in [first, end)
  // of it: the part begins at `begin`, and has those from `from` to `to`, counted from there. Ends
  // when it returns false.
  template <typename P, typename F>
  static bool ForEachPart(P& parts, size_t part, size_t first, size_t end, F visit) {
    for (size_t begin = first / part * part; begin < end; begin += part) {
      const size_t from = std::max(first, begin) - begin, to = std::min(end - begin, part);
      if (!visit(parts[begin / part], begin, from, to)) return false;
    }
    return true;
  }

  // The node is wide enough for `width` elements, and has `size`.
  template <typename F>
  static size_t Change(Node& node, size_t width, size_t size, size_t first, size_t end, F& change) {
    const bool whole = first == 0 && end == std::min(size, width);
    if (whole && node.parts == nullptr) {
      change(node.same);
      return 1;
    }
    if (node.parts == nullptr) {
      node.parts = std::make_unique<Parts>();
      for (Node& part : *node.parts) part.same = node.same;
    }
    size_t calls = 0;
    const size_t part = width / kBlock;
    ForEachPart(*node.parts, part, first, end, [&](Node& of, size_t begin, size_t from, size_t to) {
      calls += Change(of, part, size - begin, from, to, change);
      return true;
    });
    if (whole) Join(node, (end + part - 1) / part);
    return calls;
  }

  template <typename P>
  static bool AllOf(const Node& node, size_t width, size_t first, size_t end, P& holds) {
    if (node.parts == nullptr) return static_cast<bool>(holds(node.same));
    const size_t part = width / kBlock;
    return ForEachPart(*node.parts, part, first, end,
                       [&](const Node& of, size_t, size_t from, size_t to) {
                         return AllOf(of, part, from, to, holds);
                       });
  }

  // Makes the node one if its parts, of which the first `count` have elements, are equal.
  static void Join(Node& node, size_t count) {
    const Parts& parts = *node.parts;
    const T& first = parts.front().same;
    if (!std::all_of(parts.begin(), parts.begin() + count,
                     [&](const Node& part) { return part.parts == nullptr && part.same == first; }))
      return;
    node.same = first;
    node.parts = nullptr;
  }

  size_t size_ = 0;
  size_t width_ = kBlock;  // the elements for which there is room: a power of kBlock
  Node root_;
};

}  // namespace fairway

#endif  // FAIRWAY_BASE_BLOCK_VECTOR_H_
