// SPDX-License-Identifier: Apache-2.0
#include "base/host.h"

#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

// As client/python/tests/test_connection.py.
TEST(HostTest, AControllersAddressHasTheFormsOfThePythonPackage) {
  const auto address = [](const std::string& text) {
    return ControllerAddress(text).value_or("none");
  };
  EXPECT_EQ(address("host:1234"), "host:1234");
  EXPECT_EQ(address("grpc://host:1234"), "host:1234");
  EXPECT_EQ(address("grpc://host:1234/"), "host:1234");
  EXPECT_EQ(address(" 10.0.0.1:7 "), "10.0.0.1:7");
  EXPECT_EQ(address("host"), "host:29000");
  EXPECT_EQ(address("[::1]:29001"), "[::1]:29001");
  EXPECT_EQ(address("[::1]"), "[::1]:29000");
}

TEST(HostTest, ABadAddressIsNamedInTheError) {
  for (const char* text : {"", ":1", "host:", "host:x", "host:0", "host:65536", "a/b",
                           "http://host:1", "::1", "[::1", "[::1]x:1"}) {
    const absl::Status status = ControllerAddress(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(Text(status), testing::StartsWith(fmt::format("'{}' is no address", text)));
  }
}

TEST(HostTest, MemoryMappingsAreCounted) {
  const MemoryMappings before = CountMemoryMappings();
  EXPECT_GT(before.used, 10);
  EXPECT_GT(before.most, before.used);
  // Neighbours that may do different things are not one mapping.
  const long page = ::sysconf(_SC_PAGESIZE);
  void* const address = ::mmap(nullptr, 64 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(address, MAP_FAILED);
  for (int i = 0; i < 64; i += 2)
    ::mprotect(static_cast<char*>(address) + i * page, page, PROT_READ);
  EXPECT_GE(CountMemoryMappings().used, before.used + 60);
  ::munmap(address, 64 * page);
}

TEST(HostTest, AProcessKnowsWhatItTakes) {
  const ProcessUse before = UseOfThisProcess();
  EXPECT_GT(before.resident_bytes, 1 << 20);
  ProcessUse after = before;
  while (after.cpu <= before.cpu) after = UseOfThisProcess();
  const std::string more(size_t{64} << 20, 'x');
  EXPECT_GT(UseOfThisProcess().resident_bytes - before.resident_bytes, 32 << 20) << more[0];
}

class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() { std::filesystem::create_directories(root_); }
  ~HostMemoryTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  int64_t With(const std::string& groups) {
    Write("groups", groups);
    return HostMemory(root_ / "groups", root_);
  }

  const std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / ("groups" + std::to_string(::getpid()));
};

TEST_F(HostMemoryTest, IsTheHostsWhereNoControlGroupSaysLess) {
  const int64_t host = HostMemory(root_ / "none", root_);
  EXPECT_GT(host, 0);
  Write("memory.max", "max");
  Write("memory/memory.limit_in_bytes", "9223372036854771712");  // version 1's "max"
  EXPECT_EQ(With("4:memory:/\n0::/"), host);
  EXPECT_EQ(With("not such a file"), host);
  EXPECT_LE(HostMemory(), host);
}

TEST_F(HostMemoryTest, IsTheLeastOfTheControlGroupsAround) {
  Write("outer/memory.max", "1000000");
  Write("outer/inner/memory.max", "2000000");
  EXPECT_EQ(With("0::/outer/inner"), 1000000);
  Write("outer/inner/memory.max", "500000");
  EXPECT_EQ(With("0::/outer/inner"), 500000);
  Write("memory/a/memory.limit_in_bytes", "400000");
  EXPECT_EQ(With("5:cpu:/outer\n4:memory:/a/b\n0::/outer/inner"), 400000);
}

TEST_F(HostMemoryTest, AContainerMaySeeItsOwnGroupAsTheRoot) {
  Write("memory.max", "700000");
  EXPECT_EQ(With("0::/not/seen/here"), 700000);
}

}  // namespace
}  // namespace fairway
