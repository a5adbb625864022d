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
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>
#include <spdlog/spdlog.h>

namespace fairway {
namespace {

// Programs of 20 MB exist; bulk data comes in smaller chunks.
constexpr int kMaxReceiveBytes = 256 << 20;

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

// Takes gRPC's reflection away, which is on in every server of a process that has it.
class WithoutReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) {
      return dynamic_cast<grpc::reflection::ProtoServerReflectionPlugin*>(plugin.get()) != nullptr;
    });
  }
};

// grpc.health.v1, and the end of calls of methods that no service has. Nobody is asked for a token,
// so no message is read, as gRPC's own service would: whichever service a client asks for, it hears
// of the server. Its health cannot be watched, since whoever watches stays.
class Health final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (context->method() == "/grpc.health.v1.Health/Check") return new Answered(serving_);
    return new Answered(
        grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "there is no method " + context->method()));
  }
  void SetServing(bool serving) { serving_ = serving; }

 private:
  class Answered final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Answered(bool serving)
        // HealthCheckResponse.status: SERVING or NOT_SERVING
        : slice_(serving ? "\x08\x01" : "\x08\x02"), answer_(&slice_, 1) {
      StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
    }
    explicit Answered(const grpc::Status& status) { Finish(status); }
    void OnDone() override { delete this; }

   private:
    const grpc::Slice slice_;
    const grpc::ByteBuffer answer_;
  };

  std::atomic<bool> serving_{true};
};

class Server final : public GrpcServer {
 public:
  Server(std::unique_ptr<Health> health, std::unique_ptr<grpc::Server> server,
         std::shared_ptr<grpc::ServerCredentials> credentials, std::unique_ptr<Acceptor> acceptor,
         std::shared_ptr<Front> front)
      : credentials_(std::move(credentials)),
        health_(std::move(health)),
        server_(std::move(server)),
        acceptor_(std::move(acceptor)),
        front_(std::move(front)) {
    front_->Start([this](int fd) { Give(*acceptor_, fd); });
  }
  ~Server() override { front_->Stop(); }  // it gives connections to acceptor_

  int port() const override { return front_->port(); }
  void SetServing(bool serving) override { health_->SetServing(serving); }
  void Shutdown(std::chrono::milliseconds grace) override {
    front_->Stop();
    server_->Shutdown(std::chrono::system_clock::now() + grace);
    server_->Wait();
  }

 private:
  const std::shared_ptr<grpc::ServerCredentials> credentials_;  // which the server calls
  const std::unique_ptr<Health> health_;                        // the same
  const std::unique_ptr<grpc::Server> server_;
  const std::unique_ptr<Acceptor> acceptor_;
  const std::shared_ptr<Front> front_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    std::shared_ptr<Front> front, const std::vector<Registration>& registrations,
    std::shared_ptr<TlsIdentity> tls) {
  // gRPC's own lines have another form, and report errors that we report ourselves.
  gpr_set_log_function([](gpr_log_func_args* args) { spdlog::debug("gRPC: {}", args->message); });
  // Debian's Abseil looks for cycles of locks whenever gRPC takes one, under one lock for all.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  if (tls != nullptr) {
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    // It asks nobody for a token.
    builder.SetOption(std::make_unique<WithoutReflection>());
  }
  const auto credentials = tls == nullptr ? grpc::InsecureServerCredentials()
                                          : std::make_shared<ReloadedCredentials>(std::move(tls));
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingAfterMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  // What a client has sent and the controller does not read yet is in its memory, and counts for
  // nobody. gRPC would let a fast client send up to 16 MiB ahead.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCalls);
  for (const Registration& registration : registrations) registration(&builder);
  auto health = std::make_unique<Health>();
  builder.RegisterCallbackGenericService(health.get());
  auto server = builder.BuildAndStart();
  if (server == nullptr) return absl::InternalError("gRPC cannot start its server");
  return std::make_unique<Server>(std::move(health), std::move(server), credentials,
                                  std::move(acceptor), std::move(front));
}

}  // namespace fairway
