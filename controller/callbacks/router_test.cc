// SPDX-License-Identifier: Apache-2.0
#include "controller/callbacks/router.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kChannel(kChannelBytes, 'a');
const std::string kOther(kChannelBytes, 'b');
constexpr SessionId kSession(1), kNeighbour(2);
constexpr ExecutorId kExecutor(5), kFar(6);
constexpr uint64_t kStream = 10, kOtherStream = 20;

CallbackArray Float(float value) {
  return {DType::kF32, Shape{}, Blob::Copy({reinterpret_cast<const char*>(&value), 4})};
}

// Writes one line per action.
class CallbackRouterTest : public ::testing::Test, public CallbackActions {
 protected:
  void Answer(ExecutorId executor, CallbackAnswer answer) override {
    log_.push_back(fmt::format("answer {}/{} {} {}", executor.value, answer.call,
                               absl::StatusCodeToString(answer.status.code()),
                               answer.results.size()));
    text_ = Text(answer.status);
  }
  void FetchArguments(ExecutorId executor, const CallbackCall& call) override {
    log_.push_back(fmt::format("fetch {}/{}", executor.value, call.call));
  }
  absl::Status SendCall(uint64_t stream, uint64_t number, const CallbackCall& call,
                        const CallbackCaller& caller) override {
    log_.push_back(fmt::format("call {}/{} f{} {} on {}", stream, number, call.function,
                               caller.program, caller.device));
    for (const CallbackArray& argument : call.arguments) EXPECT_NE(argument.bytes, nullptr);
    return send_;
  }
  void SendCancel(uint64_t stream, uint64_t number, const std::string& reason) override {
    log_.push_back(fmt::format("cancel {}/{} {}", stream, number, reason));
  }

  void EndStream(uint64_t stream, const absl::Status&) override {
    log_.push_back(fmt::format("end {}", stream));
  }

  void Open() {
    router_.SessionOpened(kSession, kChannel);
    ASSERT_TRUE(router_.StreamOpened(kStream, kChannel).ok());
  }
  void Called(uint64_t call, ExecutorId executor = kExecutor, SessionId session = kSession) {
    router_.Called(now_, executor,
                   {call, LaunchId(3), 7, 0, {Float(1)}, {{DType::kF32, Shape{}, nullptr}}},
                   CallbackCaller{session, "jit_f", 2});
  }
  std::vector<std::string> Log() { return std::exchange(log_, {}); }

  CallbackLimits limits_{
      .call_ms = 1000, .session_calls = 3, .session_bytes = 20, .total_bytes = 32, .streams = 2};
  CallbackRouter router_{limits_, this};
  std::vector<std::string> log_;
  std::string text_;
  absl::Status send_;
  int64_t now_ = 5000;
};

TEST_F(CallbackRouterTest, ACallGoesToTheStreamOfItsSessionAndItsAnswerBack) {
  Open();
  router_.SessionOpened(kNeighbour, kOther);
  ASSERT_TRUE(router_.StreamOpened(kOtherStream, kOther).ok());
  Called(1);
  Called(2, kFar, kNeighbour);
  Called(2);
  EXPECT_THAT(Log(), ElementsAre("call 10/1 f7 jit_f on 2", "call 20/1 f7 jit_f on 2",
                                 "call 10/2 f7 jit_f on 2"));
  EXPECT_TRUE(router_.Returned(kStream, 2, absl::OkStatus(), {Float(4)}).ok());
  EXPECT_TRUE(router_.Returned(kOtherStream, 1, absl::AbortedError("ValueError"), {}).ok());
  EXPECT_THAT(Log(), ElementsAre("answer 5/2 OK 1", "answer 6/2 ABORTED 0"));
  EXPECT_EQ(router_.num_calls(), 1u);
  EXPECT_EQ(router_.num_bytes(), 8);
}

TEST_F(CallbackRouterTest, AStreamServesSessionsOfItsTenantOnly) {
  router_.SessionOpened(kSession, CallbackChannel(kChannel, "red"));
  for (const char* const tenant : {"blue", "r", ""}) {
    EXPECT_EQ(router_.StreamOpened(kOtherStream, {kChannel, tenant}).code(),
              absl::StatusCode::kFailedPrecondition);
  }
  ASSERT_TRUE(router_.StreamOpened(kStream, {kChannel, "red"}).ok());
  Called(1);
  EXPECT_THAT(Log(), ElementsAre("call 10/1 f7 jit_f on 2"));
  // The same bytes of another tenant are another channel.
  router_.SessionOpened(kNeighbour, CallbackChannel(kChannel, "blue"));
  EXPECT_TRUE(router_.StreamOpened(kOtherStream, {kChannel, "blue"}).ok());
}

TEST_F(CallbackRouterTest, WhoHasNoChannelOrNoStreamIsToldWhatToDo) {
  Called(1);
  EXPECT_THAT(Log(), ElementsAre("answer 5/1 FAILED_PRECONDITION 0"));
  EXPECT_THAT(text_, HasSubstr("need the fairway package in the client's process"));
  router_.SessionOpened(kSession, kChannel);
  Called(2);
  EXPECT_THAT(Log(), ElementsAre("answer 5/2 UNAVAILABLE 0"));
  EXPECT_THAT(text_, HasSubstr("stream for callbacks is not open"));
  router_.SessionOpened(kSession, std::string("short"));
  Called(3);
  EXPECT_THAT(Log(), ElementsAre("answer 5/3 INVALID_ARGUMENT 0"));
  EXPECT_THAT(text_, HasSubstr("has 5 bytes, expected 16"));
  router_.Called(now_, kExecutor, {4, LaunchId(3), 7, 0, {}, {}}, absl::NotFoundError("no launch"));
  EXPECT_THAT(Log(), ElementsAre("answer 5/4 NOT_FOUND 0"));
}

TEST_F(CallbackRouterTest, ResultsThatTheProgramDoesNotExpectFailTheCall) {
  Open();
  const std::vector<std::pair<std::vector<CallbackArray>, std::string>> bad = {
      {{}, "returned 0 arrays, the program expects 1"},
      {{Float(1), Float(2)}, "returned 2 arrays"},
      {{{DType::kS32, Shape{}, Blob::Make(4)}},
       "returned s32[] as result 0, the program expects f32[]"},
      {{{DType::kF32, Shape{{2}}, Blob::Make(8)}}, "returned f32[2] as result 0"},
      {{{DType::kF32, Shape{}, Blob::Make(3)}}, "returned 3 bytes as result 0"},
      {{{DType::kF32, Shape{}, nullptr}}, "returned 0 bytes as result 0"},
  };
  uint64_t call = 0;
  for (const auto& [results, text] : bad) {
    Called(++call);
    EXPECT_TRUE(router_.Returned(kStream, call, absl::OkStatus(), results).ok());
    EXPECT_THAT(text_, HasSubstr(text));
  }
  EXPECT_EQ(router_.num_calls(), 0u);
}

TEST_F(CallbackRouterTest, ALongErrorIsCut) {
  Open();
  Called(1);
  EXPECT_TRUE(router_.Returned(kStream, 1, absl::AbortedError(std::string(1 << 20, 'x')), {}).ok());
  EXPECT_LT(text_.size(), 70000u);
}

TEST_F(CallbackRouterTest, WhatTakesTooLongEndsAtTheLimitAndItsLateAnswerIsDropped) {
  Open();
  Called(1);
  now_ += 10;
  Called(2);
  Log();
  router_.Tick(5999);
  EXPECT_THAT(Log(), IsEmpty());
  router_.Tick(6000);
  EXPECT_THAT(Log(), ElementsAre(HasSubstr("cancel 10/1 "), "answer 5/1 DEADLINE_EXCEEDED 0"));
  EXPECT_THAT(text_, HasSubstr("did not return within 1 s (--callback-limit): make it return "
                               "sooner, or raise the limit"));
  EXPECT_TRUE(router_.Returned(kStream, 1, absl::OkStatus(), {Float(1)}).ok());
  EXPECT_THAT(Log(), IsEmpty());
  router_.Tick(7000);
  EXPECT_EQ(router_.num_calls(), 0u);
  EXPECT_EQ(router_.num_bytes(), 0);
}

TEST_F(CallbackRouterTest, ASilentClientIsNotWaitedForAgainUntilItAnswers) {
  Open();
  Called(1);
  router_.Tick(now_ + 1000);
  Log();
  Called(2);
  EXPECT_THAT(Log(), ElementsAre("answer 5/2 DEADLINE_EXCEEDED 0"));
  EXPECT_THAT(text_, HasSubstr("an earlier call: the client's function did not return"));
  EXPECT_TRUE(router_.Returned(kStream, 1, absl::OkStatus(), {Float(1)}).ok());
  Called(3);
  EXPECT_THAT(Log(), ElementsAre("call 10/2 f7 jit_f on 2"));
  // A client that answers other calls is slow, not silent.
  now_ += 10;
  Called(4);
  EXPECT_TRUE(router_.Returned(kStream, 3, absl::OkStatus(), {Float(1)}).ok());
  router_.Tick(now_ + 990);
  EXPECT_THAT(Log().back(), "answer 5/3 DEADLINE_EXCEEDED 0");
  Called(5);
  EXPECT_THAT(Log(), ElementsAre("call 10/4 f7 jit_f on 2"));
}

TEST_F(CallbackRouterTest, WithoutALimitACallMayTakeAnyTime) {
  CallbackRouter router({.call_ms = 0}, this);
  router.SessionOpened(kSession, kChannel);
  ASSERT_TRUE(router.StreamOpened(kStream, kChannel).ok());
  router.Called(1, kExecutor, {1, LaunchId(3), 7, 0, {}, {}}, CallbackCaller{kSession, "f", 0});
  router.Tick(int64_t{1} << 50);
  EXPECT_EQ(router.num_calls(), 1u);
}

TEST_F(CallbackRouterTest, TheEndOfASessionOrAStreamEndsItsCallsAlone) {
  Open();
  router_.SessionOpened(kNeighbour, kOther);
  ASSERT_TRUE(router_.StreamOpened(kOtherStream, kOther).ok());
  Called(1);
  Called(2, kFar, kNeighbour);
  Log();
  router_.SessionClosed(kSession);
  EXPECT_THAT(
      Log(), ElementsAre(HasSubstr("cancel 10/1 the session"), "answer 5/1 CANCELLED 0", "end 10"));
  router_.StreamClosed(kOtherStream);
  EXPECT_THAT(Log(), ElementsAre("answer 6/2 UNAVAILABLE 0"));
  // A later stream of the channel serves the later calls.
  ASSERT_TRUE(router_.StreamOpened(30, kOther).ok());
  Called(3, kFar, kNeighbour);
  EXPECT_THAT(Log(), ElementsAre("call 30/1 f7 jit_f on 2"));
  // A launch that outlives its session calls nobody.
  Called(9);
  EXPECT_THAT(Log(), ElementsAre("answer 5/9 FAILED_PRECONDITION 0"));
}

TEST_F(CallbackRouterTest, AnExecutorThatGivesUpOrIsLostGetsNoAnswer) {
  Open();
  router_.SessionOpened(kNeighbour, kOther);
  ASSERT_TRUE(router_.StreamOpened(kOtherStream, kOther).ok());
  Called(1);
  Called(2);
  Called(1, kFar, kNeighbour);
  Log();
  router_.GivenUp(kExecutor, 1);
  EXPECT_THAT(Log(), ElementsAre(HasSubstr("cancel 10/1 ")));
  router_.GivenUp(kExecutor, 1);
  router_.ExecutorLost(kExecutor);
  EXPECT_THAT(Log(), ElementsAre(HasSubstr("cancel 10/2 ")));
  EXPECT_TRUE(router_.Returned(kOtherStream, 1, absl::OkStatus(), {Float(1)}).ok());
  EXPECT_THAT(Log(), ElementsAre("answer 6/1 OK 1"));
}

TEST_F(CallbackRouterTest, WhatIsUnderWayIsBoundedPerSessionAndInAll) {
  Open();
  router_.SessionOpened(kNeighbour, kOther);
  ASSERT_TRUE(router_.StreamOpened(kOtherStream, kOther).ok());
  Called(1);
  Called(2);
  Called(3);  // 24 bytes
  EXPECT_THAT(Log().back(), "answer 5/3 RESOURCE_EXHAUSTED 0");
  EXPECT_THAT(text_, HasSubstr("have 16 bytes, 8 more are too many: at most 20"));
  // Calls without arrays are counted as well.
  for (uint64_t call = 4; call <= 5; ++call)
    router_.Called(now_, kExecutor, {call, LaunchId(3), 7, 0, {}, {}},
                   CallbackCaller{kSession, "jit_f", 2});
  EXPECT_THAT(Log().back(), "answer 5/5 RESOURCE_EXHAUSTED 0");
  EXPECT_THAT(text_, HasSubstr("3 callbacks of the session are under way"));
  // Another session's calls are sent until the calls of all sessions are too many.
  Called(1, kFar, kNeighbour);
  Called(2, kFar, kNeighbour);
  EXPECT_THAT(Log().back(), "call 20/2 f7 jit_f on 2");
  EXPECT_EQ(router_.num_bytes(), 32);
  router_.SessionClosed(kSession);
  EXPECT_EQ(router_.num_bytes(), 16);
}

TEST_F(CallbackRouterTest, SizesThatOverflowAreRefused) {
  Open();
  const CallbackArray most{DType::kU8, Shape{{int64_t{1} << 62}}, Blob::Make(0)};
  const auto call = [&](std::vector<CallbackArray> in, std::vector<CallbackArray> out) {
    router_.Called(now_, kExecutor, {1, LaunchId(3), 7, 0, std::move(in), std::move(out)},
                   CallbackCaller{kSession, "jit_f", 2});
    return Log();
  };
  EXPECT_THAT(call({most, most}, {}), ElementsAre("answer 5/1 INVALID_ARGUMENT 0"));
  EXPECT_THAT(call({most}, {most}), ElementsAre("answer 5/1 INVALID_ARGUMENT 0"));
  EXPECT_THAT(call({most}, {}), ElementsAre("answer 5/1 RESOURCE_EXHAUSTED 0"));
}

TEST_F(CallbackRouterTest, ACallWhoseArgumentsArePulledIsSentWhenTheyAreThere) {
  Open();
  const auto called = [&](uint64_t call) {
    router_.Called(now_, kExecutor,
                   {call, LaunchId(3), 7, 0, {{DType::kF32, Shape{}, nullptr}}, {}},
                   CallbackCaller{kSession, "jit_f", 2});
  };
  called(1);
  EXPECT_THAT(Log(), ElementsAre("fetch 5/1"));
  Called(2);  // does not wait for the arguments of call 1
  EXPECT_THAT(Log(), ElementsAre("call 10/1 f7 jit_f on 2"));
  router_.ArgumentsCame(kExecutor, 1, std::vector<std::shared_ptr<const Blob>>{Blob::Make(4)});
  EXPECT_THAT(Log(), ElementsAre("call 10/2 f7 jit_f on 2"));
  ASSERT_NE(router_.Wanted(kStream, 1), nullptr);
  EXPECT_EQ(router_.Wanted(kStream, 1)->size(), 1u);
  EXPECT_EQ(router_.Wanted(kStream, 3), nullptr);
  EXPECT_TRUE(router_.Returned(kStream, 2, absl::OkStatus(), {}).ok());
  EXPECT_THAT(Log(), ElementsAre("answer 5/1 OK 0"));
  // A call that ends before its arguments come is never sent. If they fail, the call fails.
  called(3);
  router_.GivenUp(kExecutor, 3);
  router_.ArgumentsCame(kExecutor, 3, std::vector<std::shared_ptr<const Blob>>{Blob::Make(4)});
  called(4);
  router_.ArgumentsCame(kExecutor, 4, absl::UnavailableError("gone"));
  called(5);
  router_.Tick(now_ + 1000);
  EXPECT_THAT(Log(), ElementsAre("fetch 5/3", "fetch 5/4", "answer 5/4 UNAVAILABLE 0", "fetch 5/5",
                                 HasSubstr("cancel 10/1"), "answer 5/2 DEADLINE_EXCEEDED 0",
                                 "answer 5/5 DEADLINE_EXCEEDED 0"));
  EXPECT_EQ(router_.num_bytes(), 0);
}

TEST_F(CallbackRouterTest, ArgumentsThatAreNotThoseOfTheCallAreNotSent) {
  Open();
  router_.Called(now_, kExecutor, {1, LaunchId(3), 7, 0, {{DType::kF32, Shape{}, nullptr}}, {}},
                 CallbackCaller{kSession, "jit_f", 2});
  const auto came = [&](size_t bytes) {
    router_.ArgumentsCame(kExecutor, 1,
                          std::vector<std::shared_ptr<const Blob>>{Blob::Make(bytes)});
    return Log();
  };
  Log();
  EXPECT_THAT(came(8), ElementsAre("answer 5/1 INTERNAL 0"));
  EXPECT_THAT(text_, HasSubstr("8 bytes of argument 0 came, f32[] has 4"));
  Called(1);  // the call with its arguments
  Log();
  EXPECT_THAT(came(4), IsEmpty());
  EXPECT_EQ(router_.num_calls(), 1u);
}

TEST_F(CallbackRouterTest, AStreamIsOfAChannelThatAnOpenSessionHas) {
  EXPECT_EQ(router_.StreamOpened(kStream, kChannel).code(), absl::StatusCode::kFailedPrecondition);
  Open();
  router_.SessionOpened(kNeighbour, kChannel);
  router_.SessionClosed(kSession);
  EXPECT_THAT(Log(), IsEmpty()) << "another session has it";
  router_.SessionOpened(kNeighbour, kOther);
  router_.SessionClosed(kNeighbour);
  EXPECT_EQ(router_.StreamOpened(kOtherStream, kOther).code(),
            absl::StatusCode::kFailedPrecondition);
  router_.SessionOpened(kSession, kOther);
  ASSERT_TRUE(router_.StreamOpened(kOtherStream, kOther).ok());
  router_.SessionClosed(kSession);
  EXPECT_THAT(Log(), ElementsAre("end 20"));
}

TEST_F(CallbackRouterTest, StreamsAreBoundedAndOneServesAChannel) {
  Open();
  EXPECT_EQ(router_.StreamOpened(11, kChannel).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(router_.StreamOpened(12, std::string("short")).code(),
            absl::StatusCode::kInvalidArgument);
  router_.SessionOpened(kNeighbour, kOther);
  EXPECT_TRUE(router_.StreamOpened(13, kOther).ok());
  router_.SessionOpened(SessionId(3), std::string(kChannelBytes, 'c'));
  EXPECT_EQ(router_.StreamOpened(14, std::string(kChannelBytes, 'c')).code(),
            absl::StatusCode::kResourceExhausted);
  router_.StreamClosed(14);  // the stream that was refused
  router_.StreamClosed(kStream);
  EXPECT_TRUE(router_.StreamOpened(15, kChannel).ok());
}

TEST_F(CallbackRouterTest, AnAnswerToACallThatNeverWasEndsTheStream) {
  Open();
  Called(1);
  EXPECT_EQ(router_.Returned(kStream, 2, absl::OkStatus(), {}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(router_.Returned(kStream, 0, absl::OkStatus(), {}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(router_.num_calls(), 1u);
}

TEST_F(CallbackRouterTest, ACallThatCannotBeSentFails) {
  Open();
  send_ = absl::ResourceExhaustedError("reads too slowly");
  Called(1);
  EXPECT_THAT(Log().back(), "answer 5/1 RESOURCE_EXHAUSTED 0");
  EXPECT_EQ(router_.num_calls(), 0u);
}

}  // namespace
}  // namespace fairway
