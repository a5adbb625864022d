// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/credentials.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "identity/certificates.h"
#include "identity/tls_identity.h"
#include "identity/token.h"

namespace fairway::client {
namespace {

// After the signatures: is it the controller's certificate?
class IsController final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>, grpc::Status* verdict) override {
    const std::vector<grpc::string_ref> names = request->uri_names();
    const bool right = std::ranges::any_of(names, [](const grpc::string_ref& name) {
      return std::string_view(name.data(), name.size()) == UriOf({Role::kController, ""});
    });
    if (!right) *verdict = {grpc::StatusCode::UNAUTHENTICATED, "it is not the controller"};
    return true;  // the verdict is there
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}
};

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> ControllerCredentials(const std::string& authorities,
                                                                const std::string& token) {
  if (authorities.empty()) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(authorities));
  options.watch_root_certs();
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<IsController>());
  auto tls = grpc::experimental::TlsCredentials(options);
  if (token.empty()) return tls;
  return grpc::CompositeChannelCredentials(tls, grpc::AccessTokenCredentials(token));
}

absl::StatusOr<ClientTexts> ReadClientTexts(const std::string& tls_ca,
                                            const std::string& token_file, bool flags) {
  const std::string ca_name = flags ? "--tls-ca" : "tls_ca";
  const std::string token_name = flags ? "--token-file" : "token_file";
  ClientTexts out;
  if (!tls_ca.empty()) {
    auto read = ReadAuthorities(tls_ca);
    if (!read.ok()) return Annotate(read.status(), ca_name);
    out.authorities = *std::move(read);
  }
  if (token_file.empty()) return out;
  if (tls_ca.empty()) {
    return InvalidArgument(
        "{} needs {}: a token goes by TLS only; give the cluster's CA, or no token", token_name,
        ca_name);
  }
  auto read = ReadTokenFile(token_file);
  if (!read.ok()) return Annotate(read.status(), token_name);
  out.token = *std::move(read);
  return out;
}

}  // namespace fairway::client
