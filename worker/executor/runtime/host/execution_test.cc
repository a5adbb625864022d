// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/host/execution.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/executor/runtime/native/test_native_programs.h"

namespace fairway {
namespace {

using test::Parameter;
using test::Result;
using test::Step;
using ::testing::ElementsAre;

template <typename T>
Bytes Of(std::vector<T> values) {
  return Blob::Copy({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

template <typename T>
std::vector<T> Values(const Bytes& bytes) {
  std::vector<T> values(bytes->size() / sizeof(T));
  std::memcpy(values.data(), bytes->data(), bytes->size());
  return values;
}

// Runs the program on one device for each row of arguments.
std::vector<std::vector<Bytes>> Computed(const std::string& text,
                                         std::vector<std::vector<Bytes>> arguments) {
  auto program =
      NativeProgram::Make(test::NativeFromText(text), static_cast<int>(arguments.size()));
  EXPECT_TRUE(program.ok()) << program.status();
  if (!program.ok()) return {};
  const absl::Status status = RunNative(*program, arguments);
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? arguments : std::vector<std::vector<Bytes>>{};
}

TEST(ExecutionTest, ArithmeticOfEveryType) {
  const auto program = [](DType dtype) {
    return Parameter(dtype, "3") + Parameter(dtype, "3") + Step("add", "0, 1, 0") +
           Step("scale", "2", "factor: -2") + Result(3);
  };
  EXPECT_THAT(Values<float>(Computed(program(DType::kF32),
                                     {{Of<float>({1, 2, 3}), Of<float>({10, 20, 30.5})}})[0][0]),
              ElementsAre(-24, -48, -73));
  EXPECT_THAT(Values<double>(Computed(program(DType::kF64),
                                      {{Of<double>({1, 2, 3}), Of<double>({10, 20, 30.5})}})[0][0]),
              ElementsAre(-24, -48, -73));
  EXPECT_THAT(Values<int32_t>(Computed(program(DType::kS32), {{Of<int32_t>({1, 2, 3}),
                                                               Of<int32_t>({10, -4, 30})}})[0][0]),
              ElementsAre(-24, 0, -72));
  EXPECT_THAT(
      Values<int64_t>(Computed(program(DType::kS64),
                               {{Of<int64_t>({1, 2, 3}), Of<int64_t>({INT64_MAX, -4, 30})}})[0][0]),
      ElementsAre(-2, 0, -72))
      << "integers wrap";
}

TEST(ExecutionTest, MatmulIsRowMajor) {
  const auto program = [](DType dtype) {
    return Parameter(dtype, "2, 3") + Parameter(dtype, "3, 2") + Step("matmul", "0, 1") + Result(2);
  };
  EXPECT_THAT(
      Values<float>(Computed(program(DType::kF32), {{Of<float>({1, 2, 3, 4, 5, 6}),
                                                     Of<float>({1, 0, 0, 1, 10, 100})}})[0][0]),
      ElementsAre(31, 302, 64, 605));
  EXPECT_THAT(
      Values<double>(Computed(program(DType::kF64), {{Of<double>({1, 2, 3, 4, 5, 6}),
                                                      Of<double>({1, 0, 0, 1, 10, 100})}})[0][0]),
      ElementsAre(31, 302, 64, 605));
  EXPECT_THAT(
      Values<float>(Computed(Parameter(DType::kF32, "2, 0") + Parameter(DType::kF32, "0, 1") +
                                 Step("matmul", "0, 1") + Result(2),
                             {{Of<float>({}), Of<float>({})}})[0][0]),
      ElementsAre(0, 0));
}

TEST(ExecutionTest, AnAllReduceSumsOverDevices) {
  auto results = Computed(Parameter(DType::kF32, "3", "3") + Step("all_reduce", "0") +
                              Step("add", "1, 0") + Result(1) + Result(2, "3"),
                          {{Of<float>({1})}, {Of<float>({10})}, {Of<float>({100})}});
  for (int d = 0; d < 3; ++d) EXPECT_THAT(Values<float>(results[d][0]), ElementsAre(111));
  EXPECT_THAT(Values<float>(results[0][1]), ElementsAre(112));
  EXPECT_THAT(Values<float>(results[1][1]), ElementsAre(121));
  EXPECT_THAT(Values<float>(results[2][1]), ElementsAre(211));
}

TEST(ExecutionTest, RoundsFeedResultsBack) {
  // x, y = y, x + y
  auto results = Computed(Parameter(DType::kS64, "") + Parameter(DType::kS64, "") +
                              Step("add", "0, 1") + Result(1) + Result(2) + "repeat: 80",
                          {{Of<int64_t>({0}), Of<int64_t>({1})}});
  EXPECT_THAT(Values<int64_t>(results[0][0]), ElementsAre(23416728348467685));  // Fibonacci 80
}

TEST(ExecutionTest, ABlockThatNobodyElseHoldsIsWrittenInto) {
  const std::string program =
      Parameter(DType::kF32, "2") + Step("scale", "0", "factor: 2") + Result(1);
  Bytes mine = Of<float>({1, 2});
  const char* address = mine->data();
  std::vector<std::vector<Bytes>> arguments(1);  // a braced list would hold a second reference
  arguments[0].push_back(std::move(mine));
  auto taken = Computed(program, std::move(arguments));
  EXPECT_EQ(taken[0][0]->data(), address);
  EXPECT_THAT(Values<float>(taken[0][0]), ElementsAre(2, 4));
}

TEST(ExecutionTest, ABlockThatSomebodyHoldsIsLeftAsItIs) {
  const Bytes shared = Of<float>({1, 2});
  auto results = Computed(Parameter(DType::kF32, "2") + Parameter(DType::kF32, "2") +
                              Step("scale", "0", "factor: 2") + Step("add", "1, 2") + Result(3),
                          {{shared, shared}});
  EXPECT_THAT(Values<float>(shared), ElementsAre(1, 2));
  EXPECT_THAT(Values<float>(results[0][0]), ElementsAre(3, 6));
}

TEST(ExecutionTest, AResultThatIsReadLaterKeepsItsValue) {
  auto results = Computed(Parameter(DType::kF32, "1") + Step("scale", "0", "factor: 2") +
                              Step("scale", "1", "factor: 3") + Result(1) + Result(2) + Result(0),
                          {{Of<float>({5})}});
  EXPECT_THAT(Values<float>(results[0][0]), ElementsAre(10));
  EXPECT_THAT(Values<float>(results[0][1]), ElementsAre(30));
  EXPECT_THAT(Values<float>(results[0][2]), ElementsAre(5));
}

TEST(ExecutionTest, AnArgumentBeyondTheResultsIsReadInEachRound) {
  auto results = Computed(Parameter(DType::kF32, "1") + Parameter(DType::kF32, "1") +
                              Step("add", "0, 1") + Result(2) + "repeat: 3",
                          {{Of<float>({1}), Of<float>({10})}});
  EXPECT_THAT(Values<float>(results[0][0]), ElementsAre(31));
  EXPECT_EQ(results[0].size(), 1u);
}

TEST(ExecutionTest, WaitingPassesItsOperandOn) {
  const auto begin = std::chrono::steady_clock::now();
  auto results =
      Computed(Parameter(DType::kPred, "2") + Step("busy_wait", "0", "nanoseconds: 1000000") +
                   Step("sleep", "1", "nanoseconds: 1000000") + Result(2),
               {{Of<char>({1, 0})}});
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2));
  EXPECT_THAT(Values<char>(results[0][0]), ElementsAre(1, 0));
}

TEST(ExecutionTest, NoMemoryIsAnErrorThatNamesTheStep) {
  auto program = NativeProgram::Make(
      test::NativeFromText("name: 'huge' " + Parameter(DType::kF32, "1000000000, 0") +
                           Parameter(DType::kF32, "0, 1000000000") + Step("matmul", "0, 1") +
                           Result(2)),
      1);
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<std::vector<Bytes>> values = {{Of<float>({}), Of<float>({})}};
  const absl::Status status = RunNative(*program, values);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(status), testing::HasSubstr("native program 'huge', step 0 (matmul)"));
}

}  // namespace
}  // namespace fairway
