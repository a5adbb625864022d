// SPDX-License-Identifier: Apache-2.0
#include "identity/issuer.h"

#include <utility>

#include "identity/join.h"
#include "identity/tls_identity.h"

namespace fairway {

Issuer::Issuer(Gate* gate, IssuerOptions options)
    : gate_(gate), options_(std::move(options)), store_(gate->database()) {}

absl::Status Issuer::MayIssue(const std::string& worker) const {
  if (!options_.ca_key.empty()) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition,
               "this controller has not the CA's key (--tls-ca-key), and can sign no certificate; "
               "make one where the key is: fairway issue {}",
               worker);
}

absl::StatusOr<CertificateRecord> Issuer::Sign(const std::string& worker,
                                               const std::string& request,
                                               std::string* authorities) const {
  FAIRWAY_RETURN_IF_ERROR(MayIssue(worker));
  Certified authority;
  FAIRWAY_ASSIGN_OR_RETURN(authority.certificate, ReadAuthorities(options_.ca));
  FAIRWAY_ASSIGN_OR_RETURN(authority.key, ReadKeyFile(options_.ca_key));
  CertificateRecord out;
  out.worker = worker;
  FAIRWAY_ASSIGN_OR_RETURN(out.pem,
                           Certify(authority, request, {Role::kWorker, worker}, options_.lifetime));
  FAIRWAY_ASSIGN_OR_RETURN(out.facts, FactsOf(out.pem));
  out.issued = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  *authorities = std::move(authority.certificate);
  return out;
}

absl::StatusOr<IssuedCertificate> Issuer::Join(const Caller& caller, const std::string& request) {
  IssuedCertificate out;
  // Signs first, so that a wrong request does not use the token up.
  FAIRWAY_ASSIGN_OR_RETURN(CertificateRecord made, Sign(caller.worker, request, &out.authorities));
  made.token = caller.token;
  FAIRWAY_RETURN_IF_ERROR(gate_->Use(caller.token, [&] { return store_.Keep(made); }));
  out.certificate = std::move(made.pem);
  return out;
}

absl::StatusOr<IssuedCertificate> Issuer::Renew(const std::string& worker,
                                                const std::string& request) {
  IssuedCertificate out;
  FAIRWAY_ASSIGN_OR_RETURN(CertificateRecord made, Sign(worker, request, &out.authorities));
  FAIRWAY_RETURN_IF_ERROR(store_.Keep(made));
  out.certificate = std::move(made.pem);
  return out;
}

}  // namespace fairway
