// SPDX-License-Identifier: Apache-2.0
#include "controller/settings.h"

#include <utility>

#include "base/host.h"
#include "base/log.h"
#include "identity/certificates.h"
#include "identity/plain_text.h"

namespace fairway {
namespace {

constexpr char kDescription[] = "Drives the devices of all islands on behalf of all clients.";
constexpr int kMostLaunchesAhead = 1024;

void DeclareFlags(Config& config, ControllerFlags* flags) {
  config.File("controller");
  config.Flag("bind", &flags->bind,
              "IP address to listen on; one that other hosts reach takes certificates (--tls-ca)");
  config.Flag("port", &flags->port,
              "gRPC: JAX and native clients, administration; 0: any free port");
  config.Flag("http-port", &flags->http_port,
              "HTTP: /healthz, /readyz, /metrics, and gRPC's health service; 0: any free port");
  config.Flag(
      "http-name", &flags->http_names,
      "A name or address by which HTTP clients ask for this host, besides its own name and the "
      "addresses at which it listens; web pages of others get no answer");
  config.Flag("link-port", &flags->link_port, "Where workers connect; 0: any free port");
  config.Flag("data-port", &flags->data_port, "Where executors pull uploads; 0: any free port");
  config.Flag("executor-deadline", &flags->executor_deadline,
              "Silence after which an executor is declared lost");
  config.Flag("link-grace", &flags->link_grace,
              "Time in which the broken connection of an executor may come back before it is "
              "declared lost; 0: none");
  config.Flag("relay-fan-out", &flags->relay_fan_out,
              "Most connections over which the log of an island is sent from the controller and "
              "from each of the workers' relays (--relay-bind), 2 to 1024; 0: the controller sends "
              "it to each executor");
  config.Flag("island-timeout", &flags->island_timeout,
              "Time without executors after which work that waits for an island fails");
  config.Flag("forget-after", &flags->forget_after,
              "Time without any of its workers after which an island that no session knows is "
              "forgotten, and without one of them after which another takes its place; 0: never");
  config.Flag(
      "callback-limit", &flags->callback_limit,
      "Time that a function of a client may take when a program on devices calls it; 0: any");
  config.Flag(
      "launches-ahead", &flags->launches_ahead,
      "Gangs of a device that may be launched and not ended, 1 to 1024, and as many programs "
      "on that device alone: more keep it busy when programs are short, and make a neighbour "
      "wait longer for its turn");
  config.BytesFlag(
      "transit-memory", &flags->transit_memory,
      "Host memory for bytes on their way to and from clients; beyond it, and where one "
      "session's uploads have more than they leave to others, they go to unlinked "
      "files, which lie in the host's page cache as long as it has room");
  config.BytesFlag(
      "record-memory", &flags->record_memory,
      "Host memory for the records of all sessions' arrays and unfinished work, about; one "
      "session's may hold as much as is left to others");
  config.Flag("spool-directory", &flags->spool_directory, "Where those files are");
  config.Flag("log-level", &flags->log_level, "trace, debug, info, warn or error");
  config.Flag("log-dir", &flags->log_dir,
              "Where NAME.log of this cluster's processes are, for `fairway logs`");
  config.Flag("data-directory", &flags->data_directory,
              "Where the tokens of clients are kept, by one controller at one time; with --tls-ca");
  DeclareTlsFlags(config, &flags->tls);
  config.Flag("tls-ca-key", &flags->tls_ca_key,
              "PEM file of the key of the first CA in --tls-ca: workers may join by a token "
              "(`fairway token create --worker`), and the controller renews its own certificate; "
              "without it neither");
  config.Flag("worker-certificate-life", &flags->worker_certificate_life,
              "How long the certificates of workers are valid that this controller signs; a worker "
              "renews its own when two thirds have passed");
  config.Flag("life-fd", &flags->life_fd, "Read end of a pipe; its end-of-file ends this process");
  config.Flag("notify-fd", &flags->notify_fd,
              "Write end of a pipe that gets one line of JSON per event");
}

// Whether the files that the flags name are there, and right.
absl::Status CheckFiles(const ControllerFlags& flags) {
  FAIRWAY_RETURN_IF_ERROR(LoadTls(flags.tls, Role::kController).status());
  if (flags.tls_ca_key.empty() || flags.tls.ca.empty()) return absl::OkStatus();
  Certified authority;
  FAIRWAY_ASSIGN_OR_RETURN(authority.certificate, ReadAuthorities(flags.tls.ca));
  auto key = ReadKeyFile(flags.tls_ca_key);
  if (!key.ok()) {
    return Annotate(key.status(), "--tls-ca-key (without it workers cannot join by a token)");
  }
  authority.key = *std::move(key);
  const auto made = MakeCertificate(authority, {Role::kWorker, "any"}, std::chrono::hours(1));
  if (!made.ok()) return Annotate(made.status(), "--tls-ca-key");
  return absl::OkStatus();
}

absl::Status CheckFlags(const ControllerFlags& flags) {
  for (const auto& [name, port] : {std::pair("port", flags.port),
                                   {"http-port", flags.http_port},
                                   {"link-port", flags.link_port},
                                   {"data-port", flags.data_port}}) {
    if (port < 0 || port > 65535) return InvalidArgument("--{}: {} is not 0 to 65535", name, port);
  }
  if (!IsAddress(flags.bind))
    return InvalidArgument("--bind is '{}', not an IP address", flags.bind);
  FAIRWAY_RETURN_IF_ERROR(CheckLogLevel(flags.log_level));
  if (flags.executor_deadline < std::chrono::milliseconds(100))
    return InvalidArgument("--executor-deadline must be at least 100ms");
  if (flags.relay_fan_out != 0 && (flags.relay_fan_out < 2 || flags.relay_fan_out > 1024))
    return InvalidArgument("--relay-fan-out is {}, not 0 or 2 to 1024", flags.relay_fan_out);
  if (flags.launches_ahead < 1 || flags.launches_ahead > kMostLaunchesAhead) {
    return InvalidArgument("--launches-ahead is {}, not 1 to {}", flags.launches_ahead,
                           kMostLaunchesAhead);
  }
  if (flags.worker_certificate_life < std::chrono::seconds(10))
    return InvalidArgument("--worker-certificate-life must be at least 10s");
  const bool tls = !flags.tls.certificate.empty();
  if (tls && flags.data_directory.empty()) {
    return InvalidArgument(
        "--data-directory is missing: with certificates clients need tokens, which are kept there "
        "(`fairway init` makes the first)");
  }
  if (!tls && !flags.data_directory.empty()) {
    return InvalidArgument(
        "--data-directory is for the tokens of clients, for which only a controller with "
        "certificates asks (--tls-ca)");
  }
  if (!tls && !flags.tls_ca_key.empty())
    return InvalidArgument("--tls-ca-key needs --tls-ca, --tls-certificate and --tls-key");
  if (tls) return absl::OkStatus();
  return Annotate(CheckPlainBind(flags.bind), "--bind=" + flags.bind);
}

}  // namespace

Config::Outcome ReadSettings(ControllerSettings* settings, bool reload) {
  Config config(kControllerProgram, kDescription);
  DeclareFlags(config, &settings->flags);
  config.Check([settings, reload] {
    if (!reload) FAIRWAY_RETURN_IF_ERROR(CheckFiles(settings->flags));
    return CheckFlags(settings->flags);
  });
  Config::Outcome outcome = config.Parse(settings->args, Config::ProcessEnvironment);
  settings->values = config.Values();
  return outcome;
}

}  // namespace fairway
