// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/rpc_server.h"

#include <atomic>
#include <future>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "controller/rpc/reflection.h"
#include "controller/rpc/server_for_test.h"
#include "fairway/v1/admin.grpc.pb.h"
#include "grpc/reflection.pb.h"

namespace fairway {
namespace {

namespace reflection = grpc::reflection::v1alpha;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What has happened to the calls of a test.
struct Seen {
  std::atomic<std::thread::id> read_by;
  std::atomic<int> cancelled = 0;
  int reads = 0;  // when it is done
  std::promise<void> done;
};

// Answers each message with itself. It stops reading at "stop", and ends when it is cancelled; it
// reads on after its end at "over".
class Echo final : public RpcCall {
 public:
  explicit Echo(Seen* seen) : seen_(seen) { StartRead(&line_); }
  void OnReadDone(bool ok) override {
    seen_->read_by = std::this_thread::get_id();
    ++reads_;
    if (!ok) return Finish(absl::OutOfRangeError("no message"));
    if (line_.line() == "over") {
      Finish(absl::OkStatus());
      return StartRead(&line_);
    }
    StartWrite(line_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(absl::CancelledError());
    if (line_.line() != "stop") StartRead(&line_);
  }
  void OnCancel() override {
    if (seen_->cancelled.fetch_add(1) == 0 && line_.line() == "stop")
      Finish(absl::CancelledError());
  }
  void OnDone() override {
    seen_->reads = reads_;
    seen_->done.set_value();
    delete this;
  }

 private:
  Seen* const seen_;
  int reads_ = 0;
  v1::LogLine line_;
};

class RpcServerTest : public ::testing::Test {
 protected:
  struct Client {
    Client(const std::shared_ptr<grpc::Channel>& channel, const std::string& path)
        : method(path.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING) {
      using Factory = grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, v1::LogLine>;
      stream.reset(Factory::Create(channel.get(), method, &context));
    }
    bool Write(const std::string& bytes) {
      const grpc::Slice slice(bytes);
      return stream->Write(grpc::ByteBuffer(&slice, 1));
    }
    bool Say(const std::string& text) {
      v1::LogLine message;
      message.set_line(text);
      return Write(message.SerializeAsString());
    }
    std::string Hear() {
      v1::LogLine message;
      return stream->Read(&message) ? message.line() : "the end";
    }
    grpc::internal::RpcMethod method;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, v1::LogLine>> stream;
  };
  std::unique_ptr<Client> Begin(const std::string& path = "/test.Echo/Echo") {
    return std::make_unique<Client>(channel_, path);
  }
  RpcMethods Methods() {
    RpcMethods methods{
        {"test.Echo.Echo", [this](grpc::ServerContextBase*) { return new Echo(&seen_); }}};
    methods["fairway.v1.Admin.GetLogs"] = methods["test.Echo.Echo"];
    AddReflection(&methods);
    return methods;
  }

  Seen seen_;
  ServerForTest server_{Methods()};
  const std::shared_ptr<grpc::Channel> channel_ = grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(server_.port()), grpc::InsecureChannelCredentials());
};

TEST_F(RpcServerTest, MessagesComeInOrderAndAreAnswered) {
  const auto client = Begin();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(client->Say(std::to_string(i)));
    ASSERT_EQ(client->Hear(), std::to_string(i));
  }
  client->stream->WritesDone();
  EXPECT_EQ(client->Hear(), "the end");
  const grpc::Status status = client->stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(status.error_message(), "no message");
  seen_.done.get_future().wait();
  EXPECT_EQ(seen_.cancelled, 0);
}

// Otherwise one client's large messages would hold up all others' calls.
TEST_F(RpcServerTest, ALongMessageIsParsedOffTheThreadThatServesAll) {
  const auto client = Begin();
  std::vector<std::thread::id> readers;
  for (const size_t bytes : {size_t{10}, size_t{2} << 20, size_t{10}}) {
    ASSERT_TRUE(client->Say(std::string(bytes, 'x')));
    ASSERT_EQ(client->Hear().size(), bytes);
    readers.push_back(seen_.read_by);
  }
  EXPECT_EQ(readers[0], readers[2]);
  EXPECT_NE(readers[0], readers[1]);
}

TEST_F(RpcServerTest, AMessageThatDoesNotParseIsTheLast) {
  const auto client = Begin();
  ASSERT_TRUE(client->Write("\x0a\x7f"));  // a field that is cut short
  EXPECT_EQ(client->Hear(), "the end");
  EXPECT_EQ(client->stream->Finish().error_code(), grpc::StatusCode::OUT_OF_RANGE);
}

TEST_F(RpcServerTest, AReadThatIsStartedAfterTheEndDoesNothing) {
  const auto client = Begin();
  ASSERT_TRUE(client->Say("over"));
  EXPECT_EQ(client->Hear(), "the end");
  EXPECT_TRUE(client->stream->Finish().ok());
  seen_.done.get_future().wait();
  EXPECT_EQ(seen_.reads, 1);
}

TEST_F(RpcServerTest, ACallHearsThatItsClientHasGone) {
  auto client = Begin();
  ASSERT_TRUE(client->Say("stop"));
  ASSERT_EQ(client->Hear(), "stop");
  client->context.TryCancel();
  EXPECT_EQ(client->stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  seen_.done.get_future().wait();
  EXPECT_EQ(seen_.cancelled, 1);
}

TEST_F(RpcServerTest, ShutdownEndsTheCallsThatAreOpen) {
  const auto client = Begin();
  ASSERT_TRUE(client->Say("stop"));
  ASSERT_EQ(client->Hear(), "stop");
  server_.Shutdown({});
  EXPECT_EQ(seen_.done.get_future().wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_FALSE(client->stream->Finish().ok());
}

TEST_F(RpcServerTest, WhoCallsAMethodThatThereIsNotHearsIt) {
  const auto client = Begin("/test.Echo/Ech");
  EXPECT_EQ(client->Hear(), "the end");
  const grpc::Status status = client->stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(status.error_message(), "there is no method /test.Echo/Ech");
}

TEST_F(RpcServerTest, ToolsHearWhichServicesThereAreAndOfWhichTypes) {
  const grpc::internal::RpcMethod method(
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      grpc::internal::RpcMethod::BIDI_STREAMING);
  using Request = reflection::ServerReflectionRequest;
  using Response = reflection::ServerReflectionResponse;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<Request, Response>> stream(
      grpc::internal::ClientReaderWriterFactory<Request, Response>::Create(channel_.get(), method,
                                                                           &context));
  const auto ask = [&](auto set) {
    Request request;
    set(&request);
    EXPECT_TRUE(stream->Write(request));
    Response response;
    EXPECT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.original_request().SerializeAsString(), request.SerializeAsString());
    return response;
  };
  const Response listed = ask([](Request* request) { request->set_list_services(""); });
  std::vector<std::string> names;
  for (const auto& service : listed.list_services_response().service())
    names.push_back(service.name());
  EXPECT_THAT(names, ElementsAre("fairway.v1.Admin", "grpc.reflection.v1alpha.ServerReflection"));
  const auto file = [](const Response& response) {
    return response.file_descriptor_response().file_descriptor_proto_size() == 0
               ? response.error_response().error_message()
               : response.file_descriptor_response().file_descriptor_proto(0);
  };
  EXPECT_THAT(file(ask([](Request* r) { r->set_file_containing_symbol("fairway.v1.LogLine"); })),
              HasSubstr("GetLogs"));
  EXPECT_THAT(file(ask([](Request* r) { r->set_file_by_filename("fairway/v1/admin.proto"); })),
              HasSubstr("GetLogs"));
  EXPECT_THAT(file(ask([](Request* r) { r->set_file_by_filename("none.proto"); })),
              HasSubstr("no such file"));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

}  // namespace
}  // namespace fairway
