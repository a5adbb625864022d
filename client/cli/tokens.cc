// SPDX-License-Identifier: Apache-2.0
#include "client/cli/tokens.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <string>
#include <utility>

#include <fmt/ranges.h>
#include <google/protobuf/util/json_util.h>

#include "base/config.h"
#include "base/host.h"
#include "base/settings_file.h"
#include "base/time_text.h"
#include "client/cli/admin_client.h"
#include "client/cli/identity.h"
#include "client/cli/printable.h"
#include "client/cli/reach.h"
#include "identity/join.h"
#include "identity/private_file.h"
#include "identity/tls_identity.h"
#include "identity/token.h"
#include "identity/token_store.h"

namespace fairway {
namespace {

using std::chrono::sys_seconds;

constexpr int kExitFailed = 1;
constexpr int64_t kMostDays = 36500;

int Fail(std::string_view verb, const absl::Status& status) {
  fmt::print(stderr, "fairway token {}: {}\n", verb, Printable(Text(status)));
  return kExitFailed;
}

sys_seconds Now() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

sys_seconds TimeOf(int64_t seconds) { return sys_seconds(std::chrono::seconds(seconds)); }

// What `fairway token create` was asked for.
struct CreateFlags {
  Reach reach;
  std::string role, tenant, worker, to, from, data_directory;
  std::string ttl;  // empty: as long as the role's usually live
  int64_t uses = 0;
};

struct Made {
  int64_t id = 0;
  sys_seconds expires{};
  std::string secret;
};

// Makes it in the directory of a controller that does not run.
absl::StatusOr<Made> CreateHere(const CreateFlags& flags, std::chrono::seconds lifetime) {
  TokenSpec spec{.role = TokenRole::kViewer,
                 .tenant = flags.tenant,
                 .worker = flags.worker,
                 .lifetime = lifetime};
  FAIRWAY_ASSIGN_OR_RETURN(spec.role, TokenRoleOf(flags.role));
  if (spec.role == TokenRole::kWorker) spec.uses = 1;
  if (flags.uses != 0) spec.uses = flags.uses;
  FAIRWAY_RETURN_IF_ERROR(CheckSpec(spec));
  auto store = TokenStore::Open(flags.data_directory);
  if (!store.ok()) return Annotate(store.status(), "--data-directory");
  FAIRWAY_ASSIGN_OR_RETURN(TokenStore::Made made, (*store)->Create(spec, Now()));
  return Made{made.kept.record.id, made.kept.record.expires, std::move(made.secret)};
}

absl::StatusOr<Made> CreateThere(const CreateFlags& flags, std::chrono::seconds lifetime) {
  v1::CreateTokenRequest request;
  request.set_role(flags.role);
  request.set_tenant(flags.tenant);
  request.set_worker(flags.worker);
  request.set_lifetime_s(lifetime.count());
  request.set_uses(flags.uses);
  FAIRWAY_ASSIGN_OR_RETURN(const auto made, AdminClient(flags.reach).CreateToken(request));
  return Made{made.token().id(), TimeOf(made.token().expires_s()), made.secret()};
}

// What has to be typed on the host of a worker that is to join. The secret comes from a file, not
// from an argument.
absl::StatusOr<std::string> JoinLine(const CreateFlags& flags, const Made& made) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::string ca, ReadAuthorities(flags.reach.tls_ca));
  const std::string line =
      fmt::format("fairway join {} --ca-hash {} --to {} --token-file", flags.reach.controller,
                  fmt::join(CertificateHashes(ca), ","), flags.worker);
  const std::string start = fmt::format("fairway-worker --config {}/fairway.toml", flags.worker);
  return flags.to.empty()
             ? fmt::format("{} /dev/stdin <<'END' && {}\n{}\nEND\n", line, start, made.secret)
             : fmt::format("{} {} && {}\n", line, flags.to, start);
}

// What has to be typed on the host of a client: it makes the files there.
absl::StatusOr<std::string> ClientLines(const CreateFlags& flags, const Made& made) {
  FAIRWAY_ASSIGN_OR_RETURN(std::string ca, ReadAuthorities(flags.reach.tls_ca));
  if (!ca.ends_with('\n')) ca += '\n';
  return fmt::format(
      "(umask 077; cat > ca.pem) <<'END'\n{0}END\n"
      "(umask 077; cat > {1}.token) <<'END'\n{2}\nEND\n"
      "export FAIRWAY_CONTROLLER={3} FAIRWAY_TLS_CA=$PWD/ca.pem FAIRWAY_TOKEN_FILE=$PWD/{1}.token\n"
      "# then: JAX_PLATFORMS=fairway,cpu python PROGRAM; or in it, before JAX is used:\n"
      "# fairway.connect('{3}', tls_ca='ca.pem', token_file='{1}.token')\n",
      ca, flags.tenant, made.secret, flags.reach.controller);
}

// Where the controller is, and what an admin needs, from the directory that `fairway init` made.
absl::Status TakeFrom(CreateFlags& flags) {
  if (flags.from.empty()) return absl::OkStatus();
  if (flags.reach.tls_ca.empty()) flags.reach.tls_ca = flags.from + "/ca.pem";
  if (flags.reach.token_file.empty()) flags.reach.token_file = flags.from + "/admin.token";
  if (flags.reach.controller != Reach().controller) return absl::OkStatus();
  std::string host = "127.0.0.1";
  std::string port = "29000";
  FAIRWAY_ASSIGN_OR_RETURN(const SettingsTables tables, ReadSettings(flags.from + "/fairway.toml"));
  const auto controller = tables.find("controller");
  if (controller == tables.end()) return absl::OkStatus();
  for (const FileSetting& setting : controller->second) {
    if (setting.values.size() != 1) continue;
    if (setting.name == "bind") host = setting.values.front();
    if (setting.name == "port") port = setting.values.front();
  }
  if (host == "0.0.0.0" || host == "::") {
    return InvalidArgument(
        "--from: the controller listens at all addresses of its host ({}); say by which others "
        "reach it: --controller ADDRESS",
        host);
  }
  FAIRWAY_ASSIGN_OR_RETURN(flags.reach.controller, ControllerAddress(host));
  flags.reach.controller.replace(flags.reach.controller.rfind(':') + 1, std::string::npos, port);
  return absl::OkStatus();
}

// Prints what was made, or writes it to the file that was asked for.
absl::Status Give(const CreateFlags& flags, const Made& made) {
  if (!flags.to.empty()) FAIRWAY_RETURN_IF_ERROR(WritePrivate(flags.to, made.secret + "\n"));
  if (!flags.worker.empty() && !flags.reach.tls_ca.empty()) {
    FAIRWAY_ASSIGN_OR_RETURN(const std::string line, JoinLine(flags, made));
    fmt::print("{}", line);
  } else if (flags.to.empty() && !flags.from.empty() && !flags.tenant.empty()) {
    FAIRWAY_ASSIGN_OR_RETURN(const std::string lines, ClientLines(flags, made));
    fmt::print("{}", lines);
  } else if (flags.to.empty()) {
    fmt::print("{}\n", made.secret);
  }
  return absl::OkStatus();
}

int RunCreate(int argc, const char* const* argv) {
  CreateFlags flags;
  std::chrono::seconds lifetime{};
  Config config("fairway token create",
                "Makes a token, which says who a client is. Its secret is printed, or written to "
                "--to, and cannot be asked for again.");
  DeclareReach(config, &flags.reach);
  config.Flag("role", &flags.role,
              "user: open sessions as --tenant; viewer: status and metrics; operator: also logs, "
              "restart, cordon, drain, down; admin: also tokens");
  config.Flag("tenant", &flags.tenant, "Whose sessions a user's are");
  config.Flag("worker", &flags.worker,
              "The name of a worker that may join by it; prints what to type on its host");
  config.Flag("ttl", &flags.ttl,
              "How long it counts: 10s, 45m, 12h, 30d; default: 30d, and a worker's 1h");
  config.Flag("uses", &flags.uses, "How often a worker may use it; 0: once");
  config.Flag("to", &flags.to, "A file for it, which its owner alone can read");
  config.Flag("from", &flags.from,
              "The directory that `fairway init` made: --controller, --tls-ca and --token-file are "
              "what it says; prints what to type on the client's host");
  config.Flag("data-directory", &flags.data_directory,
              "The data directory of a controller that does not run: the token is made there, and "
              "no controller is asked");
  config.Check([&]() -> absl::Status {
    if (!flags.worker.empty() && flags.role.empty()) flags.role = "worker";
    if (flags.ttl.empty()) flags.ttl = flags.worker.empty() ? "30d" : "1h";
    FAIRWAY_ASSIGN_OR_RETURN(lifetime, ParseLifetime(flags.ttl));
    FAIRWAY_RETURN_IF_ERROR(TakeFrom(flags));
    return TokenRoleOf(flags.role).status();
  });
  if (const auto code = config.Parse(argc, argv)) return *code;
  const auto made =
      flags.data_directory.empty() ? CreateThere(flags, lifetime) : CreateHere(flags, lifetime);
  if (!made.ok()) return Fail("create", made.status());
  if (const absl::Status given = Give(flags, *made); !given.ok()) {
    return Fail("create", Annotate(given, fmt::format("token {} was made, and is lost (`fairway "
                                                      "token revoke {}`)",
                                                      made->id, made->id)));
  }
  fmt::print(stderr, "token {} (role {}{}{}) counts until {}\n", made->id, flags.role,
             flags.tenant.empty() ? "" : " of tenant ", flags.tenant, TimeText(made->expires));
  if (!flags.worker.empty() && flags.to.empty() && !flags.reach.tls_ca.empty()) {
    fmt::print(
        stderr,
        "a shell keeps these lines, and so the token, in its history; `fairway join` without "
        "--token-file /dev/stdin <<'END' asks for the token instead\n");
  }
  return 0;
}

int RunList(int argc, const char* const* argv) {
  Reach reach;
  std::string output = "text";
  Config config("fairway token list", "Shows the tokens, without their secrets.");
  DeclareReach(config, &reach);
  config.Flag("output", &output, "text or json");
  config.ShortName("output", 'o');
  config.Check([&] {
    return output == "text" || output == "json"
               ? absl::OkStatus()
               : InvalidArgument("--output must be text or json, not '{}'", output);
  });
  if (const auto code = config.Parse(argc, argv)) return *code;
  const auto tokens = AdminClient(reach).ListTokens();
  if (!tokens.ok()) return Fail("list", tokens.status());
  if (output == "text") {
    fmt::print("{}", TokensText(*tokens, Now()));
    return 0;
  }
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(*tokens, &json, options).ok())
    return Fail("list", absl::InternalError("the answer cannot be written as JSON"));
  fmt::print("{}\n", json);
  return 0;
}

int RunRevoke(int argc, const char* const* argv) {
  Reach reach;
  std::string id;
  int64_t number = 0;
  Config config("fairway token revoke",
                "Takes a token back: it counts no longer, and what was opened with it ends.");
  DeclareReach(config, &reach);
  config.Positional("ID", &id, "As `fairway token list` names it");
  config.Check([&] {
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
    return error == std::errc() && end == id.data() + id.size()
               ? absl::OkStatus()
               : InvalidArgument("expected `fairway token revoke ID`, the number of a token");
  });
  if (const auto code = config.Parse(argc, argv)) return *code;
  const absl::Status revoked = AdminClient(reach).RevokeToken(number);
  if (!revoked.ok()) return Fail("revoke", revoked);
  fmt::print("token {} counts no longer\n", number);
  return 0;
}

std::string StateOf(const v1::Token& token, sys_seconds now) {
  if (token.revoked_s() != 0) return "revoked " + TimeText(TimeOf(token.revoked_s()));
  if (TimeOf(token.expires_s()) <= now) return "expired";
  if (token.uses() == 0) return "used up";
  return token.uses() < 0 ? "counts" : fmt::format("counts, {} uses left", token.uses());
}

}  // namespace

absl::StatusOr<std::chrono::seconds> ParseLifetime(std::string_view text) {
  const absl::Status wrong = InvalidArgument(
      "--ttl: '{}' is no time such as 10s, 45m, 12h or 30d, at most {}d", text, kMostDays);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end + 1 != text.data() + text.size()) return wrong;
  const std::string_view units = "smhd";
  const size_t unit = units.find(*end);
  if (unit == std::string_view::npos) return wrong;
  const int64_t seconds = std::array<int64_t, 4>{1, 60, 3600, 86400}.at(unit);
  if (number < 1 || number > kMostDays * 86400 / seconds) return wrong;
  return std::chrono::seconds(number * seconds);
}

std::string TokensText(const v1::ListTokensResponse& tokens, sys_seconds now) {
  size_t widest = std::string_view("TENANT").size();
  for (const v1::Token& token : tokens.tokens()) widest = std::max(widest, token.tenant().size());
  std::string out = fmt::format("{:>6}  {:<8}  {:<{}}  {:<23}  STATE\n", "ID", "ROLE", "TENANT",
                                widest, "EXPIRES");
  for (const v1::Token& token : tokens.tokens()) {
    out += fmt::format("{:>6}  {:<8}  {:<{}}  {:<23}  {}\n", token.id(), token.role(),
                       token.tenant().empty() ? "-" : token.tenant(), widest,
                       TimeText(TimeOf(token.expires_s())), StateOf(token, now));
  }
  return out;
}

int RunToken(int argc, const char* const* argv) {
  constexpr std::string_view kHelp =
      "usage: fairway token VERB [FLAGS]\n\n"
      "  create  make one: --role ROLE [--tenant NAME] [--ttl 30d] [--to FILE]\n"
      "  list    show all, without their secrets\n"
      "  revoke  take one back: fairway token revoke ID\n\n"
      "fairway token VERB --help lists the flags. They take --controller HOST[:PORT], --tls-ca "
      "FILE\nand --token-file FILE, an admin's.\n";
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "create") return RunCreate(argc - 1, argv + 1);
  if (verb == "list") return RunList(argc - 1, argv + 1);
  if (verb == "revoke") return RunRevoke(argc - 1, argv + 1);
  if (verb == "--help" || verb == "-h") {
    fmt::print("{}", kHelp);
    return 0;
  }
  fmt::print(stderr, "fairway token: {} (there are: create, list, revoke)\n",
             verb.empty() ? "which verb?" : fmt::format("no verb '{}'", verb));
  return kExitUsage;
}

}  // namespace fairway
