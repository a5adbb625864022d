// SPDX-License-Identifier: Apache-2.0
#include "client/cli/gateway.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "base/config.h"
#include "base/host.h"
#include "client/cli/gateway_calls.h"
#include "client/cli/gateway_health.h"
#include "client/cli/process.h"
#include "client/cli/reach.h"
#include "client/cpp/credentials.h"
#include "identity/plain_text.h"
#include "identity/tls_identity.h"
#include "identity/tls_probe.h"

namespace fairway {
namespace {

constexpr int kExitFailed = 1;
constexpr std::string_view kUnix = "unix:";
constexpr std::chrono::seconds kConnectTimeout{10};
constexpr std::chrono::seconds kProbeTimeout{5};
// As the SDK's connections (client/cpp/connection.cc).
constexpr int kPingAfterMs = 60 * 1000;
constexpr int kPingTimeoutMs = 120 * 1000;

struct GatewayFlags {
  Reach reach;
  std::string listen;
  std::string http_bind;
  TlsFiles http;  // what that port shows; without a CA
  int life_fd = -1;
};

absl::Status Failed(std::string_view what, const std::string& path) {
  return Error(absl::StatusCode::kUnavailable, "cannot {} {}: {}", what, path,
               std::strerror(errno));
}

// A socket at `path` that its owner alone can connect to. One that a gateway left behind, and that
// nobody listens on, is replaced.
absl::StatusOr<OwnedFd> Listen(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return InvalidArgument("--listen: {} is longer than {} characters", path,
                           sizeof address.sun_path - 1);
  path.copy(address.sun_path, path.size());
  const auto* const any = reinterpret_cast<const sockaddr*>(&address);
  OwnedFd out(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto bind = [&] {
    const mode_t before = ::umask(0177);
    const int result = ::bind(out.get(), any, sizeof address);
    ::umask(before);
    return result == 0;
  };
  bool bound = bind();
  if (!bound && errno == EADDRINUSE) {
    const OwnedFd other(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const bool left = ::connect(other.get(), any, sizeof address) != 0 && errno == ECONNREFUSED;
    errno = EADDRINUSE;
    if (left) bound = ::unlink(path.c_str()) == 0 && bind();
  }
  if (!bound || ::listen(out.get(), SOMAXCONN) != 0) return Failed("listen on", path);
  return out;
}

// A channel that has shaken hands with the controller once.
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& controller,
                                                       const client::ClientTexts& texts) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::string address, ControllerAddress(controller));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingAfterMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  auto channel = grpc::CreateCustomChannel(
      address, client::ControllerCredentials(texts.authorities, texts.token), arguments);
  const auto deadline = std::chrono::system_clock::now() + kConnectTimeout;
  for (auto state = channel->GetState(true); state != GRPC_CHANNEL_READY;
       state = channel->GetState(true)) {
    const bool failed = state == GRPC_CHANNEL_TRANSIENT_FAILURE;
    if (!failed && channel->WaitForStateChange(state, deadline)) continue;
    FAIRWAY_RETURN_IF_ERROR(Annotate(ProbeController(address, texts.authorities, kProbeTimeout),
                                     fmt::format("connecting to {}", address)));
    return Error(absl::StatusCode::kUnavailable, "no controller answers at {}", address);
  }
  return channel;
}

bool OfThisUser(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

// Serves until `signals` has one, or `life_fd` ends.
void Serve(int listener, int signals, int life_fd, GatewayCalls& calls) {
  pollfd waited[] = {{listener, POLLIN, 0}, {signals, POLLIN, 0}, {life_fd, POLLIN, 0}};
  for (;;) {
    if (::poll(waited, 3, -1) < 0) continue;
    if (waited[1].revents != 0) return;
    char byte;
    if (waited[2].revents != 0 && ::read(life_fd, &byte, 1) <= 0) return;
    if (waited[0].revents == 0) continue;
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0 && OfThisUser(fd)) {
      calls.Serve(fd);
    } else if (fd >= 0) {
      ::close(fd);
    } else if (errno == EMFILE || errno == ENFILE) {
      ::poll(&waited[1], 2, 100);  // until others have closed theirs
    }
  }
}

// Returns only errors.
absl::Status Run(const GatewayFlags& flags) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before gRPC has threads
  const OwnedFd signals(::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  std::signal(SIGPIPE, SIG_IGN);
  RaiseOpenFilesLimit();
  const Reach& reach = flags.reach;
  FAIRWAY_ASSIGN_OR_RETURN(const client::ClientTexts texts,
                           client::ReadClientTexts(reach.tls_ca, reach.token_file, /*flags=*/true));
  FAIRWAY_ASSIGN_OR_RETURN(auto channel, Connect(reach.controller, texts));
  const std::string path = flags.listen.substr(kUnix.size());
  FAIRWAY_ASSIGN_OR_RETURN(const OwnedFd listener, Listen(path));
  GatewayCalls calls(channel, !texts.token.empty());
  std::string health;
  if (!flags.http_bind.empty()) {
    std::shared_ptr<TlsIdentity> tls;
    if (!flags.http.certificate.empty()) {
      FAIRWAY_ASSIGN_OR_RETURN(tls, TlsIdentity::Load(flags.http, /*role=*/std::nullopt));
    }
    FAIRWAY_ASSIGN_OR_RETURN(
        health, ServeGatewayHealth(flags.http_bind, std::move(channel), std::move(tls)));
    health = "; health at " + health;
  }
  fmt::print("listening on {}{}\n", flags.listen, health);
  std::fflush(stdout);
  Serve(listener.get(), signals.get(), flags.life_fd, calls);
  ::unlink(path.c_str());
  // gRPC 1.51 may hang when it ends. The kernel closes the connections, and both ends see that.
  std::_Exit(0);
}

}  // namespace

int RunGateway(int argc, const char* const* argv) {
  GatewayFlags flags;
  Config config("fairway gateway",
                "Lets clients of this user on this host, which speak plain text, use a controller "
                "that speaks TLS, as the owner of --token-file. Runs until it is ended.");
  DeclareReach(config, &flags.reach);
  config.Flag("listen", &flags.listen,
              "unix:PATH, a new socket; a client's address is then grpc://unix:PATH");
  config.Flag("http-bind", &flags.http_bind,
              "host:port where /healthz, /readyz and gRPC's health service answer anybody, for "
              "probes; port "
              "0: any free one; of this host only, or with --http-certificate. Default: nowhere");
  config.Flag("http-certificate", &flags.http.certificate,
              "PEM file of the certificate that --http-bind shows by TLS; of any CA");
  config.Flag("http-key", &flags.http.key, "Its private key, if it is not in the same file");
  config.Flag("life-fd", &flags.life_fd, "Read end of a pipe; its end-of-file ends this process");
  config.Check([&]() -> absl::Status {
    if (!flags.listen.starts_with(kUnix) || flags.listen.size() == kUnix.size())
      return InvalidArgument("--listen is '{}', not unix:PATH", flags.listen);
    if (flags.reach.tls_ca.empty()) return InvalidArgument("--tls-ca is missing");
    if (!flags.http_bind.empty() && !SplitHostPort(flags.http_bind).ok()) {
      return InvalidArgument("--http-bind is '{}', not HOST:PORT; port 0: any free one",
                             flags.http_bind);
    }
    const bool shows = !flags.http.certificate.empty();
    if ((shows && flags.http_bind.empty()) || (!shows && !flags.http.key.empty()))
      return InvalidArgument("--http-bind, --http-certificate and --http-key belong together");
    if (!flags.http_bind.empty() && !shows &&
        !CheckPlainBind(SplitHostPort(flags.http_bind)->first).ok()) {
      return InvalidArgument(
          "--http-bind is '{}', which other hosts can reach: give the certificate that it is to "
          "show there by --http-certificate and --http-key, or an address of this host only, as "
          "127.0.0.1:0",
          flags.http_bind);
    }
    return absl::OkStatus();
  });
  if (const auto code = config.Parse(argc, argv)) return *code;
  fmt::print(stderr, "fairway gateway: {}\n", Text(Run(flags)));
  return kExitFailed;
}

}  // namespace fairway
