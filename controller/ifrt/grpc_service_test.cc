// SPDX-License-Identifier: Apache-2.0
// The service over real gRPC on loopback, used as jaxlib's client uses it.
#include "controller/ifrt/grpc_service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "controller/cluster/inspection.h"
#include "controller/cluster/sessions.h"
#include "controller/ifrt/test_cluster.h"
#include "controller/rpc/server_for_test.h"
#include "ifrt/service.grpc.pb.h"

namespace fairway {
namespace {

namespace proxy = xla::ifrt::proxy;
using proxy::GrpcIfrtService;
using ::testing::HasSubstr;

// Unfinished nodes above which a session is not read; four times as many while it waits for bytes.
constexpr size_t kMostNodes = 1000;

IfrtSessionOptions FewNodes() {
  IfrtSessionOptions options;
  options.caps.max_queued_nodes = kMostNodes;
  return options;
}

class GrpcServiceTest : public testing::Test {
 protected:
  explicit GrpcServiceTest(std::unique_ptr<Gate> gate = nullptr) : gate_(std::move(gate)) {
    server_ = std::make_unique<ServerForTest>(service_.methods());
    loop_thread_ = std::thread([this] { loop_.Run(); });
    Pump();
    port_ = server_->port();
    stub_ = Connect(port_);
  }
  ~GrpcServiceTest() override {
    service_.Shutdown(std::chrono::seconds(0));
    server_->Shutdown(std::chrono::seconds(5));
    loop_.Stop();
    loop_thread_.join();
  }
  static std::unique_ptr<GrpcIfrtService::Stub> Connect(int port) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    return GrpcIfrtService::NewStub(grpc::CreateCustomChannel(
        fmt::format("127.0.0.1:{}", port), grpc::InsecureChannelCredentials(), arguments));
  }
  // Lets the executors carry out their commands, every millisecond.
  void Pump() {
    loop_.PostAfter(std::chrono::milliseconds(1), "pump", [this] {
      cluster_.RunAll();
      Pump();
    });
  }
  template <typename Look>
  size_t InLoop(Look look) {
    std::promise<size_t> result;
    loop_.Post("look", [&] { result.set_value(look()); });
    return result.get_future().get();
  }
  size_t Sessions() {
    return InLoop([&] { return cluster_.door().num_sessions(); });
  }

  // A client's stream.
  struct Session {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<proxy::IfrtRequest, proxy::IfrtResponse>> stream;
    uint64_t id = 0;
    uint64_t next_op = 1;

    proxy::IfrtResponse Ask(const std::string& text) {
      proxy::IfrtRequest request;
      EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
      return Ask(std::move(request));
    }
    void Say(proxy::IfrtRequest request) {
      request.mutable_request_metadata()->set_op_id(next_op++);
      EXPECT_TRUE(stream->Write(request));
    }
    proxy::IfrtResponse Ask(proxy::IfrtRequest request) {
      Say(std::move(request));
      proxy::IfrtResponse response;
      EXPECT_TRUE(stream->Read(&response));
      return response;
    }
  };
  std::unique_ptr<Session> Open(int protocol = 25, int serdes = 3) {
    auto session = std::make_unique<Session>();
    proxy::GrpcIfrtSessionMetadata metadata;
    metadata.mutable_version()->set_protocol_version(protocol);
    metadata.mutable_version()->set_ifrt_serdes_version_number(serdes);
    session->context.AddMetadata("ifrt-proxy-grpc-ifrt-session-metadata-bin",
                                 metadata.SerializeAsString());
    session->stream = stub_->IfrtSession(&session->context);
    if (protocol == 25) session->id = session->Ask("init_request {}").init_response().session_id();
    return session;
  }
  grpc::Status Store(uint64_t session, uint64_t handle, int64_t announced,
                     const std::vector<std::string>& chunks) {
    grpc::ClientContext context;
    proxy::GrpcHostBufferStoreMetadata metadata;
    metadata.set_session_id(session);
    metadata.set_handle(handle);
    metadata.set_buffer_size(announced);
    context.AddMetadata("ifrt-proxy-grpc-host-buffer-store-metadata-bin",
                        metadata.SerializeAsString());
    proxy::GrpcHostBufferStoreResponse response;
    const auto writer = stub_->HostBufferStore(&context, &response);
    for (const std::string& chunk : chunks) {
      proxy::GrpcHostBufferStoreRequest request;
      request.set_data(chunk);
      writer->Write(request);
    }
    writer->WritesDone();
    return writer->Finish();
  }
  // The bytes, and the number of messages in which they came.
  std::pair<std::string, int> Lookup(uint64_t session, uint64_t handle, grpc::Status* status,
                                     bool early = false) {
    grpc::ClientContext context;
    if (early) context.AddMetadata("fairway-early", "1");
    proxy::GrpcHostBufferLookupRequest request;
    request.set_session_id(session);
    request.set_handle(handle);
    const auto reader = stub_->HostBufferLookup(&context, request);
    std::pair<std::string, int> out;
    for (proxy::GrpcHostBufferLookupResponse chunk; reader->Read(&chunk); ++out.second)
      out.first += chunk.data();
    *status = reader->Finish();
    return out;
  }

  EventLoop loop_;
  TestCluster cluster_{0, -1, FewNodes()};
  const std::unique_ptr<Gate> gate_;
  IfrtGrpcService service_{&loop_, &cluster_.door(), {.access = CallAccess(&loop_, gate_.get())}};
  std::unique_ptr<ServerForTest> server_;
  std::thread loop_thread_;
  std::unique_ptr<GrpcIfrtService::Stub> stub_;
  int port_ = 0;
};

constexpr char kMake[] =
    "make_array_from_host_buffer_request { dtype { kind: KIND_U8 } shape { dims: %DIM% } sharding "
    "{ serialized_sharding { "
    "type_name: \"xla::ifrt::SingleDeviceSharding\" } } host_buffer_handle: 5 array_handle: 5 }";
std::string Make(size_t bytes) {
  std::string text = kMake;
  return text.replace(text.find("%DIM%"), 5, std::to_string(bytes));
}

TEST_F(GrpcServiceTest, VersionsAreNegotiated) {
  grpc::ClientContext context;
  proxy::GrpcGetVersionRequest request;
  proxy::GrpcGetVersionResponse response;
  request.mutable_min_version()->set_protocol_version(16);
  request.mutable_max_version()->set_protocol_version(25);
  request.mutable_max_version()->set_ifrt_serdes_version_number(3);
  ASSERT_TRUE(stub_->GetVersion(&context, request, &response).ok());
  EXPECT_EQ(response.version().protocol_version(), 25);
  EXPECT_EQ(response.version().ifrt_serdes_version_number(), 3);

  grpc::ClientContext new_context;  // jaxlib 0.12.0.1
  request.mutable_min_version()->set_ifrt_serdes_version_number(2);
  request.mutable_max_version()->set_ifrt_serdes_version_number(6);
  ASSERT_TRUE(stub_->GetVersion(&new_context, request, &response).ok());
  EXPECT_EQ(response.version().protocol_version(), 25);
  EXPECT_EQ(response.version().ifrt_serdes_version_number(), 6);

  grpc::ClientContext old_context;
  request.mutable_min_version()->set_protocol_version(3);
  request.mutable_max_version()->set_protocol_version(14);
  const grpc::Status status = stub_->GetVersion(&old_context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("pip install"));
}

TEST_F(GrpcServiceTest, BytesGoThereAndBackInChunks) {
  const auto session = Open();
  const std::string chunk(1 << 20, 'x');
  const std::string bytes = chunk + chunk + "end";
  ASSERT_TRUE(Store(session->id, 5, bytes.size(), {chunk, chunk, "end"}).ok());
  EXPECT_TRUE(session->Ask(Make(bytes.size())).has_make_array_from_host_buffer_response());
  EXPECT_TRUE(session->Ask("copy_to_host_buffer_request { array_handle: 5 host_buffer_handle: 6 }")
                  .has_copy_to_host_buffer_response());
  grpc::Status status;
  const auto [back, messages] = Lookup(session->id, 6, &status);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(messages, 3);

  grpc::ClientContext context, again;
  proxy::GrpcHostBufferDeleteRequest request;
  proxy::GrpcHostBufferDeleteResponse response;
  request.set_session_id(session->id);
  request.set_handle(6);
  EXPECT_TRUE(stub_->HostBufferDelete(&context, request, &response).ok());
  EXPECT_EQ(stub_->HostBufferDelete(&again, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(GrpcServiceTest, AnEarlyLookUpWaitsForTheRequestThatFetches) {
  const auto session = Open();
  ASSERT_TRUE(Store(session->id, 5, 3, {"abc"}).ok());
  session->Ask(Make(3));
  grpc::Status status;
  Lookup(session->id, 6, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  // Of two one waits, and the other's end tells that it does.
  std::promise<void> one_waits;
  std::atomic<int> refused = 0;
  const auto look = [&] {
    grpc::Status ended;
    const std::string bytes = Lookup(session->id, 6, &ended, /*early=*/true).first;
    if (ended.error_code() == grpc::StatusCode::NOT_FOUND && ++refused == 1) one_waits.set_value();
    return bytes;
  };
  auto one = std::async(std::launch::async, look), other = std::async(std::launch::async, look);
  one_waits.get_future().get();
  session->Ask("copy_to_host_buffer_request { array_handle: 5 host_buffer_handle: 6 }");
  EXPECT_EQ(one.get() + other.get(), "abc");
  EXPECT_EQ(refused, 1);
}

TEST_F(GrpcServiceTest, AnEmptyBufferComesInOneMessage) {
  const auto session = Open();
  ASSERT_TRUE(Store(session->id, 5, 0, {}).ok());
  session->Ask(Make(0));
  session->Ask("copy_to_host_buffer_request { array_handle: 5 host_buffer_handle: 6 }");
  grpc::Status status;
  EXPECT_EQ(Lookup(session->id, 6, &status), (std::pair<std::string, int>("", 1)));
  EXPECT_TRUE(status.ok());
}

TEST_F(GrpcServiceTest, AStoreNeverFailsItsArrayDoes) {
  const auto session = Open();
  EXPECT_TRUE(Store(session->id, 5, int64_t{1} << 60, {"abc"}).ok());
  EXPECT_TRUE(session->Ask(Make(3)).has_make_array_from_host_buffer_response());
  const auto answer = session->Ask("check_value_ready_request { value_handles: 5 }");
  EXPECT_EQ(answer.response_metadata().status().code(), tensorflow::error::DATA_LOSS);
}

TEST_F(GrpcServiceTest, OtherSessionsBuffersAreOutOfReach) {
  const auto session = Open();
  EXPECT_EQ(Store(session->id + 1, 5, 3, {"abc"}).error_code(), grpc::StatusCode::NOT_FOUND);
  grpc::Status status;
  Lookup(session->id + 1, 5, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  const auto other = Open();
  EXPECT_NE(other->id, session->id);
}

TEST_F(GrpcServiceTest, LargeProgramsComeAsOneMessage) {
  const auto session = Open();
  proxy::IfrtRequest request;
  request.mutable_compile_request()->mutable_program()->set_data(std::string(20 << 20, 'p'));
  EXPECT_EQ(session->Ask(std::move(request)).response_metadata().status().code(),
            tensorflow::error::UNIMPLEMENTED);
}

TEST_F(GrpcServiceTest, WrongVersionsOfAStreamAreRefused) {
  const auto session = Open(14, 0);
  proxy::IfrtResponse response;
  EXPECT_FALSE(session->stream->Read(&response));
  EXPECT_EQ(session->stream->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(GrpcServiceTest, ReadFromDiskIsNotServed) {
  grpc::ClientContext context;
  proxy::GrpcHostBufferReadFromDiskRequest request;
  proxy::GrpcHostBufferReadFromDiskResponse response;
  EXPECT_EQ(stub_->HostBufferReadFromDisk(&context, request, &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(GrpcServiceTest, AClientsEndFreesItsSession) {
  auto session = Open();
  auto other = Open();
  EXPECT_EQ(Sessions(), 2u);
  session->stream->WritesDone();
  EXPECT_EQ(session->stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  other->context.TryCancel();
  other->stream->Finish();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while ((Sessions() > 0 || service_.num_streams() > 0) &&
         std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(Sessions(), 0u);
  EXPECT_EQ(service_.num_streams(), 0u);
}

// Each request takes a turn of its own.
TEST_F(GrpcServiceTest, NoMoreLongRequestsAreHandledWhileTooMuchOfTheirWorkWaits) {
  constexpr size_t kCopies = 2000;
  const auto session = Open(), other = Open();
  session->Ask(Make(4));  // its bytes do not come
  uint64_t next = 6;
  for (int i = 0; i < 20; ++i) {
    proxy::IfrtRequest request;
    proxy::CopyArraysRequest& copy = *request.mutable_copy_arrays_request();
    copy.set_copy_semantics(xla::ifrt::proto::ARRAY_COPY_SEMANTICS_ALWAYS_COPY);
    for (size_t c = 0; c < kCopies; ++c) {
      copy.add_array_handles(5);
      copy.add_result_handles(next++);
    }
    session->Say(std::move(request));
  }
  size_t most = 0;
  for (int looks = 0; looks < 300 || most < kCopies; ++looks) {
    other->Ask("init_request {}");
    most = std::max(most, InLoop([&] { return cluster_.cluster().inspection().counts().nodes; }));
  }
  EXPECT_LE(most, 4 * kMostNodes + 2 * kCopies);
}

TEST_F(GrpcServiceTest, ShutdownAnswersWithUnavailableUntilTheClientLeaves) {
  const auto session = Open();
  auto shutdown = std::async(std::launch::async, [&] { service_.Shutdown(std::chrono::hours(1)); });
  // From some moment on every answer is the refusal.
  while (session->Ask("init_request {}").response_metadata().status().code() !=
         static_cast<int>(grpc::StatusCode::UNAVAILABLE))
    std::this_thread::yield();
  session->stream->WritesDone();
  proxy::IfrtResponse response;
  EXPECT_FALSE(session->stream->Read(&response));
  session->stream->Finish();
  shutdown.get();
  EXPECT_EQ(service_.num_streams(), 0u);
}

TEST_F(GrpcServiceTest, ShutdownEndsStreamsWithUnavailable) {
  const auto session = Open();
  service_.Shutdown(std::chrono::seconds(0));
  proxy::IfrtResponse response;
  EXPECT_FALSE(session->stream->Read(&response));
  EXPECT_EQ(session->stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// Where each call shows a token.
class TenantsTest : public GrpcServiceTest {
 protected:
  TenantsTest() : TenantsTest(MakeDirectory()) {}
  explicit TenantsTest(const std::string& directory)
      : GrpcServiceTest(Gate::Open(directory).value()), directory_(directory) {}
  ~TenantsTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  static std::string MakeDirectory() {
    std::string made = (std::filesystem::temp_directory_path() / "fairway-XXXXXX").string();
    if (::mkdtemp(made.data()) == nullptr) std::abort();
    return made;
  }
  std::string SecretOf(TokenRole role, const std::string& tenant) {
    return gate_->Create({.role = role, .tenant = tenant, .lifetime = std::chrono::hours(1)})
        .value()
        .secret;
  }
  static void Show(grpc::ClientContext& context, const std::string& secret) {
    if (!secret.empty()) context.AddMetadata("authorization", "Bearer " + secret);
  }
  // A session whose client says that it is of tenant blue.
  std::unique_ptr<Session> OpenWith(const std::string& secret) {
    auto session = std::make_unique<Session>();
    proxy::GrpcIfrtSessionMetadata metadata;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        R"(version { protocol_version: 25 ifrt_serdes_version_number: 3 }
           initialization_data { attributes { key: "tenant"
                                              value { string_value: "blue" } } })",
        &metadata));
    session->context.AddMetadata("ifrt-proxy-grpc-ifrt-session-metadata-bin",
                                 metadata.SerializeAsString());
    Show(session->context, secret);
    session->stream = stub_->IfrtSession(&session->context);
    session->id = session->Ask("init_request {}").init_response().session_id();
    return session;
  }
  // How each of the calls that go beside a session's stream ends: to store, look up, delete.
  std::vector<grpc::StatusCode> Beside(uint64_t session, const std::string& secret) {
    std::vector<grpc::StatusCode> out;
    {
      grpc::ClientContext context;
      Show(context, secret);
      proxy::GrpcHostBufferStoreMetadata metadata;
      metadata.set_session_id(session);
      metadata.set_handle(9);
      context.AddMetadata("ifrt-proxy-grpc-host-buffer-store-metadata-bin",
                          metadata.SerializeAsString());
      proxy::GrpcHostBufferStoreResponse response;
      const auto writer = stub_->HostBufferStore(&context, &response);
      writer->WritesDone();
      out.push_back(writer->Finish().error_code());
    }
    {
      grpc::ClientContext context;
      Show(context, secret);
      proxy::GrpcHostBufferLookupRequest request;
      request.set_session_id(session);
      request.set_handle(9);
      const auto reader = stub_->HostBufferLookup(&context, request);
      for (proxy::GrpcHostBufferLookupResponse chunk; reader->Read(&chunk);) {
      }
      out.push_back(reader->Finish().error_code());
    }
    grpc::ClientContext context;
    Show(context, secret);
    proxy::GrpcHostBufferDeleteRequest request;
    request.set_session_id(session);
    request.set_handle(9);
    proxy::GrpcHostBufferDeleteResponse response;
    out.push_back(stub_->HostBufferDelete(&context, request, &response).error_code());
    return out;
  }

  const std::string directory_;
};

TEST_F(TenantsTest, TheTokenSaysWhoseASessionIsAndWhoReachesIt) {
  using enum grpc::StatusCode;
  using ::testing::Each;
  const std::string red = SecretOf(TokenRole::kUser, "red");
  const auto session = OpenWith(red);
  ASSERT_NE(session->id, 0u);
  const bool is_red =
      InLoop([&] {
        size_t found = 0;
        for (uint64_t id = 0; id < 10; ++id)
          found += cluster_.cluster().sessions().TenantOf(SessionId(id)) == "red" ? 1 : 0;
        return found;
      }) == 1;
  EXPECT_TRUE(is_red);
  EXPECT_THAT(Beside(session->id, red), Each(OK));
  EXPECT_THAT(Beside(session->id, SecretOf(TokenRole::kUser, "red")), Each(OK));
  // As for a session that never was.
  EXPECT_THAT(Beside(session->id, SecretOf(TokenRole::kUser, "blue")), Each(NOT_FOUND));
  EXPECT_THAT(Beside(session->id + 1, red), Each(NOT_FOUND));
  for (const TokenRole role : {TokenRole::kAdmin, TokenRole::kOperator, TokenRole::kViewer})
    EXPECT_THAT(Beside(session->id, SecretOf(role, "")), Each(PERMISSION_DENIED));
  EXPECT_THAT(Beside(session->id, ""), Each(UNAUTHENTICATED));
}

}  // namespace
}  // namespace fairway
