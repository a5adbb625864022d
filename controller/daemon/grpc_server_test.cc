// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/grpc_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "controller/access/gated_methods.h"
#include "fairway/v1/admin.grpc.pb.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<GrpcServer>> Start() {
  return GrpcServer::Start(Front::Listen("127.0.0.1", 0, {}).value(), {});
}

// Calls `method` with one message of these bytes. Returns the bytes of the first answer.
absl::StatusOr<std::string> Call(const std::shared_ptr<grpc::Channel>& channel,
                                 const std::string& method, const std::string& request,
                                 grpc_compression_algorithm compression = GRPC_COMPRESS_NONE) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
  context.set_compression_algorithm(compression);
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  auto call = stub.PrepareCall(&context, method, &queue);
  const auto step = [&] { return queue.Next(&tag, &ok) && ok; };
  call->StartCall(nullptr);
  step();
  const grpc::Slice slice(request);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  step();
  call->WritesDone(nullptr);
  step();
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  const bool answered = step();
  grpc::Status status;
  call->Finish(&status, nullptr);
  step();
  if (!answered || !status.ok()) {
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  grpc::Slice out;
  answer.DumpToSingleSlice(&out);
  return std::string(reinterpret_cast<const char*>(out.begin()), out.size());
}

absl::StatusOr<std::string> Call(int port, const std::string& method, const std::string& request) {
  return Call(
      grpc::CreateChannel(fmt::format("127.0.0.1:{}", port), grpc::InsecureChannelCredentials()),
      method, request);
}

// The kernel's limit for sent and unacknowledged data, of a connection that came in at `port`. It
// is gRPC's timeout of keepalive pings. -1: there is no such socket.
int UserTimeoutMs(int port) {
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in6 address{};
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    if (::getsockname(fd, any, &size) != 0 ||
        address.sin6_port != htons(static_cast<uint16_t>(port)) ||
        ::getpeername(fd, any, &(size = sizeof address)) != 0)
      continue;
    int value = -1;
    size = sizeof(value);
    ::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size);
    return value;
  }
  return -1;
}

// A test of the pings themselves would take minutes. Without them the limit would be 20 s.
TEST(GrpcServerTest, WaitsTwoMinutesForAClientThatIsSilent) {
  auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>((*server)->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  ASSERT_EQ(::send(client, preface.data(), preface.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(preface.size()));
  char settings[9];  // a frame of HTTP/2, so gRPC has the connection
  EXPECT_EQ(::recv(client, settings, sizeof settings, MSG_WAITALL), 9);
  EXPECT_EQ(UserTimeoutMs((*server)->port()), 120 * 1000);
  ::close(client);
  (*server)->Shutdown(std::chrono::milliseconds(100));
}

TEST(GrpcServerTest, TellsItsHealth) {
  auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const auto health = [&] { return *Call((*server)->port(), "/grpc.health.v1.Health/Check", ""); };
  (*server)->SetServing(false);
  EXPECT_EQ(health(), "\x08\x02");  // status: NOT_SERVING
  (*server)->SetServing(true);
  EXPECT_EQ(health(), "\x08\x01");  // status: SERVING
  (*server)->Shutdown(std::chrono::milliseconds(100));
}

TEST(GrpcServerTest, ListsItsServicesByReflection) {
  auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  // list_services = 7
  const auto answer =
      Call((*server)->port(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
           "\x3a\x01*");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(*answer, HasSubstr("grpc.reflection.v1alpha.ServerReflection"));
  (*server)->Shutdown(std::chrono::milliseconds(100));
}

TEST(GrpcServerTest, ASecondServerOnAPortIsRefused) {
  auto server = Start();
  ASSERT_TRUE(server.ok()) << server.status();
  const auto second = Front::Listen("127.0.0.1", (*server)->port(), {}).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Text(second), HasSubstr(fmt::format("port {} is taken", (*server)->port())));
  EXPECT_FALSE(Front::Listen("no-address", 0, {}).ok());
  (*server)->Shutdown(std::chrono::milliseconds(100));
}

// A server with a method that lets everybody in, and more connections of gRPC's clients than may be
// there without such a call.
class ConnectionsTest : public testing::Test {
 protected:
  ConnectionsTest() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    methods_.AddUnary<v1::GetStatusRequest, v1::GetStatusResponse>(
        "fairway.v1.Admin.GetStatus", [](auto* call) { call->Answer(absl::OkStatus()); });
    server_ = GrpcServer::Start(front_, methods_.all()).value();
  }
  ~ConnectionsTest() override { server_->Shutdown(std::chrono::milliseconds(100)); }
  void CallOnEach(const std::string& method) {
    for (size_t i = 0; i < Front::kQuiet + 50; ++i) {
      grpc::ChannelArguments own;
      own.SetInt("number", static_cast<int>(i));  // else they share a connection
      open_.push_back(grpc::CreateCustomChannel(fmt::format("127.0.0.1:{}", server_->port()),
                                                grpc::InsecureChannelCredentials(), own));
      const auto answer = Call(open_.back(), method, "");
      ASSERT_TRUE(answer.ok()) << i << ": " << answer.status();
    }
  }

  std::shared_ptr<Front> front_ = Front::Listen("127.0.0.1", 0, {}).value();
  GatedMethods methods_{
      CallAccess(nullptr, nullptr, [this](const auto&... call) { return front_->LetIn(call...); })};
  std::unique_ptr<GrpcServer> server_;
  std::vector<std::shared_ptr<grpc::Channel>> open_;
};

TEST_F(ConnectionsTest, WhoseCallIsLetInIsNotCountedAmongThoseWhoProveNothing) {
  CallOnEach("/fairway.v1.Admin/GetStatus");
  for (const auto& channel : open_) ASSERT_EQ(channel->GetState(false), GRPC_CHANNEL_READY);
}

// A message of some kilobytes may become one of hundreds of megabytes, in the thread that has all
// calls.
TEST_F(ConnectionsTest, CompressedMessagesAreRefused) {
  const auto channel = grpc::CreateChannel(fmt::format("127.0.0.1:{}", server_->port()),
                                           grpc::InsecureChannelCredentials());
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    // Unknown fields of protobuf, so that it would be taken.
    const auto answer = Call(channel, "/fairway.v1.Admin/GetStatus",
                             "\x7a\x80\x80\x02" + std::string(32 << 10, 'x'), algorithm);
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnimplemented) << answer.status();
  }
  EXPECT_TRUE(Call(channel, "/fairway.v1.Admin/GetStatus", "").ok());
}

TEST_F(ConnectionsTest, WhoAsksForTheHealthIs) {
  CallOnEach("/grpc.health.v1.Health/Check");
  for (size_t i = 0; i < 50; ++i) {
    const auto state = open_[i]->GetState(false);
    EXPECT_TRUE(state != GRPC_CHANNEL_READY ||
                open_[i]->WaitForStateChange(
                    state, std::chrono::system_clock::now() + std::chrono::seconds(120)))
        << i;
  }
}

}  // namespace
}  // namespace fairway
