// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/grpc_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <optional>
#include <utility>

#include <absl/synchronization/mutex.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include "controller/rpc/reflection.h"
#include "controller/rpc/rpc_server.h"

namespace fairway {
namespace {

// A program comes as one message; bulk data comes in smaller chunks.
constexpr int kMaxReceiveBytes = 512 << 20;

// A connection that was silent for a minute is pinged, and ends if it does not answer within two.
// Otherwise a client whose host is gone without a word would keep its session, and the memory of
// its arrays, for ever. The time is long because gRPC's threads in the client's process answer: a
// process that a debugger stops for a minute, or that its machine makes wait, is only slow. gRPC
// also gives the time to the kernel, as the limit for data that is sent and not acknowledged.
constexpr int kPingAfterMs = 60 * 1000;
constexpr int kPingTimeoutMs = 120 * 1000;
// Clients may ping this often, also between calls; a client that pings more often is disconnected.
constexpr int kMinPingIntervalMs = 5 * 1000;
constexpr int kLookaheadBytes = 1 << 20;
constexpr int kFrameBytes = 1 << 20;  // of HTTP/2: fewer frames take less time
// Calls of a connection at a time; gRPC's clients wait with further ones. `fairway gateway` has all
// its clients' calls on one, among them 64 look-ups of each session that may wait.
constexpr int kMostCalls = 2048;

// With TLS, from the connection to the client's first frame of HTTP/2. gRPC would wait two minutes.
constexpr int kHandshakeMs = 5 * 1000;

// What `tls` has at the time of each connection. gRPC's C++ interface has no such credentials; its
// C interface does.
class ReloadedCredentials final : public grpc::ServerCredentials {
 public:
  explicit ReloadedCredentials(std::shared_ptr<TlsIdentity> tls) : tls_(std::move(tls)) {
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE, Fetch, this));
  }
  ~ReloadedCredentials() override { grpc_server_credentials_release(credentials_); }
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // Of the one port that uses these credentials; gRPC calls it for one connection at a time.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* credentials, grpc_ssl_server_certificate_config** config) {
    auto* const self = static_cast<ReloadedCredentials*>(credentials);
    const TlsTexts texts = self->tls_->Texts();
    if (self->fetched_ == texts.change) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    self->fetched_ = texts.change;
    // A worker that joins knows the CA's hash only, so it is shown the CA, too (FetchAuthorities).
    const std::string shown = texts.certificates + texts.authorities;
    const grpc_ssl_pem_key_cert_pair pair{texts.key.c_str(), shown.c_str()};
    // gRPC wants CAs, though clients are asked for no certificate.
    *config = grpc_ssl_server_certificate_config_create(texts.authorities.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<TlsIdentity> tls_;
  grpc_server_credentials* credentials_;
  std::optional<uint64_t> fetched_;  // TlsTexts::change of what gRPC has
};

using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

// Passes a connected socket to gRPC.
void Give(Acceptor& acceptor, int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kPingTimeoutMs, sizeof kPingTimeoutMs);
  Acceptor::NewConnectionParameters connection;
  connection.fd = fd;
  acceptor.HandleNewConnection(&connection);
}

// grpc.health.v1.Health/Check. Nobody is asked for a token, so no message is read, as gRPC's own
// service would: whichever service a client asks for, it hears of the server. Its health cannot be
// watched, since whoever watches stays.
class HealthCheck final : public RpcCall {
 public:
  explicit HealthCheck(bool serving) {
    // HealthCheckResponse.status: SERVING or NOT_SERVING
    const grpc::Slice answer(serving ? "\x08\x01" : "\x08\x02");
    StartWriteAndFinish(grpc::ByteBuffer(&answer, 1), absl::OkStatus());
  }
  void OnDone() override { delete this; }
};

class Server final : public GrpcServer {
 public:
  Server(std::shared_ptr<Front> front, RpcMethods methods, std::shared_ptr<TlsIdentity> tls)
      : secure_(tls != nullptr),
        credentials_(secure_ ? std::make_shared<ReloadedCredentials>(std::move(tls))
                             : grpc::InsecureServerCredentials()),
        rpcs_(WithOwn(std::move(methods))),
        front_(std::move(front)) {}
  ~Server() override { Stop({}); }

  // Called once.
  absl::Status Start() {
    grpc::ServerBuilder builder;
    if (secure_) builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials_);
    SetLimits(&builder);
    rpcs_.AddTo(&builder);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC cannot start its server");
    rpcs_.Start();
    front_->Start([this](int fd) { Give(*acceptor_, fd); });
    return absl::OkStatus();
  }
  int port() const override { return front_->port(); }
  void SetServing(bool serving) override { serving_ = serving; }
  void Shutdown(std::chrono::milliseconds grace) override { Stop(grace); }

 private:
  static void SetLimits(grpc::ServerBuilder* builder);
  RpcMethods WithOwn(RpcMethods methods) {
    methods["grpc.health.v1.Health.Check"] = [this](grpc::ServerContextBase*) {
      return new HealthCheck(serving_);
    };
    if (!secure_) AddReflection(&methods);  // it asks nobody for a token
    return methods;
  }
  void Stop(std::chrono::milliseconds grace) {
    front_->Stop();  // it gives connections to acceptor_
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + grace);
    rpcs_.Stop();
    server_->Wait();
    server_ = nullptr;
  }

  const bool secure_;
  std::atomic<bool> serving_{true};
  const std::shared_ptr<grpc::ServerCredentials> credentials_;  // which the server calls
  RpcServer rpcs_;
  std::unique_ptr<grpc::Server> server_;  // nullptr: not started, or stopped
  std::unique_ptr<Acceptor> acceptor_;
  const std::shared_ptr<Front> front_;
};

void Server::SetLimits(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kMaxReceiveBytes);
  // A message of some kilobytes could become one of any size.
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingAfterMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kMinPingIntervalMs);
  // What a client has sent and the controller does not read yet is in its memory, and counts for
  // nobody. gRPC would let a fast client send up to 16 MiB ahead.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCalls);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(std::shared_ptr<Front> front,
                                                              RpcMethods methods,
                                                              std::shared_ptr<TlsIdentity> tls) {
  // gRPC's own lines have another form, and report errors that we report ourselves.
  gpr_set_log_function([](gpr_log_func_args* args) { spdlog::debug("gRPC: {}", args->message); });
  // Debian's Abseil looks for cycles of locks whenever gRPC takes one, under one lock for all.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  auto server = std::make_unique<Server>(std::move(front), std::move(methods), std::move(tls));
  FAIRWAY_RETURN_IF_ERROR(server->Start());
  return server;
}

}  // namespace fairway
