// SPDX-License-Identifier: Apache-2.0
// The errors that builders of programs keep until Compile or Bind answers.
#include <string>

#include <gtest/gtest.h>

#include "client/cpp/access.h"

namespace fairway::client {
namespace {

const ProgramBuilder::Type kVector = {DType::kF32, {4}};

NativeProgram Twice() {
  NativeProgram program("twice");
  program.Result(program.Scale(program.Parameter(DType::kF32, {4}), 2));
  return program;
}

TEST(NativeProgramTest, AParameterAfterAStepSpoilsTheProgram) {
  EXPECT_TRUE(Access::ErrorOf(Twice()).ok());
  NativeProgram late("axpy");
  const auto x = late.Scale(late.Parameter(DType::kF32, {4}), 2);
  late.Result(late.Add({x, late.Parameter(DType::kF32, {4})}));
  const std::string text =
      "native program 'axpy': parameter 1 was declared after step 0 (scale): declare all "
      "parameters before the first step, since the values of steps are numbered after them";
  EXPECT_EQ(Access::ErrorOf(late).ToString(), "INVALID_ARGUMENT: " + text);

  ProgramBuilder program("train");
  program.AddNative(late, 2, {kVector});
  EXPECT_EQ(Access::ErrorOf(program).message(), "program 'train': " + text);
}

TEST(ProgramBuilderTest, AComputationOfAnotherBuilderSpoilsTheProgram) {
  ProgramBuilder other("other");
  const auto theirs = other.AddNative(Twice(), 2, {kVector, kVector});
  const auto expect_refused = [](ProgramBuilder program, ProgramBuilder::Computation computation) {
    const auto a = program.AddSlice("a", 2);
    const auto x = program.Argument(a, kVector);
    EXPECT_TRUE(Access::ErrorOf(program).ok());
    const auto made = program.At("y", "train.cc:7").Call(computation, a, {x});
    // As many values as it has results, for callers who use them before they see the error.
    EXPECT_EQ(made.size(), static_cast<size_t>(computation.results));
    EXPECT_EQ(Access::ErrorOf(program).ToString(),
              "INVALID_ARGUMENT: program 'train': node 1 \"y\" (train.cc:7): Call was given a "
              "computation that this program does not have: one that AddNative or AddStableHlo of "
              "the same ProgramBuilder made is expected");
  };
  ProgramBuilder program("train");
  expect_refused(program, theirs);  // there is no computation of this number
  const auto ours = program.AddNative(Twice(), 2, {kVector});
  expect_refused(program, theirs);
  expect_refused(program, {});

  // A copy has everything that was added before, and nothing that is added later.
  ProgramBuilder copy = program;
  const auto a = copy.AddSlice("a", 2);
  copy.Call(ours, a, {copy.Argument(a, kVector)});
  EXPECT_TRUE(Access::ErrorOf(copy).ok());
  expect_refused(program, copy.AddNative(Twice(), 2, {kVector}));
}

}  // namespace
}  // namespace fairway::client
