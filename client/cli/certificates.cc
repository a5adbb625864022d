// SPDX-License-Identifier: Apache-2.0
#include "client/cli/certificates.h"

#include <algorithm>
#include <cstdio>

#include <google/protobuf/util/json_util.h>

#include "base/config.h"
#include "base/time_text.h"
#include "client/cli/admin_client.h"
#include "client/cli/printable.h"
#include "client/cli/reach.h"

namespace fairway {
namespace {

using std::chrono::sys_seconds;

constexpr int kExitFailed = 1;

int Fail(std::string_view verb, const absl::Status& status) {
  fmt::print(stderr, "fairway certificate {}: {}\n", verb, Printable(Text(status)));
  return kExitFailed;
}

sys_seconds TimeOf(int64_t seconds) { return sys_seconds(std::chrono::seconds(seconds)); }

int RunList(int argc, const char* const* argv) {
  Reach reach;
  std::string output = "text";
  Config config("fairway certificate list",
                "Shows the certificates of workers that the controller has issued, and that have "
                "not expired.");
  DeclareReach(config, &reach);
  config.Flag("output", &output, "text or json");
  config.ShortName("output", 'o');
  config.Check([&] {
    return output == "text" || output == "json"
               ? absl::OkStatus()
               : InvalidArgument("--output must be text or json, not '{}'", output);
  });
  if (const auto code = config.Parse(argc, argv)) return *code;
  const auto listed = AdminClient(reach).ListCertificates();
  if (!listed.ok()) return Fail("list", listed.status());
  if (output == "text") {
    const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    fmt::print("{}", CertificatesText(*listed, now));
    return 0;
  }
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(*listed, &json, options).ok())
    return Fail("list", absl::InternalError("the answer cannot be written as JSON"));
  fmt::print("{}\n", json);
  return 0;
}

int RunRevoke(int argc, const char* const* argv) {
  Reach reach;
  std::string worker;
  Config config("fairway certificate revoke",
                "Takes a worker's certificates back, also those of `fairway issue`, and the tokens "
                "by which it may join; its connections end.");
  DeclareReach(config, &reach);
  config.Positional("NAME", &worker, "The worker's name");
  config.Check([&] {
    return worker.empty() ? InvalidArgument("expected `fairway certificate revoke NAME`")
                          : absl::OkStatus();
  });
  if (const auto code = config.Parse(argc, argv)) return *code;
  const auto revoked = AdminClient(reach).RevokeCertificates(worker);
  if (!revoked.ok()) return Fail("revoke", revoked.status());
  fmt::print(
      "no certificate of worker {} counts any more: {} of this controller, and whatever `fairway "
      "issue` has made{}\n",
      worker, revoked->certificates(),
      revoked->tokens() == 0
          ? std::string()
          : fmt::format("; {} tokens to join by were revoked", revoked->tokens()));
  return 0;
}

std::string StateOf(const v1::Certificate& certificate, sys_seconds now) {
  if (certificate.revoked_s() != 0) return "revoked " + TimeText(TimeOf(certificate.revoked_s()));
  return TimeOf(certificate.expires_s()) <= now ? "expired" : "counts";
}

}  // namespace

std::string CertificatesText(const v1::ListCertificatesResponse& certificates, sys_seconds now) {
  size_t widest = std::string_view("WORKER").size();
  for (const v1::Certificate& one : certificates.certificates())
    widest = std::max(widest, one.worker().size());
  std::string out = fmt::format("{:>6}  {:<{}}  {:<32}  {:<23}  STATE\n", "ID", "WORKER", widest,
                                "SERIAL", "EXPIRES");
  for (const v1::Certificate& one : certificates.certificates()) {
    out += fmt::format("{:>6}  {:<{}}  {:<32}  {:<23}  {}\n", one.id(), one.worker(), widest,
                       one.serial(), TimeText(TimeOf(one.expires_s())), StateOf(one, now));
  }
  return out;
}

int RunCertificate(int argc, const char* const* argv) {
  constexpr std::string_view kHelp =
      "usage: fairway certificate VERB [FLAGS]\n\n"
      "  list    show those of workers that the controller has issued\n"
      "  revoke  take a worker's back: fairway certificate revoke NAME\n\n"
      "fairway certificate VERB --help lists the flags. They take --controller HOST[:PORT], "
      "--tls-ca FILE\nand --token-file FILE, an admin's.\n";
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "list") return RunList(argc - 1, argv + 1);
  if (verb == "revoke") return RunRevoke(argc - 1, argv + 1);
  if (verb == "--help" || verb == "-h") {
    fmt::print("{}", kHelp);
    return 0;
  }
  fmt::print(stderr, "fairway certificate: {} (there are: list, revoke)\n",
             verb.empty() ? "which verb?" : fmt::format("no verb '{}'", verb));
  return kExitUsage;
}

}  // namespace fairway
