// SPDX-License-Identifier: Apache-2.0
// As the controller allocates (allocator.cc).
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

namespace fairway {
namespace {

constexpr size_t kLarge = size_t{64} << 20;

int64_t Faults() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_minflt;
}

void* Touched(size_t bytes) {
  void* volatile block = std::malloc(bytes);  // volatile: really allocated
  std::memset(block, 1, bytes);
  return block;
}

size_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  size_t pages = 0, resident = 0;
  in >> pages >> resident;
  return resident * static_cast<size_t>(getpagesize());
}

TEST(AllocatorSoonTest, TheThreadThatFreesALargeBlockDoesNotGiveItBackItself) {
#ifdef FAIRWAY_SANITIZED
  GTEST_SKIP() << "sanitizers bring an allocator of their own";
#endif
  std::free(Touched(kLarge));
  int64_t fewest = INT64_MAX;
  // This thread may stand still for as long as free memory is kept.
  for (int attempt = 0; attempt < 50 && fewest >= 1000; ++attempt) {
    const int64_t before = Faults();
    std::free(Touched(kLarge));
    fewest = std::min(fewest, Faults() - before);
  }
  EXPECT_LT(fewest, 1000) << "of the 16384 pages of a block that was free";
}

TEST(AllocatorSoonTest, WhatIsFreeIsTheSystemsSoonAlsoWhenTheProcessIsIdle) {
#ifdef FAIRWAY_SANITIZED
  GTEST_SKIP() << "sanitizers bring an allocator of their own";
#endif
  const size_t before = ResidentBytes();
  void* block = Touched(4 * kLarge);
  ASSERT_GT(ResidentBytes(), before + 3 * kLarge);
  std::free(block);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (ResidentBytes() > before + kLarge / 2 && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  EXPECT_LE(ResidentBytes(), before + kLarge / 2);
}

}  // namespace
}  // namespace fairway
