// SPDX-License-Identifier: Apache-2.0
// Calls of clients' functions from the thread of a device; the test plays the controller.
#include "worker/executor/client_calls.h"

#include <chrono>
#include <deque>
#include <future>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace fairway {
namespace {

constexpr std::chrono::seconds kCap{120};

class ClientCallsTest : public ::testing::Test {
 protected:
  // Returns the next call that the executor's link would carry.
  CallbackCall NextSent() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(came_.wait_for(lock, kCap, [&] { return !sent_.empty(); }));
    CallbackCall call = std::move(sent_.front());
    sent_.pop_front();
    return call;
  }

  // A device calls function 7 with s32[n] = 0, 1, ... and a token, and wants results of the same
  // size.
  std::future<absl::Status> Call(uint64_t launch, int64_t n) {
    return std::async(std::launch::async, [this, launch, n] {
      std::vector<int32_t> in(n);
      std::iota(in.begin(), in.end(), 0);
      std::vector<int32_t> out(n, -1);
      const std::vector<int64_t> dims = {n};
      const std::vector<ffi::Value> args = {{DType::kToken, {}, nullptr},
                                            {DType::kS32, dims, in.data()}};
      const std::vector<ffi::Value> rets = {{DType::kS32, dims, out.data()},
                                            {DType::kToken, {}, nullptr}};
      const std::vector<ffi::Attribute> attributes = {{"function", 7}};
      absl::Status status = calls_.Run(launch, {args, rets, attributes, 2, 0});
      const std::lock_guard lock(mutex_);
      results_ = out;
      return status;
    });
  }

  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<CallbackCall> sent_;
  std::vector<uint64_t> given_up_;
  std::vector<int32_t> results_;
  ClientCalls calls_{{.send =
                          [this](CallbackCall call) {
                            const std::lock_guard lock(mutex_);
                            sent_.push_back(std::move(call));
                            came_.notify_all();
                          },
                      .give_up = [this](uint64_t call) { given_up_.push_back(call); }}};
};

std::shared_ptr<const Blob> Ints(const std::vector<int32_t>& values) {
  return Blob::Copy({reinterpret_cast<const char*>(values.data()), values.size() * 4});
}

TEST_F(ClientCallsTest, ACallSaysWhatItIsAndGetsItsResults) {
  auto ended = Call(50, 3);
  const CallbackCall call = NextSent();
  EXPECT_EQ(call.launch, LaunchId(50));
  EXPECT_EQ(call.function, 7u);
  EXPECT_EQ(call.device, 2);
  ASSERT_EQ(call.arguments.size(), 1u) << "the token is no argument";
  EXPECT_EQ(call.arguments[0].bytes->view(), Ints({0, 1, 2})->view());
  ASSERT_EQ(call.results.size(), 1u);
  EXPECT_EQ(call.results[0].shape, Shape{{3}});
  calls_.Answered({call.call, absl::OkStatus(), {Ints({5, 6, 7})}, {}});
  EXPECT_TRUE(ended.get().ok());
  EXPECT_EQ(results_, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(calls_.num_waiting(), 0u);
}

TEST_F(ClientCallsTest, ElementsOfLessThanAByteCrossTheLinkAsBytes) {
  const std::vector<int64_t> dims = {3};
  std::vector<uint8_t> in = {0x97, 0x08}, out = {0xff, 0xff};
  const ffi::Value args[] = {{DType::kS4, dims, in.data()}};
  const ffi::Value rets[] = {{DType::kS4, dims, out.data()}};
  auto ended = std::async(std::launch::async, [&] {
    return calls_.Run(50, {args, rets, {}, 2, 0});
  });
  const CallbackCall call = NextSent();
  EXPECT_EQ(call.arguments[0].dtype, DType::kS4);
  EXPECT_EQ(call.arguments[0].bytes->view(), "\x07\x09\x08");
  EXPECT_EQ(*calls_.Wanted(call.call), std::vector<int64_t>{3});
  calls_.Answered({call.call, absl::OkStatus(), {Blob::Copy("\x01\xff\x03")}, {}});
  EXPECT_TRUE(ended.get().ok());
  EXPECT_EQ(out, (std::vector<uint8_t>{0xf1, 0x03}));
}

TEST_F(ClientCallsTest, LargeArgumentsAreLeftToBePulledWhileTheCallWaits) {
  constexpr int64_t kInts = 20000;
  auto ended = Call(50, kInts);
  const CallbackCall call = NextSent();
  EXPECT_EQ(call.arguments[0].bytes, nullptr);
  const auto bytes = calls_.Argument(call.call, 0);
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(bytes->size(), kInts * 4u);
  EXPECT_EQ(reinterpret_cast<const int32_t*>(bytes->data())[kInts - 1], kInts - 1);
  EXPECT_EQ(calls_.Argument(call.call, 1), nullptr);
  EXPECT_EQ(calls_.Argument(call.call, -1), nullptr);
  EXPECT_EQ(calls_.Argument(call.call + 1, 0), nullptr);
  EXPECT_EQ(*calls_.Wanted(call.call), std::vector<int64_t>{kInts * 4});
  calls_.Answered({call.call, absl::OkStatus(), {bytes}, {}});
  EXPECT_TRUE(ended.get().ok());
  EXPECT_EQ(results_.back(), kInts - 1);
  EXPECT_EQ(calls_.Argument(call.call, 0), nullptr);
  EXPECT_FALSE(calls_.Wanted(call.call).has_value());
}

TEST_F(ClientCallsTest, WhatAllCallsUnderWayHoldIsBounded) {
  const int64_t results[] = {kMaxCallbackBytes};
  const auto call = [&] {
    return std::async(std::launch::async, [&] {
      const ffi::Value rets[] = {{DType::kU8, results, nullptr}};
      return calls_.Run(50, {{}, rets, {}, 0, 0});
    });
  };
  std::vector<std::future<absl::Status>> most;
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 4; ++i) {
    most.push_back(call());
    numbers.push_back(NextSent().call);
  }
  auto more = Call(50, 1);
  EXPECT_EQ(more.wait_for(kCap), std::future_status::ready);
  calls_.Answered({numbers[0], absl::AbortedError("no"), {}, {}});
  EXPECT_EQ(most[0].get().code(), absl::StatusCode::kAborted);
  most[0] = call();  // there is room again
  NextSent();
  calls_.Close(absl::UnavailableError("the controller is gone"));
  EXPECT_EQ(more.get().code(), absl::StatusCode::kResourceExhausted);
  for (auto& ended : most) EXPECT_EQ(ended.get().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ClientCallsTest, ACallThatCannotBeSentLeavesNothing) {
  ClientCalls calls({.send = [](const CallbackCall&) { throw std::bad_alloc(); }, .give_up = {}});
  const int64_t results[] = {kMaxCallbackBytes};
  const ffi::Value rets[] = {{DType::kU8, results, nullptr}};
  for (int i = 0; i < 9; ++i) {  // more than there is room for at one time
    EXPECT_THROW((void)calls.Run(50, {{}, rets, {}, 0, 0}), std::bad_alloc);
    EXPECT_EQ(calls.num_waiting(), 0u);
  }
}

TEST_F(ClientCallsTest, AnErrorOfTheFunctionIsTheErrorOfTheCall) {
  auto ended = Call(50, 3);
  calls_.Answered({NextSent().call, absl::AbortedError("ValueError: no"), {}, {}});
  EXPECT_EQ(ended.get(), absl::AbortedError("ValueError: no"));
}

TEST_F(ClientCallsTest, ResultsOfAnotherSizeAreAnError) {
  auto ended = Call(50, 3);
  calls_.Answered({NextSent().call, absl::OkStatus(), {Ints({5, 6})}, {}});
  EXPECT_EQ(ended.get().code(), absl::StatusCode::kInternal);
  ended = Call(50, 3);
  calls_.Answered({NextSent().call, absl::OkStatus(), {}, {}});
  EXPECT_EQ(ended.get().code(), absl::StatusCode::kInternal);
}

TEST_F(ClientCallsTest, AnAbandonedLaunchWaitsNoLongerAndOthersDo) {
  auto first = Call(50, 1);
  const uint64_t number = NextSent().call;
  auto other = Call(60, 1);
  const CallbackCall open = NextSent();
  calls_.Abandon(LaunchId(45), LaunchId(55), absl::DataLossError("another executor was lost"));
  EXPECT_EQ(first.get(), absl::DataLossError("another executor was lost"));
  EXPECT_EQ(given_up_, std::vector<uint64_t>{number});
  calls_.Answered({number, absl::OkStatus(), {Ints({5})}, {}});  // late: ignored
  EXPECT_EQ(calls_.num_waiting(), 1u);
  calls_.Answered({open.call, absl::OkStatus(), {Ints({5})}, {}});
  EXPECT_TRUE(other.get().ok());
}

TEST_F(ClientCallsTest, TheEndOfTheRegistrationEndsAllCallsAndThoseToCome) {
  auto first = Call(50, 1);
  NextSent();
  calls_.Close(absl::UnavailableError("the controller is gone"));
  EXPECT_EQ(first.get(), absl::UnavailableError("the controller is gone"));
  EXPECT_EQ(Call(51, 1).get(), absl::UnavailableError("the controller is gone"));
  EXPECT_TRUE(sent_.empty());
}

}  // namespace
}  // namespace fairway
