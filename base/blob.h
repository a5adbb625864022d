// SPDX-License-Identifier: Apache-2.0
// Host bytes, immutable or being filled. Bytes that Make and Copy allocate are 64-byte aligned, so
// that the PJRT CPU client can alias them; with a smaller alignment it silently copies (64 MiB: 150
// ms or more).
#ifndef FAIRWAY_BASE_BLOB_H_
#define FAIRWAY_BASE_BLOB_H_

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

namespace fairway {

// A block of host memory. Its maker fills it, then shares it as std::shared_ptr<const Blob>.
class Blob {
 public:
  static constexpr size_t kAlignment = 64;

  // Makes an uninitialised block of `size` bytes (0 is fine). nullptr: there is no memory.
  static std::shared_ptr<Blob> Make(size_t size) {
    const size_t rounded = (size + kAlignment) / kAlignment * kAlignment;
    void* data = std::aligned_alloc(kAlignment, rounded);
    if (data == nullptr) return nullptr;
    return std::shared_ptr<Blob>(new Blob(static_cast<char*>(data), size));
  }
  static std::shared_ptr<Blob> Copy(std::string_view bytes) {
    auto blob = Make(bytes.size());
    if (blob != nullptr && !bytes.empty()) std::memcpy(blob->data(), bytes.data(), bytes.size());
    return blob;
  }

  // Takes over memory that somebody else allocated, aligned to kAlignment if a plugin will see it.
  // `release` gives the memory back, on the thread that drops the last reference.
  static std::shared_ptr<Blob> Adopt(char* data, size_t size, std::function<void()> release) {
    auto blob = std::shared_ptr<Blob>(new Blob(data, size));
    blob->release_ = std::move(release);
    return blob;
  }

  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;
  ~Blob() { release_ != nullptr ? release_() : std::free(data_); }

  char* data() { return data_; }
  const char* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view view() const { return {data_, size_}; }

 private:
  Blob(char* data, size_t size) : data_(data), size_(size) {}
  char* const data_;
  const size_t size_;
  std::function<void()> release_;  // empty: free
};

}  // namespace fairway

#endif  // FAIRWAY_BASE_BLOB_H_
