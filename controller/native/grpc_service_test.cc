// SPDX-License-Identifier: Apache-2.0
// The service over real gRPC on loopback.
#include "controller/native/grpc_service.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "controller/cluster/inspection.h"
#include "controller/ifrt/test_cluster.h"
#include "controller/rpc/server_for_test.h"
#include "fairway/v1/client.grpc.pb.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

// Less than the real limit, because a message of that size takes seconds to send.
constexpr int kMaxMessage = 64 << 20;
// Unfinished nodes above which a session is not read; four times as many while it waits for bytes.
constexpr size_t kMostNodes = 1000;

class NativeGrpcTest : public testing::Test {
 protected:
  NativeGrpcTest() {
    server_ = std::make_unique<ServerForTest>(service_.methods(), kMaxMessage);
    port_ = server_->port();
    loop_thread_ = std::thread([this] { loop_.Run(); });
    Pump();
    stub_ = v1::Client::NewStub(Channel());
  }
  ~NativeGrpcTest() override {
    service_.Shutdown(std::chrono::seconds(0));
    server_->Shutdown(std::chrono::seconds(5));
    loop_.Stop();
    loop_thread_.join();
  }
  std::shared_ptr<grpc::Channel> Channel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    return grpc::CreateCustomChannel(fmt::format("127.0.0.1:{}", port_),
                                     grpc::InsecureChannelCredentials(), arguments);
  }
  // Lets the executors carry out their commands, every millisecond.
  void Pump() {
    loop_.PostAfter(std::chrono::milliseconds(1), "pump", [this] {
      cluster_.RunAll();
      Pump();
    });
  }
  template <typename Look>
  auto InLoop(Look look) {
    std::promise<decltype(look())> result;
    loop_.Post("look", [&] { result.set_value(look()); });
    return result.get_future().get();
  }
  size_t Sessions() {
    return InLoop([&] { return door_.num_sessions(); });
  }

  // A client's stream.
  struct Session {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::ClientMessage, v1::ServerMessage>> stream;

    // Sends a message with these requests, in protobuf text form.
    void Say(const std::string& text) {
      v1::ClientMessage message;
      EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
      EXPECT_TRUE(stream->Write(message));
    }
    v1::ServerMessage Hear() {
      v1::ServerMessage message;
      EXPECT_TRUE(stream->Read(&message));
      return message;
    }
    // The status with which it ended; waits for the end.
    grpc::Status End() {
      v1::ServerMessage message;
      while (stream->Read(&message)) {
      }
      return stream->Finish();
    }
  };
  std::unique_ptr<Session> Connect() {
    auto session = std::make_unique<Session>();
    session->stream = stub_->Session(&session->context);
    return session;
  }
  std::unique_ptr<Session> Open() {
    auto session = Connect();
    session->Say("requests { id: 1 hello { min_version: 1 max_version: 1 tenant: \"t\" } }");
    EXPECT_EQ(session->Hear().answers(0).welcome().devices_size(), 4);
    return session;
  }
  void WaitForNoSession() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while ((Sessions() > 0 || service_.num_streams() > 0) &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    EXPECT_EQ(Sessions(), 0u);
    EXPECT_EQ(service_.num_streams(), 0u);
    EXPECT_EQ(InLoop([&] { return cluster_.cluster().inspection().counts().arrays; }), 0u);
  }

  EventLoop loop_;
  TestCluster cluster_;
  NativeDoor door_{&cluster_.cluster(),
                   &cluster_.compiler(),
                   {.caps = {.max_queued_nodes = kMostNodes}, .server = "test"}};
  NativeGrpcService service_{&loop_, &door_};
  int port_ = 0;
  std::unique_ptr<ServerForTest> server_;
  std::thread loop_thread_;
  std::unique_ptr<v1::Client::Stub> stub_;
};

constexpr char kU8[] = "spec { dtype: 6 dims: %DIM% sharding { devices: 0 } }";
std::string Spec(size_t bytes) {
  std::string text = kU8;
  return text.replace(text.find("%DIM%"), 5, std::to_string(bytes));
}

TEST_F(NativeGrpcTest, ManyRequestsOfOneMessageAreAnsweredTogether) {
  const auto session = Open();
  session->Say("requests { id: 2 ping {} } requests { ping {} } requests { id: 3 ping {} }");
  std::vector<uint64_t> ids;
  while (ids.size() < 2) {
    const v1::ServerMessage heard = session->Hear();
    for (const v1::Answer& answer : heard.answers()) ids.push_back(answer.id());
  }
  EXPECT_EQ(ids, (std::vector<uint64_t>{2, 3}));
}

TEST_F(NativeGrpcTest, LargeArraysGoThereAndBackInPieces) {
  const auto session = Open();
  const std::string bytes((2 << 20) + 3, 'x');
  session->Say(fmt::format(
      "requests {{ put {{ array: 5 {} bytes {{ upload: 1 size: {} }} }} }} requests {{ id: 2 fetch "
      "{{ array: 5 }} }}",
      Spec(bytes.size()), bytes.size()));
  for (size_t sent = 0; sent < bytes.size(); sent += 1 << 20) {
    v1::ClientMessage message;
    v1::Chunk* chunk = message.add_requests()->mutable_chunk();
    chunk->set_upload(1);
    chunk->set_data(bytes.substr(sent, 1 << 20));
    message.add_requests()->set_id(1000 + sent);
    message.mutable_requests(1)->mutable_ping();  // does not hold others up
    ASSERT_TRUE(session->stream->Write(message));
  }
  std::string back;
  int pings = 0;
  while (back.size() < bytes.size()) {
    const v1::ServerMessage heard = session->Hear();
    for (const v1::Answer& answer : heard.answers()) {
      if (answer.id() != 2) ++pings;
      EXPECT_FALSE(answer.has_error()) << answer.ShortDebugString();
      EXPECT_LE(answer.fetched().data().size(), size_t{1} << 20);
      back += answer.fetched().data();
    }
  }
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(pings, 3);
}

TEST_F(NativeGrpcTest, LargeProgramsComeAsOneMessage) {
  const auto session = Open();
  v1::ClientMessage message;
  v1::Compile* compile = message.add_requests()->mutable_compile();
  message.mutable_requests(0)->set_id(2);
  compile->set_stablehlo(std::string(20 << 20, 'p'));
  ASSERT_TRUE(session->stream->Write(message));
  EXPECT_EQ(session->Hear().answers(0).error().text(), "0 is no handle");
}

TEST_F(NativeGrpcTest, AStreamThatDoesNotBeginWithHelloEnds) {
  const auto session = Connect();
  session->Say("requests { id: 1 ping {} }");
  const grpc::Status status = session->End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("begins with a Hello"));
}

TEST_F(NativeGrpcTest, AChunkThatNobodyAnnouncedEndsTheStream) {
  const auto session = Open();
  session->Say("requests { chunk { upload: 3 data: \"a\" } }");
  const grpc::Status status = session->End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("a chunk of upload 3"));
  WaitForNoSession();
}

TEST_F(NativeGrpcTest, BytesThatAreNoMessageEndTheStreamAndNoOther) {
  const auto neighbour = Open();
  grpc::GenericStub stub(Channel());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto stream = stub.PrepareCall(&context, "/fairway.v1.Client/Session", &queue);
  void* tag = nullptr;
  bool ok = false;
  stream->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const grpc::Slice garbage(std::string("\xff\xff\xff no message"));
  stream->Write(grpc::ByteBuffer(&garbage, 1), nullptr);
  queue.Next(&tag, &ok);
  grpc::Status status;
  stream->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "what came is no fairway.v1.ClientMessage");
  neighbour->Say("requests { id: 2 ping {} }");
  EXPECT_EQ(neighbour->Hear().answers(0).id(), 2u);
}

TEST_F(NativeGrpcTest, AMessageThatIsTooLargeEndsTheStreamAndNoOther) {
  const auto neighbour = Open(), session = Open();
  v1::ClientMessage message;
  message.add_requests()->mutable_compile()->set_stablehlo(std::string(kMaxMessage, 'p'));
  session->stream->Write(message);
  EXPECT_EQ(session->End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  neighbour->Say("requests { id: 2 ping {} }");
  EXPECT_EQ(neighbour->Hear().answers(0).id(), 2u);
}

TEST_F(NativeGrpcTest, AClientsEndFreesItsSession) {
  auto session = Open(), other = Open();
  session->Say("requests { id: 2 put { array: 5 " + Spec(4) + " bytes { data: \"aaaa\" } } }");
  EXPECT_EQ(session->Hear().answers(0).id(), 2u);
  // The other client goes in the middle of an upload.
  other->Say("requests { id: 2 put { array: 5 " + Spec(4) + " bytes { upload: 1 size: 4 } } }");
  EXPECT_EQ(other->Hear().answers(0).id(), 2u);
  EXPECT_EQ(Sessions(), 2u);
  session->stream->WritesDone();
  EXPECT_EQ(session->End().error_code(), grpc::StatusCode::CANCELLED);
  other->context.TryCancel();
  other->End();
  WaitForNoSession();
}

TEST_F(NativeGrpcTest, AClientThatDoesNotReadIsNotReadFrom) {
  const auto session = Open();
  session->Say("requests { put { array: 5 " + Spec(32 << 20) +
               " bytes { upload: 1 size: 33554432 } } }");
  v1::ClientMessage message;
  v1::Chunk* chunk = message.add_requests()->mutable_chunk();
  chunk->set_upload(1);
  chunk->set_data(std::string(32 << 20, 'x'));
  ASSERT_TRUE(session->stream->Write(message));
  // Three times the bytes are more than may be left unread, so the pings wait in the client.
  session->Say(
      "requests { id: 2 fetch { array: 5 } } requests { id: 3 fetch { array: 5 } } "
      "requests { id: 4 fetch { array: 5 } } requests { id: 5 watch { arrays: 5 } }");
  for (int i = 0; i < 200; ++i) session->Say(fmt::format("requests {{ id: {} ping {{}} }}", 6 + i));
  size_t bytes = 0, answers = 0;
  while (bytes < size_t{96} << 20 || answers < 201) {
    const v1::ServerMessage heard = session->Hear();
    for (const v1::Answer& answer : heard.answers()) {
      bytes += answer.fetched().data().size();
      if (answer.id() >= 5) ++answers;
    }
  }
}

// Each request takes a turn of its own.
TEST_F(NativeGrpcTest, NoMoreLongRequestsAreHandledWhileTooMuchOfTheirWorkWaits) {
  constexpr size_t kCopies = 2000;
  const auto session = Open(), other = Open();
  v1::ClientMessage message;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      fmt::format("requests {{ put {{ array: 1 {} bytes {{ upload: 1 size: 4 }} }} }}", Spec(4)),
      &message));
  for (uint64_t next = 2; message.requests_size() < 21;) {
    v1::Copy& copy = *message.add_requests()->mutable_copy();
    copy.set_semantics(v1::COPY_SEMANTICS_ALWAYS_COPY);
    for (size_t i = 0; i < kCopies; ++i) {
      copy.add_arrays(1);
      copy.add_results(next++);
    }
  }
  ASSERT_TRUE(session->stream->Write(message));
  size_t most = 0;
  for (int looks = 0; looks < 60 || most < kCopies; ++looks) {
    other->Say("requests { id: 2 ping {} }");
    other->Hear();
    most = std::max(most, InLoop([&] { return cluster_.cluster().inspection().counts().nodes; }));
  }
  EXPECT_LE(most, 4 * kMostNodes + 2 * kCopies);
  session->context.TryCancel();
  other->context.TryCancel();
  WaitForNoSession();
}

TEST_F(NativeGrpcTest, ShutdownAnswersWithUnavailableUntilTheClientLeaves) {
  const auto session = Open();
  auto shutdown = std::async(std::launch::async, [&] { service_.Shutdown(std::chrono::hours(1)); });
  // From some moment on every answer is the refusal.
  do {
    session->Say("requests { id: 2 ping {} }");
  } while (session->Hear().answers(0).error().code() != grpc::StatusCode::UNAVAILABLE);
  session->stream->WritesDone();
  session->End();
  shutdown.get();
  EXPECT_EQ(service_.num_streams(), 0u);
  EXPECT_EQ(Connect()->End().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace fairway
