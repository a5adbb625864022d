// SPDX-License-Identifier: Apache-2.0
#include "worker/gpus.h"

#include <filesystem>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kDriver[] = FAIRWAY_TEST_DRIVER;
constexpr char kNoDriver[] = "/no/such/libcuda.so.1";
constexpr char kFirst[] = "GPU-00000000-0000-0000-0000-000000000000";
constexpr char kThird[] = "GPU-02020202-0202-0202-0202-020202020202";

TEST(Gpus, AreNamedByIndexOrUuid) {
  EXPECT_THAT(*SplitGpus("0,12"), ElementsAre("0", "12"));
  EXPECT_THAT(*SplitGpus(kThird), ElementsAre(kThird));
  for (const char* wrong : {"", "0,", "-1", "a", "0 1", "GPU-0202", "gpu0", "99999999999999999999",
                            "GPU-0202020202020202-0202-0202-020202020202"}) {
    const auto split = SplitGpus(wrong);
    ASSERT_EQ(split.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(Text(split.status()), HasSubstr("is no GPU; expected indexes or UUIDs")) << wrong;
  }
  EXPECT_THAT(Text(SplitGpus("1,0,1").status()), HasSubstr("GPU 1 is listed twice"));
}

TEST(Gpus, AreFoundByTheDriver) {
  const auto found = FindGpus({"2", kFirst}, kDriver);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)[0].index, 2);
  EXPECT_EQ((*found)[0].name, kThird);
  EXPECT_EQ((*found)[1].index, 0);
  EXPECT_EQ((*found)[1].name, kFirst);
  EXPECT_THAT(Text(FindGpus({"0", kFirst}, kDriver).status()), HasSubstr("is listed twice"));
  for (const char* missing : {"3", "GPU-0a0a0a0a-0202-0202-0202-020202020202"}) {
    const absl::Status status = FindGpus({missing}, kDriver).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(Text(status), HasSubstr(fmt::format("no GPU {}; it has: 0 ({})", missing, kFirst)));
  }
}

TEST(Gpus, WithoutADriverAnIndexIsTakenAndAUuidIsNot) {
  EXPECT_EQ(FindGpus({"7"}, kNoDriver)->at(0).index, 7);
  const absl::Status status = FindGpus({kFirst}, kNoDriver).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status), HasSubstr(kNoDriver));
}

class GpuSharesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/gpusXXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  absl::StatusOr<GpuShares> Take(std::vector<Gpu> gpus, double fraction) {
    return GpuShares::Take(directory_, gpus, fraction);
  }
  const Gpu a_{0, "a"}, b_{1, "b"};
  std::string directory_;
};

TEST_F(GpuSharesTest, FitTogetherOrAreRefused) {
  auto first = Take({a_, b_}, 0.3);
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = std::optional(Take({a_}, 0.5));
  ASSERT_TRUE(second->ok()) << second->status();
  const absl::Status status = Take({b_, a_}, 0.2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(status), HasSubstr("0.2 of the memory of GPU 0 (a) is asked for, and other "
                                      "workers of this host leave 0.1"));
  EXPECT_TRUE(Take({b_}, 0.6).ok()) << "what was refused has nothing of b";
  EXPECT_TRUE(Take({a_}, 0.1).ok());
  second.reset();
  EXPECT_TRUE(Take({a_}, 0.6).ok()) << "what has ended gives its share back";
}

TEST_F(GpuSharesTest, AFileThatCannotBeOpenedIsNamed) {
  const absl::Status status = GpuShares::Take("/no/such", {a_}, 0.1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status), HasSubstr("/no/such/fairway-gpu-a.lock"));
}

}  // namespace
}  // namespace fairway
