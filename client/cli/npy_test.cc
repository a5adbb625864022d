// SPDX-License-Identifier: Apache-2.0
#include "client/cli/npy.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using client::DType;
using client::HostArray;
using ::testing::HasSubstr;

class NpyTest : public ::testing::Test {
 protected:
  std::string Path() const {
    return ::testing::TempDir() + "/" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name() +
           std::to_string(::getpid()) + ".npy";
  }
  void Write(const std::string& bytes) const {
    std::ofstream(Path(), std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string Contents() const {
    std::ifstream in(Path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  ~NpyTest() override { std::filesystem::remove(Path()); }
};

HostArray Of(DType dtype, client::Shape shape, const std::string& bytes) {
  std::shared_ptr<std::byte[]> copy(new std::byte[bytes.size()]);
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return HostArray(dtype, std::move(shape), std::move(copy), bytes.size());
}

TEST_F(NpyTest, WhatWasWrittenIsRead) {
  const HostArray arrays[] = {
      Of(DType::kF32, {2, 3}, std::string(24, 'x')), Of(DType::kS64, {1}, std::string(8, 'y')),
      Of(DType::kPred, {}, std::string(1, '\1')), Of(DType::kC128, {0, 7}, "")};
  for (const HostArray& array : arrays) {
    ASSERT_TRUE(WriteNpy(Path(), array).ok());
    EXPECT_EQ((Contents().size() - array.bytes().size()) % 64, 0u);
    const auto read = ReadNpy(Path());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->dtype(), array.dtype());
    EXPECT_EQ(read->shape(), array.shape());
    EXPECT_TRUE(std::equal(read->bytes().begin(), read->bytes().end(), array.bytes().begin(),
                           array.bytes().end()));
  }
}

// The file is what NumPy 2 writes for numpy.save of arange(4, dtype='<f4').
TEST_F(NpyTest, AFileOfNumPyIsRead) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }";
  header.resize(117, ' ');
  const float values[] = {0, 1, 2, 3};
  Write(std::string("\x93NUMPY\1\0\x76\0", 10) + header + "\n" +
        std::string(reinterpret_cast<const char*>(values), sizeof values));
  const auto read = ReadNpy(Path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->values<float>(), ::testing::ElementsAre(0, 1, 2, 3));
}

TEST_F(NpyTest, WhatCannotBeReadIsNamed) {
  const auto error = [&](const std::string& descr, const std::string& rest,
                         const std::string& data) {
    const std::string header = "{'descr': '" + descr + "', 'fortran_order': " + rest + "}";
    std::string size(2, '\0');
    size[0] = static_cast<char>(header.size());
    Write(std::string("\x93NUMPY\1\0", 8) + size + header + data);
    return Text(ReadNpy(Path()).status());
  };
  EXPECT_THAT(error("<f4", "True, 'shape': (1,), ", "1234"), HasSubstr("Fortran order"));
  EXPECT_THAT(error("<M8", "False, 'shape': (1,), ", "12345678"), HasSubstr("its type '<M8'"));
  EXPECT_THAT(error("<f4", "False, 'shape': (2,), ", "1234"), HasSubstr("4 bytes of data, not 8"));
  EXPECT_THAT(error("<f4", "False, 'shape': (-1,), ", ""), HasSubstr("its shape is"));
  EXPECT_THAT(error("<f4", "False, 'shape': (9223372036854775807,), ", ""), HasSubstr("too large"));
  Write("PK\3\4");
  EXPECT_THAT(Text(ReadNpy(Path()).status()), HasSubstr("no .npy file"));
  Write(std::string("\x93NUMPY\1\0\x76\0{", 11));
  EXPECT_THAT(Text(ReadNpy(Path()).status()), HasSubstr("cut off"));
  EXPECT_EQ(ReadNpy(Path() + "-no").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Text(WriteNpy(Path(), Of(DType::kBF16, {1}, "12"))), HasSubstr("bf16"));
}

}  // namespace
}  // namespace fairway
