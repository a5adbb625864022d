// SPDX-License-Identifier: Apache-2.0
#include "identity/join.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <utility>

#include "identity/openssl.h"

namespace fairway {
namespace {

constexpr size_t kLongestRequest = 16 << 10;

using RequestPtr = std::unique_ptr<X509_REQ, OpenSslDeleter<X509_REQ_free>>;

bool IsOnP256(EVP_PKEY* key) {
  char group[64] = "";
  size_t size = 0;
  return EVP_PKEY_is_a(key, "EC") == 1 &&
         EVP_PKEY_get_group_name(key, group, sizeof group, &size) == 1 &&
         std::string_view(group, size) == "prime256v1";
}

// The key that the request is for.
absl::StatusOr<KeyPtr> KeyOf(std::string_view pem) {
  if (pem.size() > kLongestRequest)
    return InvalidArgument("a request for a certificate has at most {} bytes, this one {}",
                           kLongestRequest, pem.size());
  const BioPtr in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const RequestPtr request(PEM_read_bio_X509_REQ(in.get(), nullptr, nullptr, nullptr));
  KeyPtr key(request == nullptr ? nullptr : X509_REQ_get_pubkey(request.get()));
  const bool right =
      key != nullptr && IsOnP256(key.get()) && X509_REQ_verify(request.get(), key.get()) == 1;
  ERR_clear_error();
  if (!right) {
    return InvalidArgument(
        "it is no request for a certificate (PEM) that is signed with its own key, ECDSA on P-256");
  }
  return key;
}

}  // namespace

absl::StatusOr<CertificateRequest> MakeRequest(std::string_view of) {
  const KeyPtr key = of.empty() ? KeyPtr(EVP_EC_gen("P-256")) : ReadKey(of);
  const RequestPtr request(X509_REQ_new());
  const BioPtr first(BIO_new(BIO_s_mem()));
  const BioPtr second(BIO_new(BIO_s_mem()));
  const bool made =
      key != nullptr && request != nullptr && X509_REQ_set_pubkey(request.get(), key.get()) == 1 &&
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) > 0 &&
      PEM_write_bio_X509_REQ(first.get(), request.get()) == 1 &&
      PEM_write_bio_PrivateKey(second.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1;
  if (!made) {
    return Error(absl::StatusCode::kInternal, "cannot make a request for a certificate: {}",
                 TakeOpenSslError());
  }
  return CertificateRequest{PemOf(first.get()), PemOf(second.get())};
}

absl::StatusOr<std::string> Certify(const Certified& authority, std::string_view request,
                                    const Subject& subject, std::chrono::seconds lifetime) {
  FAIRWAY_ASSIGN_OR_RETURN(const KeyPtr key, KeyOf(request));
  // A certificate as any other, for a key that is thrown away; then it gets the request's.
  FAIRWAY_ASSIGN_OR_RETURN(const Certified made, MakeCertificate(authority, subject, lifetime));
  const CertificatePtr certificate = ReadCertificate(made.certificate);
  const KeyPtr signing = ReadKey(authority.key);
  const BioPtr out(BIO_new(BIO_s_mem()));
  if (X509_set_pubkey(certificate.get(), key.get()) != 1 ||
      X509_sign(certificate.get(), signing.get(), EVP_sha256()) <= 0 ||
      PEM_write_bio_X509(out.get(), certificate.get()) != 1) {
    return Error(absl::StatusCode::kInternal, "cannot sign the certificate: {}",
                 TakeOpenSslError());
  }
  return PemOf(out.get());
}

absl::StatusOr<CertificateHash> KeyOfRequest(std::string_view request) {
  FAIRWAY_ASSIGN_OR_RETURN(const KeyPtr key, KeyOf(request));
  return KeyHash(key.get());
}

std::vector<std::string> CertificateHashes(std::string_view pem) {
  const BioPtr in(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  std::vector<std::string> out;
  for (;;) {
    const CertificatePtr next(PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr));
    if (next == nullptr) break;
    out.push_back(HashText(next.get()));
  }
  ERR_clear_error();
  return out;
}

}  // namespace fairway
