// SPDX-License-Identifier: Apache-2.0
// null_front_door --devices=N --plugin=PATH: the IFRT proxy protocol over a server of gRPC's
// callback API, as gRPC's users write it; null_session.h answers at once. Prints its port on the
// first line of its output. It ends when its input ends.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <absl/synchronization/mutex.h>
#include <grpcpp/grpcpp.h>

#include "base/config.h"
#include "base/log.h"
#include "bench/null_session.h"
#include "controller/ifrt/version.h"
#include "ifrt/service.grpc.pb.h"
#include "worker/compiler/pjrt_compiler.h"

namespace fairway {
namespace {

namespace proxy = xla::ifrt::proxy;

constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr int kMaxReceiveBytes = 512 << 20;

// Answers each request within gRPC's callback, except that values become ready once no upload is
// under way. Destroys itself in OnDone.
class NullStream final : public grpc::ServerBidiReactor<proxy::IfrtRequest, proxy::IfrtResponse> {
 public:
  NullStream(uint64_t id, NullServer* server) : id_(id), server_(server), session_(id, server) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End();
    std::shared_ptr<proxy::IfrtResponse> response = session_.Handle(request_);
    if (request_.has_check_value_ready_request()) {
      server_->AfterUploads(id_, [this, response] { Send(response); });
    } else {
      Send(std::move(response));
    }
    StartRead(&request_);
  }
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    outbox_.pop_front();
    if (!ok) outbox_.clear();
    if (!outbox_.empty()) {
      StartWrite(outbox_.front().get());
    } else if (ending_) {
      Finish(grpc::Status::OK);
    }
  }
  void OnDone() override { delete this; }

 private:
  void Send(std::shared_ptr<proxy::IfrtResponse> response) {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    outbox_.push_back(std::move(response));
    if (outbox_.size() == 1) StartWrite(outbox_.front().get());
  }
  void End() {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    if (outbox_.empty()) Finish(grpc::Status::OK);
  }

  const uint64_t id_;
  NullServer* const server_;
  proxy::IfrtRequest request_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<proxy::IfrtResponse>> outbox_;  // the first is being written
  bool ending_ = false;
  NullSession session_;  // the last member: once it is gone, no upload is answered here
};

// Receives one host buffer and drops it. Destroys itself in OnDone.
class NullStore final : public grpc::ServerReadReactor<proxy::GrpcHostBufferStoreRequest> {
 public:
  NullStore(grpc::CallbackServerContext* context, NullServer* server) : server_(server) {
    const auto& headers = context->client_metadata();
    const auto found = headers.find("ifrt-proxy-grpc-host-buffer-store-metadata-bin");
    if (found == headers.end() ||
        !metadata_.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()))) {
      Finish({grpc::StatusCode::INVALID_ARGUMENT, "no metadata of a host buffer"});
    } else {
      StartRead(&chunk_);
    }
  }
  void OnReadDone(bool ok) override {
    if (ok) return StartRead(&chunk_);
    server_->UploadArrived(metadata_.session_id(), metadata_.handle());
    Finish(grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  NullServer* const server_;
  proxy::GrpcHostBufferStoreMetadata metadata_;
  proxy::GrpcHostBufferStoreRequest chunk_;
};

// Sends zeros. Destroys itself in OnDone.
class NullLookup final : public grpc::ServerWriteReactor<proxy::GrpcHostBufferLookupResponse> {
 public:
  explicit NullLookup(std::optional<int64_t> bytes) : left_(bytes.value_or(0)) {
    if (bytes.has_value()) {
      Next();
    } else {
      Finish({grpc::StatusCode::NOT_FOUND, "no such host buffer"});
    }
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    Next();
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    const size_t count = std::min<size_t>(left_, kChunkBytes);
    left_ -= static_cast<int64_t>(count);
    if (chunk_.data().size() != count) chunk_.set_data(std::string(count, '\0'));
    if (left_ > 0) return StartWrite(&chunk_);
    StartWriteAndFinish(&chunk_, {}, grpc::Status::OK);
  }

  int64_t left_;
  proxy::GrpcHostBufferLookupResponse chunk_;
};

class NullService final : public proxy::GrpcIfrtService::CallbackService {
 public:
  explicit NullService(NullServer* server) : server_(server) {}

  grpc::ServerUnaryReactor* GetVersion(grpc::CallbackServerContext* context,
                                       const proxy::GrpcGetVersionRequest* request,
                                       proxy::GrpcGetVersionResponse* response) override {
    auto* reactor = context->DefaultReactor();
    const auto version = ChooseVersion(request->min_version(), request->max_version());
    if (version.ok()) *response->mutable_version() = *version;
    reactor->Finish(
        version.ok() ? grpc::Status::OK
                     : grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, Text(version.status())));
    return reactor;
  }
  grpc::ServerBidiReactor<proxy::IfrtRequest, proxy::IfrtResponse>* IfrtSession(
      grpc::CallbackServerContext*) override {
    return new NullStream(next_session_++, server_);
  }
  grpc::ServerReadReactor<proxy::GrpcHostBufferStoreRequest>* HostBufferStore(
      grpc::CallbackServerContext* context, proxy::GrpcHostBufferStoreResponse*) override {
    return new NullStore(context, server_);
  }
  grpc::ServerWriteReactor<proxy::GrpcHostBufferLookupResponse>* HostBufferLookup(
      grpc::CallbackServerContext*, const proxy::GrpcHostBufferLookupRequest* request) override {
    return new NullLookup(server_->HostBuffer(request->session_id(), request->handle()));
  }
  grpc::ServerUnaryReactor* HostBufferDelete(grpc::CallbackServerContext* context,
                                             const proxy::GrpcHostBufferDeleteRequest* request,
                                             proxy::GrpcHostBufferDeleteResponse*) override {
    server_->DeleteHostBuffer(request->session_id(), request->handle());
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  NullServer* const server_;
  std::atomic<uint64_t> next_session_{1};
};

int Main(int argc, char** argv) {
  PjrtConfig pjrt;
  pjrt.num_devices = 8;
  Config config("null_front_door", "Answers JAX and does nothing: the floor of the front door.");
  config.Flag("devices", &pjrt.num_devices, "Devices to show");
  config.Flag("plugin", &pjrt.plugin_path, "Path of the PJRT plugin whose compiler to ask");
  config.Variable("plugin", "FAIRWAY_PJRT_PLUGIN");
  if (auto code = config.Parse(argc, argv)) return *code;
  InitLogging({.component = "null", .island = {}, .worker = {}}, "warn");
  ::setenv("XLA_FLAGS", XlaFlags(pjrt, "").c_str(), 1);
  auto compiler = MakePjrtCompiler(pjrt);
  if (!compiler.ok()) {
    spdlog::error("{}", Text(compiler.status()));
    return 1;
  }
  NullServer server(pjrt.num_devices, *std::move(compiler));
  NullService service(&server);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);  // as in GrpcServer::Start
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  builder.RegisterService(&service);
  const auto grpc = builder.BuildAndStart();
  if (grpc == nullptr) {
    spdlog::error("gRPC cannot start its server");
    return 1;
  }
  std::printf("%d\n", port);
  std::fflush(stdout);
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  grpc->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  std::fflush(stdout);
  ::_exit(0);  // the plugin's threads do not end in an orderly way
}

}  // namespace
}  // namespace fairway

int main(int argc, char** argv) { return fairway::Main(argc, argv); }
