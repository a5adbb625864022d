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

std::shared_ptr<grpc::ChannelCredentials> ControllerCredentials(const std::string& authorities) {
  if (authorities.empty()) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(authorities));
  options.watch_root_certs();
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<IsController>());
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace fairway::client
