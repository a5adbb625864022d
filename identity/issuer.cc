// SPDX-License-Identifier: Apache-2.0
#include "identity/issuer.h"

#include <utility>

#include "identity/join.h"
#include "identity/tls_identity.h"

namespace fairway {

Issuer::Issuer(Gate* gate, Revocations* revocations, IssuerOptions options)
    : gate_(gate),
      revocations_(revocations),
      options_(std::move(options)),
      store_(gate->database()) {}

absl::StatusOr<std::unique_ptr<Issuer>> Issuer::Open(Gate* gate, Revocations* revocations,
                                                     IssuerOptions options) {
  std::unique_ptr<Issuer> out(new Issuer(gate, revocations, std::move(options)));
  FAIRWAY_RETURN_IF_ERROR(out->store_.Tell(*revocations));
  return out;
}

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

absl::Status Issuer::Keep(const CertificateRecord& record) {
  FAIRWAY_RETURN_IF_ERROR(store_.Keep(record));
  revocations_->Permit(record.worker, record.facts.hash, record.facts.end);
  return absl::OkStatus();
}

absl::StatusOr<IssuedCertificate> Issuer::Join(const Caller& caller, const std::string& request) {
  FAIRWAY_ASSIGN_OR_RETURN(const CertificateHash key, KeyOfRequest(request));
  const std::lock_guard lock(mu_);
  IssuedCertificate out;
  FAIRWAY_ASSIGN_OR_RETURN(auto before, store_.Find(caller.worker, caller.token, key));
  if (before.has_value()) {
    FAIRWAY_RETURN_IF_ERROR(gate_->Check(caller.token));
    FAIRWAY_ASSIGN_OR_RETURN(out.authorities, ReadAuthorities(options_.ca));
    out.certificate = std::move(before->pem);
    return out;
  }
  // Signs first, so that a wrong request does not use the token up.
  FAIRWAY_ASSIGN_OR_RETURN(CertificateRecord made, Sign(caller.worker, request, &out.authorities));
  made.token = caller.token;
  FAIRWAY_RETURN_IF_ERROR(gate_->Use(caller.token, [&] { return Keep(made); }));
  out.certificate = std::move(made.pem);
  return out;
}

absl::StatusOr<IssuedCertificate> Issuer::Renew(const std::string& worker,
                                                const CertificateHash& shown,
                                                const std::string& request) {
  FAIRWAY_ASSIGN_OR_RETURN(const CertificateHash key, KeyOfRequest(request));
  const std::lock_guard lock(mu_);
  FAIRWAY_RETURN_IF_ERROR(revocations_->Check({Role::kWorker, worker}, shown));
  IssuedCertificate out;
  FAIRWAY_ASSIGN_OR_RETURN(auto before, store_.Find(worker, 0, key));
  const auto now = std::chrono::system_clock::now();
  if (before.has_value() && now < before->issued + (before->facts.end - before->issued) / 2) {
    FAIRWAY_ASSIGN_OR_RETURN(out.authorities, ReadAuthorities(options_.ca));
    out.certificate = std::move(before->pem);
    return out;
  }
  FAIRWAY_ASSIGN_OR_RETURN(CertificateRecord made, Sign(worker, request, &out.authorities));
  FAIRWAY_RETURN_IF_ERROR(Keep(made));
  out.certificate = std::move(made.pem);
  return out;
}

absl::Status Issuer::RevokeHere(const std::string& worker) {
  FAIRWAY_RETURN_IF_ERROR(SubjectOfUri(UriOf({Role::kWorker, worker})).status());
  revocations_->Revoke(worker,
                       std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()));
  for (const TokenRecord& token : gate_->TokensOfWorker(worker)) gate_->RevokeHere(token.id);
  return absl::OkStatus();
}

absl::Status Issuer::NotWrittenDown(const std::string& worker, absl::Status why) {
  return Annotate(
      std::move(why),
      fmt::format("certificates of worker {} count no longer, but this could not be written "
                  "down, so they would count again after the controller's next start; revoke "
                  "them again",
                  worker));
}

absl::StatusOr<RevokedWorker> Issuer::Revoke(const std::string& worker) {
  FAIRWAY_RETURN_IF_ERROR(SubjectOfUri(UriOf({Role::kWorker, worker})).status());
  const std::lock_guard lock(mu_);
  // Once more: others may have had their turn since RevokeHere.
  FAIRWAY_RETURN_IF_ERROR(RevokeHere(worker));
  auto revoked = store_.Revoke(
      worker, std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()));
  if (!revoked.ok()) return NotWrittenDown(worker, std::move(revoked).status());
  return *revoked;
}

}  // namespace fairway
