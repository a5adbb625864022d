// SPDX-License-Identifier: Apache-2.0
// The service over real gRPC on loopback; executors are played by the test.
#include "controller/callbacks/grpc_service.h"

#include <deque>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "controller/rpc/server_for_test.h"
#include "fairway/v1/callbacks.grpc.pb.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

const std::string kChannel = "0123456789abcdef";
constexpr SessionId kSession(1);
constexpr ExecutorId kExecutor(5);

class CallbackGrpcTest : public testing::Test {
 protected:
  CallbackGrpcTest() {
    server_ = std::make_unique<ServerForTest>(service_.methods());
    port_ = server_->port();
    loop_thread_ = std::thread([this] { loop_.Run(); });
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::Callbacks::NewStub(grpc::CreateCustomChannel(
        fmt::format("127.0.0.1:{}", port_), grpc::InsecureChannelCredentials(), arguments));
    InLoop([&] { service_.router().SessionOpened(kSession, kChannel); });
  }
  ~CallbackGrpcTest() override {
    service_.Shutdown(std::chrono::seconds(0));
    server_->Shutdown(std::chrono::seconds(5));
    loop_.Stop();
    loop_thread_.join();
  }
  void InLoop(const std::function<void()>& work) {
    std::promise<void> done;
    loop_.Post("test", [&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  // A client's stream.
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::CallbackClientMessage, v1::CallbackServerMessage>>
        stream;

    void Say(const std::string& text) {
      v1::CallbackClientMessage message;
      EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
      EXPECT_TRUE(stream->Write(message));
    }
    v1::CallbackServerMessage Hear() {
      v1::CallbackServerMessage message;
      EXPECT_TRUE(stream->Read(&message));
      return message;
    }
    grpc::Status End() {
      v1::CallbackServerMessage message;
      while (stream->Read(&message)) {
      }
      return stream->Finish();
    }
  };
  std::unique_ptr<Stream> Connect() {
    auto out = std::make_unique<Stream>();
    out->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    out->stream = stub_->Serve(&out->context);
    return out;
  }
  std::unique_ptr<Stream> Open() {
    auto out = Connect();
    out->Say("open { channel: '" + kChannel + "' }");
    EXPECT_EQ(out->Hear().opened().limit_ms(), 5000);
    return out;
  }
  // The program asks for s32[] of s32[2] = {1, 2}.
  void Called(uint64_t call) {
    const int32_t values[] = {1, 2};
    InLoop([&] {
      service_.router().Called(
          100, kExecutor,
          {call,
           LaunchId(9),
           7,
           0,
           {{DType::kS32, Shape{{2}}, Blob::Copy({reinterpret_cast<const char*>(values), 8})}},
           {{DType::kS32, Shape{}, nullptr}}},
          CallbackCaller{kSession, "jit_f", 3});
    });
  }
  // The program passes `count` MiB, which the client leaves unread.
  std::weak_ptr<const Blob> CalledWithMebibytes(uint64_t call, int64_t count) {
    constexpr int64_t kPiece = int64_t{16} << 20;
    const std::shared_ptr<const Blob> bytes = Blob::Make(kPiece);
    const std::vector<CallbackArray> arguments(count / 16, {DType::kU8, Shape{{kPiece}}, bytes});
    InLoop([&] {
      service_.router().Called(100, kExecutor, {call, LaunchId(9), 7, 0, arguments, {}},
                               CallbackCaller{kSession, "jit_f", 3});
    });
    return bytes;
  }
  CallbackAnswer NextAnswer() {
    std::unique_lock lock(mu_);
    EXPECT_TRUE(came_.wait_for(lock, std::chrono::seconds(60), [&] { return !answers_.empty(); }));
    if (answers_.empty()) return {};
    CallbackAnswer answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }

  std::mutex mu_;
  std::condition_variable came_;
  std::deque<CallbackAnswer> answers_;
  EventLoop loop_;
  CallbackGrpcService service_{
      &loop_,
      CallbackLimits{.call_ms = 5000},
      {.answer =
           [this](ExecutorId executor, CallbackAnswer answer) {
             EXPECT_EQ(executor, kExecutor);
             const std::lock_guard lock(mu_);
             answers_.push_back(std::move(answer));
             came_.notify_all();
           },
       .fetch_arguments = [](ExecutorId,
                             const CallbackCall&) { ADD_FAILURE() << "all bytes are here"; }}};
  int port_ = 0;
  std::unique_ptr<ServerForTest> server_;
  std::unique_ptr<v1::Callbacks::Stub> stub_;
  std::thread loop_thread_;
};

TEST_F(CallbackGrpcTest, ACallAndItsAnswerAsTheyCrossTheWire) {
  auto client = Open();
  Called(41);
  v1::CallbackServerMessage expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(call { call: 1 function: 7 device: 3 program: "jit_f"
                arguments { dtype: 4 dims: 2 size: 8 data: "\001\000\000\000\002\000\000\000" }
                results { dtype: 4 size: 4 } })",
      &expected));
  EXPECT_EQ(client->Hear().DebugString(), expected.DebugString());
  client->Say(R"(return { call: 1 results { dtype: 4 size: 4 data: "\003\000\000\000" } })");
  const CallbackAnswer answer = NextAnswer();
  EXPECT_EQ(answer.call, 41u);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.results[0]->view(), std::string_view("\3\0\0\0", 4));
}

TEST_F(CallbackGrpcTest, LargeArraysCrossInChunksInBothDirections) {
  constexpr int64_t kInts = (int64_t{5} << 20) / 8;  // 2.5 MiB
  auto client = Open();
  std::string bytes(kInts * 4, 'x');
  for (size_t i = 0; i < bytes.size(); i += 1000) bytes[i] = static_cast<char>(i / 1000);
  const CallbackArray large{DType::kS32, Shape{{kInts}}, Blob::Copy(bytes)};
  const CallbackArray small{DType::kS32, Shape{}, Blob::Copy("1234")};
  InLoop([&] {
    service_.router().Called(100, kExecutor,
                             {41, LaunchId(9), 7, 0, {small, large}, {large, small, large}},
                             CallbackCaller{kSession, "jit_f", 3});
  });
  const v1::CallbackServerMessage call = client->Hear();
  EXPECT_EQ(call.call().arguments(1).size(), kInts * 4);
  EXPECT_TRUE(call.call().arguments(1).data().empty());
  std::string came;
  while (came.size() < bytes.size() + 4) {
    const v1::CallbackServerMessage message = client->Hear();
    ASSERT_TRUE(message.has_chunk());
    EXPECT_EQ(message.chunk().call(), 1u);
    EXPECT_LE(message.chunk().data().size(), size_t{1} << 20);
    came += message.chunk().data();
  }
  EXPECT_TRUE(came == "1234" + bytes);
  // The small array comes with the Return; a chunk may hold bytes of several arrays.
  client->Say(fmt::format(R"(return {{ call: 1 results {{ dtype: 4 dims: {0} size: {1} }}
                                       results {{ dtype: 4 size: 4 data: "5678" }}
                                       results {{ dtype: 4 dims: {0} size: {1} }} }})",
                          kInts, kInts * 4));
  const std::string all = bytes + bytes;
  for (size_t at = 0; at < all.size(); at += 1000000) {
    v1::CallbackClientMessage chunk;
    chunk.mutable_chunk()->set_call(1);
    chunk.mutable_chunk()->set_data(all.substr(at, 1000000));
    ASSERT_TRUE(client->stream->Write(chunk));
  }
  const CallbackAnswer answer = NextAnswer();
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  ASSERT_EQ(answer.results.size(), 3u);
  EXPECT_TRUE(answer.results[0]->view() == bytes);
  EXPECT_EQ(answer.results[1]->view(), "5678");
  EXPECT_TRUE(answer.results[2]->view() == bytes);
}

TEST_F(CallbackGrpcTest, NoRoomIsMadeForLargeResultsThatNobodyWants) {
  auto client = Open();
  Called(41);
  client->Hear();
  client->Say("return { call: 1 results { dtype: 4 dims: 1000000000000 size: 4000000000000 } }");
  EXPECT_EQ(NextAnswer().status.code(), absl::StatusCode::kInvalidArgument);
  // Chunks of a call that has ended are dropped, and so are those of a call that never was.
  client->Say("chunk { call: 1 data: 'abcd' }");
  client->Say("chunk { call: 77 data: 'abcd' }");
  Called(42);
  EXPECT_EQ(client->Hear().call().call(), 2u);
}

TEST_F(CallbackGrpcTest, MoreBytesThanTheResultsHaveEndTheStream) {
  auto client = Open();
  Called(41);
  client->Hear();
  client->Say("return { call: 1 results { dtype: 4 size: 4 } }");
  client->Say("chunk { call: 1 data: '12' }");
  client->Say("chunk { call: 1 data: '345' }");
  EXPECT_EQ(client->End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(NextAnswer().status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(CallbackGrpcTest, ASecondReturnOfACallForgetsWhatTheFirstLeftOpen) {
  auto client = Open();
  Called(41);
  client->Hear();
  client->Say("return { call: 1 results { dtype: 4 size: 4 } }");
  client->Say("chunk { call: 1 data: '12' }");
  client->Say("return { call: 1 code: 10 text: 'no' }");
  EXPECT_EQ(NextAnswer().status.code(), absl::StatusCode::kAborted);
  client->Say("chunk { call: 1 data: '345' }");  // dropped, because the call has ended
  client->Say("return { call: 1 results { dtype: 4 size: 4 } }");
  client->Say("chunk { call: 1 data: '123456' }");
  Called(42);
  EXPECT_EQ(client->Hear().call().call(), 2u);
  client->Say("return { call: 2 results { dtype: 4 size: 4 data: '1234' } }");
  EXPECT_TRUE(NextAnswer().status.ok()) << "the stream is unharmed";
}

TEST_F(CallbackGrpcTest, ChunksLargerThanAgreedEndTheStream) {
  auto client = Open();
  v1::CallbackClientMessage message;
  message.mutable_chunk()->set_data(std::string((size_t{1} << 20) + 1, 'x'));
  EXPECT_TRUE(client->stream->Write(message));
  EXPECT_EQ(client->End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CallbackGrpcTest, WhatAClientLeftUnreadGoesWithItsCall) {
  auto client = Open();
  const auto unread = CalledWithMebibytes(41, 80);
  EXPECT_FALSE(unread.expired());
  InLoop([&] { service_.router().Tick(5100); });
  EXPECT_EQ(NextAnswer().status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(unread.expired());
  // Nor do its bytes count as unread any more.
  InLoop([&] { (void)service_.router().Returned(1, 1, absl::OkStatus(), {}); });
  Called(42);
  v1::CallbackServerMessage message;
  while (message.call().call() != 2) ASSERT_TRUE(client->stream->Read(&message));
  // The same happens when the client answers without having read.
  const auto more = CalledWithMebibytes(43, 32);
  client->Say("return { call: 3 }");
  EXPECT_TRUE(NextAnswer().status.ok());
  InLoop([] {});
  EXPECT_TRUE(more.expired());
}

TEST_F(CallbackGrpcTest, WhatAClientLeftUnreadGoesWithAStreamThatBreaksTheProtocol) {
  auto client = Open();
  const auto unread = CalledWithMebibytes(41, 32);
  client->Say("open { channel: '" + kChannel + "' }");
  EXPECT_EQ(NextAnswer().status.code(), absl::StatusCode::kUnavailable);
  InLoop([] {});
  EXPECT_TRUE(unread.expired());
}

TEST_F(CallbackGrpcTest, AStreamEndsWithItsSessionAlsoWhenNothingIsRead) {
  auto client = Open();
  const auto unread = CalledWithMebibytes(41, 32);
  InLoop([&] { service_.router().SessionClosed(kSession); });
  EXPECT_EQ(NextAnswer().status.code(), absl::StatusCode::kCancelled);
  InLoop([] {});
  EXPECT_TRUE(unread.expired());
  EXPECT_EQ(client->End().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(CallbackGrpcTest, AnErrorComesWithItsTextAndBadBytesInItAreReplaced) {
  auto client = Open();
  Called(41);
  client->Hear();
  client->Say(R"(return { call: 1 code: 10 text: "Traceback\n  ValueError: \377" })");
  const CallbackAnswer answer = NextAnswer();
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Text(answer.status), HasSubstr("Traceback\n  ValueError: "));
  EXPECT_EQ(Text(answer.status).find('\377'), std::string::npos);
}

TEST_F(CallbackGrpcTest, ResultsThatAreNoneFailTheCallAndNotTheStream) {
  auto client = Open();
  for (const char* bad : {"dtype: 4444 data: '1234'", "dtype: 4 dims: -1 data: '1234'",
                          "dtype: 4 data: '123'", "dtype: 4 dims: 1 data: '1234'"}) {
    Called(41);
    const uint64_t number = client->Hear().call().call();
    client->Say(fmt::format("return {{ call: {} results {{ {} }} }}", number, bad));
    EXPECT_EQ(NextAnswer().status.code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(CallbackGrpcTest, AClientThatGoesFailsItsCallsAndMayComeBack) {
  auto client = Open();
  Called(41);
  client->Hear();
  client->context.TryCancel();
  client->End();
  EXPECT_EQ(NextAnswer().status.code(), absl::StatusCode::kUnavailable);
  client = Open();
  Called(42);
  EXPECT_EQ(client->Hear().call().call(), 1u);
}

TEST_F(CallbackGrpcTest, ACallThatNobodyWaitsForIsCancelled) {
  auto client = Open();
  Called(41);
  client->Hear();
  InLoop([&] { service_.router().Tick(5100); });
  EXPECT_THAT(client->Hear().cancel().reason(), HasSubstr("--callback-limit"));
  EXPECT_EQ(NextAnswer().status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(CallbackGrpcTest, StreamsThatBreakTheProtocolEnd) {
  const auto code = [&](const std::vector<std::string>& messages) {
    auto client = Connect();
    for (const std::string& message : messages) client->Say(message);
    return client->End().error_code();
  };
  const std::string open = "open { channel: 'fedcba9876543210' }";
  EXPECT_EQ(code({open}), grpc::StatusCode::FAILED_PRECONDITION) << "no session has it";
  InLoop([&] { service_.router().SessionOpened(SessionId(2), std::string("fedcba9876543210")); });
  EXPECT_EQ(code({"return { call: 1 }"}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code({"open { channel: 'short' }"}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code({open, open}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code({open, "return { call: 1 }"}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code({open, ""}), grpc::StatusCode::INVALID_ARGUMENT);
  auto client = Open();
  EXPECT_EQ(code({"open { channel: '" + kChannel + "' }"}), grpc::StatusCode::ALREADY_EXISTS);
  Called(41);
  EXPECT_EQ(client->Hear().call().call(), 1u) << "the first stream is unharmed";
}

TEST_F(CallbackGrpcTest, AtTheEndOfTheControllerStreamsEndAndNewOnesAreRefused) {
  auto client = Open();
  service_.Shutdown(std::chrono::seconds(0));
  EXPECT_EQ(client->End().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Connect()->End().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace fairway
