// SPDX-License-Identifier: Apache-2.0
#include "client/cli/identity.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_split.h>

#include "base/config.h"
#include "base/host.h"
#include "client/cli/admin_client.h"
#include "client/cli/default_plugin.h"
#include "client/cli/printable.h"
#include "client/cli/process.h"
#include "client/cli/reach.h"
#include "identity/certificates.h"
#include "identity/join.h"
#include "identity/plain_text.h"
#include "identity/private_file.h"
#include "identity/renewal.h"
#include "identity/tls_probe.h"
#include "identity/token.h"
#include "identity/token_store.h"

namespace fairway {
namespace {

constexpr int kExitFailed = 1;
constexpr int kMostDays = 36500;
constexpr int kDaysOfCa = 3650;
constexpr char kHostHelp[] =
    "A name or address by which browsers and scrapers ask for the controller's HTTP port, besides "
    "this host's name and loopback; may be given several times. It is in the certificate";
constexpr std::chrono::seconds kJoinTimeout{10};

int Fail(std::string_view command, const absl::Status& status) {
  fmt::print(stderr, "fairway {}: {}\n", command, PrintableLines(Text(status)));
  return kExitFailed;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream out;
  if (!file || !(out << file.rdbuf())) {
    return Error(absl::StatusCode::kNotFound,
                 "cannot read {}: {}; --from takes the directory that `fairway init` made", path,
                 std::strerror(errno));
  }
  return out.str();
}

// A directory that is there stays as it is. Nobody else may be able to replace files in it.
absl::Status MakePrivateDirectory(const std::string& path) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::absolute(path).parent_path();
  std::filesystem::create_directories(parent, error);
  if (error || (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)) {
    return Error(absl::StatusCode::kUnavailable, "cannot make {}: {}", path,
                 error ? error.message() : std::strerror(errno));
  }
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) {
    return Error(absl::StatusCode::kUnavailable, "cannot make {}: {}", path,
                 std::strerror(ENOTDIR));
  }
  if (facts.st_uid != ::geteuid() || (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 "other users can replace files in {}: give a directory that only you can write",
                 path);
  }
  return absl::OkStatus();
}

std::chrono::hours Days(int days) { return std::chrono::hours(24) * days; }

absl::Status CheckDays(int days) {
  if (days < 1 || days > kMostDays)
    return InvalidArgument("--days is {}, not 1 to {}", days, kMostDays);
  return absl::OkStatus();
}

// In the data directory of a controller that has not been started yet.
absl::Status MakeAdminToken(const std::string& directory, std::chrono::seconds lifetime) {
  FAIRWAY_ASSIGN_OR_RETURN(const auto store, TokenStore::Open(directory + "/data"));
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  FAIRWAY_ASSIGN_OR_RETURN(
      const TokenStore::Made made,
      store->Create({.role = TokenRole::kAdmin, .tenant = "", .lifetime = lifetime}, now));
  return WritePrivate(directory + "/admin.token", made.secret + "\n");
}

// By which this host's own clients ask for the controller.
std::vector<std::string> WithOwn(std::vector<std::string> hosts) {
  for (const std::string& own :
       {HostName(), std::string("localhost"), std::string("127.0.0.1"), std::string("::1")}) {
    if (std::ranges::find(hosts, own) == hosts.end()) hosts.push_back(own);
  }
  return hosts;
}

absl::Status Init(const std::string& directory, int days, const std::string& bind,
                  const std::vector<std::string>& hosts) {
  for (const char* const name : {"ca.key", "ca.pem", "controller.pem", "controller.key",
                                 "fairway.toml", "admin.token", "data"}) {
    if (std::filesystem::exists(fmt::format("{}/{}", directory, name))) {
      return Error(
          absl::StatusCode::kAlreadyExists,
          "{} has {}, and init replaces nothing, since a cluster may need it; give another "
          "directory",
          directory, name);
    }
  }
  FAIRWAY_ASSIGN_OR_RETURN(const Certified ca, MakeAuthority(Days(kDaysOfCa)));
  FAIRWAY_ASSIGN_OR_RETURN(const Certified controller,
                           MakeCertificate(ca, {Role::kController, ""}, Days(days), hosts));
  FAIRWAY_RETURN_IF_ERROR(MakePrivateDirectory(directory));
  const std::string here = std::filesystem::absolute(directory).lexically_normal().string();
  const std::string settings = fmt::format(
      "[controller]\n{1}tls-ca = '{0}/ca.pem'\ntls-certificate = '{0}/controller.pem'\n"
      "tls-key = '{0}/controller.key'\ndata-directory = '{0}/data'\n"
      "tls-ca-key = '{0}/ca.key'\n",
      here, bind.empty() ? "" : fmt::format("bind = '{}'\n", bind));
  FAIRWAY_RETURN_IF_ERROR(WritePrivate(directory + "/ca.pem", ca.certificate));
  FAIRWAY_RETURN_IF_ERROR(WritePrivate(directory + "/controller.pem", controller.certificate));
  FAIRWAY_RETURN_IF_ERROR(WritePrivate(directory + "/controller.key", controller.key));
  FAIRWAY_RETURN_IF_ERROR(WritePrivate(directory + "/fairway.toml", settings));
  FAIRWAY_RETURN_IF_ERROR(MakeAdminToken(directory, Days(days)));
  return WritePrivate(directory + "/ca.key", ca.key);
}

absl::Status Issue(const Subject& subject, const std::string& from, const std::string& to, int days,
                   std::vector<std::string> hosts) {
  Certified ca;
  FAIRWAY_ASSIGN_OR_RETURN(ca.certificate, ReadText(from + "/ca.pem"));
  FAIRWAY_ASSIGN_OR_RETURN(ca.key, ReadText(from + "/ca.key"));
  if (subject.role == Role::kController) {
    const auto before = ReadText(to + "/controller.pem");  // whose names stay
    if (hosts.empty() && before.ok()) hosts = HostsOf(*before);
    if (hosts.empty()) hosts = WithOwn({});
  }
  const auto made = MakeCertificate(ca, subject, Days(days), hosts);
  if (!made.ok()) return Annotate(made.status(), from);
  FAIRWAY_RETURN_IF_ERROR(MakePrivateDirectory(to));
  const std::string daemon = to + (subject.role == Role::kController ? "/controller" : "/worker");
  return ReplaceFiles({to + "/ca.pem", daemon + ".pem", daemon + ".key"}, subject, *made,
                      ca.certificate);
}

// Where a worker's files are in the directory that was made for it.
TlsFiles FilesIn(const std::string& directory) {
  return {directory + "/ca.pem", directory + "/worker.pem", directory + "/worker.key"};
}

// Of a join that has not ended.
std::string KeptKey(const std::string& directory) { return directory + "/worker.key.joining"; }

// The key is kept until the certificate is there: if the answer is lost, whoever asks again with
// the same token and key gets the same certificate.
absl::StatusOr<CertificateRequest> RequestIn(const std::string& directory) {
  const std::string path = KeptKey(directory);
  if (std::filesystem::exists(path)) {
    FAIRWAY_ASSIGN_OR_RETURN(const std::string key, ReadKeyFile(path));
    return MakeRequest(key);
  }
  FAIRWAY_ASSIGN_OR_RETURN(CertificateRequest made, MakeRequest());
  FAIRWAY_RETURN_IF_ERROR(WritePrivate(path, made.key));
  return made;
}

// Writes ca.pem, worker.pem and worker.key into `to`.
absl::StatusOr<v1::JoinResponse> Join(Reach reach, const std::string& hash, const std::string& to) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::string address, ControllerAddress(reach.controller));
  const std::vector<std::string> hashes = absl::StrSplit(hash, ',');
  FAIRWAY_ASSIGN_OR_RETURN(const std::string ca, FetchAuthorities(address, hashes, kJoinTimeout));
  FAIRWAY_RETURN_IF_ERROR(MakePrivateDirectory(to));
  FAIRWAY_ASSIGN_OR_RETURN(const CertificateRequest made, RequestIn(to));
  const TemporaryFile believed(to + "/ca.pem.joining");
  reach.tls_ca = believed.path;
  FAIRWAY_RETURN_IF_ERROR(WritePrivate(reach.tls_ca, ca));
  v1::JoinRequest request;
  request.set_request(made.request);
  FAIRWAY_ASSIGN_OR_RETURN(v1::JoinResponse joined, AdminClient(reach).Join(request));
  // An older controller sends none.
  const std::string& authorities = joined.authorities().empty() ? ca : joined.authorities();
  FAIRWAY_RETURN_IF_ERROR(ReplaceFiles(FilesIn(to), {Role::kWorker, joined.worker()},
                                       {joined.certificate(), made.key}, authorities));
  ::unlink(KeptKey(to).c_str());
  return joined;
}

}  // namespace

int RunInit(int argc, const char* const* argv) {
  std::string directory, bind;
  std::vector<std::string> hosts;
  int days = 365;
  Config config("fairway init",
                "Makes the CA of a cluster, its controller's certificate, and an admin's token.");
  config.Positional("DIRECTORY", &directory, "A new directory for them");
  config.Flag("bind", &bind, "IP address at which the controller is to listen; in its settings");
  config.Flag("days", &days,
              "Days for which the controller's certificate is valid, and the token counts");
  config.Flag("host", &hosts, kHostHelp);
  config.Check([&] {
    if (directory.empty()) return InvalidArgument("expected `fairway init DIRECTORY`");
    if (!bind.empty() && !IsAddress(bind))
      return InvalidArgument("--bind is '{}', not an IP address", bind);
    return CheckDays(days);
  });
  if (const auto code = config.Parse(argc, argv)) return *code;
  if (const absl::Status status = Init(directory, days, bind, WithOwn(hosts)); !status.ok())
    return Fail("init", status);
  fmt::print(
      "{0} has the CA of a new cluster. Whoever reads {0}/ca.key can pass for any of its daemons: "
      "keep it safe. {0}/admin.token is an admin's token.\n"
      "Next, start the controller, whose log says what follows:\n"
      "  fairway-controller --config {0}/fairway.toml{1}\n",
      directory, bind.empty() ? " --bind ADDRESS" : "");
  return 0;
}

int RunIssue(int argc, const char* const* argv) {
  std::string name, from, to;
  std::vector<std::string> hosts;
  bool controller = false;
  int days = 365;
  Config config("fairway issue",
                "Makes the certificate of a worker, or the controller's next one.");
  config.Positional("NAME", &name, "The worker's --name");
  config.Flag("controller", &controller, "Replaces the controller's certificate and key instead");
  config.Flag("from", &from, "The directory that `fairway init` made");
  config.Flag("to", &to,
              "A directory for what the daemon needs; default: NAME in that directory, or itself");
  config.Flag("days", &days, "Days for which the certificate is valid");
  config.Flag("host", &hosts, kHostHelp);
  config.Check([&] {
    if (name.empty() != controller || from.empty())
      return InvalidArgument(
          "expected `fairway issue NAME --from DIRECTORY`, or --controller in the place of NAME");
    if (!controller && !hosts.empty())
      return InvalidArgument("--host is for the controller's only");
    if (!controller) FAIRWAY_RETURN_IF_ERROR(SubjectOfUri(UriOf({Role::kWorker, name})).status());
    return CheckDays(days);
  });
  if (const auto code = config.Parse(argc, argv)) return *code;
  if (to.empty()) to = controller ? from : from + "/" + name;
  const Subject subject{controller ? Role::kController : Role::kWorker, name};
  if (const absl::Status status =
          Issue(subject, from, to, days, hosts.empty() ? hosts : WithOwn(hosts));
      !status.ok())
    return Fail("issue", status);
  if (controller) {
    fmt::print(
        "{0}/controller.pem and {0}/controller.key are new. A controller that was started with "
        "files of these names uses them from its next connection on.\n",
        to);
    return 0;
  }
  fmt::print(
      "{0} has what worker {1} needs. Move it to its host, and start the worker there:\n"
      "  fairway-worker --name {1} --controller CONTROLLER:29002 --data-bind ADDRESS:0 --tls-ca "
      "{0}/ca.pem --tls-certificate {0}/worker.pem --tls-key {0}/worker.key\n",
      to, name);
  return 0;
}

namespace {

// The address of this host from which it reaches that one; empty: it does not.
std::string AddressTowards(const std::string& host, int port) {
  addrinfo* found = nullptr;
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM};
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "";
  const absl::Cleanup free = [found] { ::freeaddrinfo(found); };
  const OwnedFd socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  char text[NI_MAXHOST] = "";
  // Nothing is sent.
  if (socket.get() < 0 || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::getsockname(socket.get(), address, &size) != 0 ||
      ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return text;
}

// A settings file for the worker, unless there is one.
absl::Status WriteSettings(const std::string& directory, const v1::JoinResponse& joined,
                           const std::string& host, const std::string& plugin) {
  const std::string path = directory + "/fairway.toml";
  if (std::filesystem::exists(path)) return absl::OkStatus();
  const TlsFiles files = FilesIn(std::filesystem::absolute(directory).lexically_normal().string());
  const std::string own = AddressTowards(host, joined.link_port());
  std::string text = fmt::format(
      "[worker]\nname = '{0}'\ncontroller = '{1}'\ntls-ca = '{2}'\ntls-certificate = '{3}'\n"
      "tls-key = '{4}'\n",
      joined.worker(), HostPort(host, joined.link_port()), files.ca, files.certificate, files.key);
  if (!own.empty()) text += fmt::format("data-bind = '{}'\n", HostPort(own, 0));
  if (!plugin.empty()) text += fmt::format("plugin = '{}'\n", plugin);
  return WritePrivate(path, text);
}

}  // namespace

namespace {

// A pipe that has a line of standard input: a terminal is asked for it, and does not show it.
absl::StatusOr<OwnedFd> AskForToken() {
  termios before{};
  const bool terminal = ::tcgetattr(STDIN_FILENO, &before) == 0;
  if (terminal) {
    termios silent = before;
    silent.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &silent);
    fmt::print(stderr, "Token (not shown): ");
  }
  std::string line;
  char next = 0;
  while (line.size() < PIPE_BUF && ::read(STDIN_FILENO, &next, 1) == 1 && next != '\n')
    line += next;
  if (terminal) {
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before);
    fmt::print(stderr, "\n");
  }
  FAIRWAY_ASSIGN_OR_RETURN(auto pipe, MakePipe());
  if (::write(pipe.second.get(), line.data(), line.size()) < 0)
    return InvalidArgument("the token's pipe: {}", std::strerror(errno));
  return std::move(pipe.first);
}

}  // namespace

int RunJoin(int argc, const char* const* argv) {
  Reach reach;
  std::string controller, hash, to, plugin;
  Config config("fairway join",
                "Gets a certificate for a worker on this host, by a token (`fairway token create "
                "--worker`). The key is made here, and stays here.");
  config.Positional("CONTROLLER", &controller, "The controller's HOST[:PORT]");
  config.Flag("ca-hash", &hash,
              "sha256:DIGITS of the cluster's CA; the controller is believed if it shows that one. "
              "Several, with commas: one of these");
  config.Flag("token-file", &reach.token_file,
              "File that has the token, or /dev/stdin; default: it is asked for, so that no shell "
              "keeps it in its history, or read from standard input");
  config.Flag("to", &to, "A directory for what the worker needs");
  config.Flag("plugin", &plugin,
              "Path of the PJRT plugin, for the worker's settings; default: xla-cpu-pjrt of the "
              "Python environment");
  config.Variable("plugin", "FAIRWAY_PJRT_PLUGIN");
  config.Check([&] {
    return controller.empty() || hash.empty() || to.empty()
               ? InvalidArgument("expected `fairway join CONTROLLER --ca-hash HASH --to DIRECTORY`")
               : absl::OkStatus();
  });
  if (const auto code = config.Parse(argc, argv)) return *code;
  reach.controller = controller;
  OwnedFd asked;
  if (reach.token_file.empty()) {
    auto pipe = AskForToken();
    if (!pipe.ok()) return Fail("join", pipe.status());
    asked = *std::move(pipe);
    reach.token_file = fmt::format("/dev/fd/{}", asked.get());
  }
  const auto joined = Join(reach, hash, to);
  if (!joined.ok()) return Fail("join", joined.status());
  const std::string host = SplitHostPort(*ControllerAddress(controller))->first;
  if (const absl::Status written =
          WriteSettings(to, *joined, host, plugin.empty() ? DefaultPlugin() : plugin);
      !written.ok())
    return Fail("join", written);
  fmt::print(
      "{0} has what worker {1} needs. It renews its certificate by itself. Start it, unless the "
      "line you typed does so (its settings are in {0}/fairway.toml):\n"
      "  fairway-worker --config {0}/fairway.toml\n"
      "Next, for each client a token, where `fairway init` was typed:\n"
      "  fairway token create --role user --tenant NAME --from cluster\n",
      to, joined->worker());
  return 0;
}

}  // namespace fairway
