// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

namespace fairway {
namespace {

constexpr size_t kTemporary = size_t{16} << 20;

// The page faults of a new thread that uses and frees a temporary.
int64_t FaultsOfATemporary() {
  int64_t faults = 0;
  std::thread([&] {
    rusage before{}, after{};
    getrusage(RUSAGE_THREAD, &before);
    void* volatile temporary = std::malloc(kTemporary);  // volatile: really allocated
    std::memset(temporary, 1, kTemporary);
    std::free(temporary);
    getrusage(RUSAGE_THREAD, &after);
    faults = after.ru_minflt - before.ru_minflt;
  }).join();
  return faults;
}

TEST(AllocatorTest, ATemporaryOfOneThreadIsKeptForTheNextThread) {
#ifdef FAIRWAY_SANITIZED
  GTEST_SKIP() << "sanitizers bring an allocator of their own";
#endif
  FaultsOfATemporary();
  EXPECT_LT(FaultsOfATemporary(), 1000) << "of the 4096 pages of a temporary";
}

}  // namespace
}  // namespace fairway
