// SPDX-License-Identifier: Apache-2.0
// A vector whose copies share their elements until one of them is changed: for lists that are
// computed once and then held by many.
#ifndef FAIRWAY_BASE_SHARED_VECTOR_H_
#define FAIRWAY_BASE_SHARED_VECTOR_H_

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace fairway {

// Each object is as thread-safe as a std::vector. Several threads may use different objects, also
// if these share elements.
template <typename T>
class SharedVector {
 public:
  SharedVector() = default;
  SharedVector(std::vector<T> list)  // NOLINT(google-explicit-constructor)
      : list_(list.empty() ? nullptr : std::make_shared<std::vector<T>>(std::move(list))) {}
  SharedVector(std::initializer_list<T> list) : SharedVector(std::vector<T>(list)) {}

  const std::vector<T>& get() const {
    static const std::vector<T> kNone;
    return list_ == nullptr ? kNone : *list_;
  }
  operator const std::vector<T>&() const { return get(); }  // NOLINT(google-explicit-constructor)

  size_t size() const { return list_ == nullptr ? 0 : list_->size(); }
  bool empty() const { return list_ == nullptr; }
  const T& operator[](size_t i) const { return (*list_)[i]; }
  const T* begin() const { return list_ == nullptr ? nullptr : list_->data(); }
  const T* end() const { return list_ == nullptr ? nullptr : list_->data() + list_->size(); }

  // Whether both have the very same elements, not only equal ones.
  bool Shares(const SharedVector& with) const { return list_ != nullptr && list_ == with.list_; }

  void push_back(T value) {
    if (list_ == nullptr || list_.use_count() > 1) list_ = std::make_shared<std::vector<T>>(get());
    list_->push_back(std::move(value));
  }

  friend bool operator==(const SharedVector& a, const SharedVector& b) {
    return a.list_ == b.list_ || a.get() == b.get();
  }

 private:
  std::shared_ptr<std::vector<T>> list_;  // nullptr: no elements
};

}  // namespace fairway

#endif  // FAIRWAY_BASE_SHARED_VECTOR_H_
