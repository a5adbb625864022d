// SPDX-License-Identifier: Apache-2.0
#include "identity/certificates.h"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "identity/openssl.h"
#include "identity/plain_text.h"

namespace fairway {
namespace {

constexpr std::string_view kController = "fairway://controller";
constexpr std::string_view kWorker = "fairway://worker/";
constexpr size_t kLongestName = 128;

absl::Status Failed(std::string_view what) {
  return Error(absl::StatusCode::kInternal, "cannot {}: {}", what, TakeOpenSslError());
}

bool AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  const bool added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

// A certificate with everything but extensions and signature. `common_name` is for people.
CertificatePtr Blank(EVP_PKEY* key, const std::string& common_name, std::chrono::seconds lifetime) {
  CertificatePtr out(X509_new());
  X509_set_version(out.get(), X509_VERSION_3);
  unsigned char serial[16];
  if (RAND_bytes(serial, sizeof serial) != 1) return nullptr;
  serial[0] &= 0x7f;  // positive
  BIGNUM* number = BN_bin2bn(serial, sizeof serial, nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(out.get()));
  BN_free(number);
  X509_gmtime_adj(X509_getm_notBefore(out.get()), -std::chrono::seconds(kBeganBefore).count());
  X509_gmtime_adj(X509_getm_notAfter(out.get()), lifetime.count());
  X509_NAME* name = X509_get_subject_name(out.get());
  const auto* text = reinterpret_cast<const unsigned char*>(common_name.c_str());
  if (X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, text, -1, -1, 0) != 1) return nullptr;
  if (X509_set_pubkey(out.get(), key) != 1) return nullptr;
  return out;
}

Certified ToPem(X509* certificate, EVP_PKEY* key) {
  const BioPtr first(BIO_new(BIO_s_mem()));
  const BioPtr second(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(first.get(), certificate);
  PEM_write_bio_PrivateKey(second.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return {PemOf(first.get()), PemOf(second.get())};
}

// Of the certificate of `subject`, as OpenSSL reads it.
absl::StatusOr<std::string> AlternativeNames(const Subject& subject,
                                             const std::vector<std::string>& hosts) {
  const auto right = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
  };
  std::string out = "URI:" + UriOf(subject);
  for (const std::string& host : hosts) {
    if (!IsAddress(host) && (host.empty() || !std::ranges::all_of(host, right)))
      return InvalidArgument("'{}' is neither an IP address nor a host's name",
                             BoundedText(host, 200));
    out += fmt::format(",{}:{}", IsAddress(host) ? "IP" : "DNS", host);
  }
  return out;
}

// Of the authority's certificates the one whose key it has; nullptr: none, or it is no CA's.
CertificatePtr Signing(const Certified& authority, EVP_PKEY* key) {
  if (key == nullptr) return nullptr;
  for (CertificatePtr& one : ReadCertificates(authority.certificate)) {
    const bool right = X509_check_private_key(one.get(), key) == 1 && X509_check_ca(one.get()) == 1;
    TakeOpenSslError();
    if (right) return std::move(one);
  }
  return nullptr;
}

}  // namespace

std::string UriOf(const Subject& subject) {
  return subject.role == Role::kController ? std::string(kController)
                                           : std::string(kWorker) + subject.name;
}

absl::StatusOr<Subject> SubjectOfUri(std::string_view uri) {
  if (uri == kController) return Subject{Role::kController, ""};
  if (!uri.starts_with(kWorker)) {
    return InvalidArgument("'{}' is neither {} nor {}NAME", BoundedText(uri, 200), kController,
                           kWorker);
  }
  const std::string_view name = uri.substr(kWorker.size());
  const auto right = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
  };
  if (name.empty() || name.size() > kLongestName || !std::ranges::all_of(name, right)) {
    return InvalidArgument(
        "'{}' is no name of a worker in a certificate: 1 to {} letters, digits, '.', '_' or '-'",
        BoundedText(name, 200), kLongestName);
  }
  return Subject{Role::kWorker, std::string(name)};
}

std::string Described(const Subject& subject) {
  return subject.role == Role::kController ? "controller" : "worker " + subject.name;
}

absl::StatusOr<Certified> MakeAuthority(std::chrono::seconds lifetime) {
  const KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed("make a key");
  const CertificatePtr made = Blank(key.get(), "Fairway cluster CA", lifetime);
  if (made == nullptr) return Failed("make a certificate");
  X509_set_issuer_name(made.get(), X509_get_subject_name(made.get()));
  const bool right =
      AddExtension(made.get(), made.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
      AddExtension(made.get(), made.get(), NID_key_usage, "critical,keyCertSign,cRLSign") &&
      AddExtension(made.get(), made.get(), NID_subject_key_identifier, "hash") &&
      X509_sign(made.get(), key.get(), EVP_sha256()) > 0;
  if (!right) return Failed("make the CA's certificate");
  return ToPem(made.get(), key.get());
}

absl::StatusOr<CertificateFacts> FactsOf(std::string_view certificate) {
  const CertificatePtr read = ReadCertificate(certificate);
  if (read == nullptr) return InvalidArgument("it is no certificate (PEM)");
  CertificateFacts out;
  BIGNUM* const number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(read.get()), nullptr);
  // Not BN_bn2hex, whose result only a macro frees that puts this file's path into the program.
  std::vector<uint8_t> bytes(static_cast<size_t>(BN_num_bytes(number)));
  BN_bn2bin(number, bytes.data());
  BN_free(number);
  out.serial = fmt::format("{:02X}", fmt::join(bytes, ""));
  X509_digest(read.get(), EVP_sha256(), out.hash.data(), nullptr);
  out.key = KeyHash(X509_get0_pubkey(read.get()));
  out.begin = TimeOf(X509_get0_notBefore(read.get()));
  out.end = TimeOf(X509_get0_notAfter(read.get()));
  return out;
}

std::vector<std::string> HostsOf(std::string_view certificate) {
  std::vector<std::string> out;
  const CertificatePtr read = ReadCertificate(certificate);
  if (read == nullptr) return out;
  const GeneralNamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(read.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_DNS && name->type != GEN_IPADD) continue;
    const ASN1_STRING* value = name->type == GEN_DNS ? name->d.dNSName : name->d.iPAddress;
    const unsigned char* const data = ASN1_STRING_get0_data(value);
    const auto size = static_cast<size_t>(ASN1_STRING_length(value));
    char text[INET6_ADDRSTRLEN] = "";
    if (name->type == GEN_DNS) {
      out.emplace_back(reinterpret_cast<const char*>(data), size);
    } else if (::inet_ntop(size == 4 ? AF_INET : AF_INET6, data, text, sizeof text) != nullptr) {
      out.emplace_back(text);
    }
  }
  return out;
}

absl::StatusOr<Certified> MakeCertificate(const Certified& authority, const Subject& subject,
                                          std::chrono::seconds lifetime,
                                          const std::vector<std::string>& hosts) {
  FAIRWAY_RETURN_IF_ERROR(SubjectOfUri(UriOf(subject)).status());
  FAIRWAY_ASSIGN_OR_RETURN(const std::string names, AlternativeNames(subject, hosts));
  const KeyPtr signing = ReadKey(authority.key);
  const CertificatePtr issuer = Signing(authority, signing.get());
  if (issuer == nullptr)
    return InvalidArgument("what should sign it is no CA's certificate with its key");
  const KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed("make a key");
  // The name is for people, and X.520 permits 64 characters. Who it is, the URI says.
  const std::string name = ("Fairway " + Described(subject)).substr(0, 64);
  const CertificatePtr made = Blank(key.get(), name, lifetime);
  if (made == nullptr) return Failed("make a certificate");
  X509_set_issuer_name(made.get(), X509_get_subject_name(issuer.get()));
  X509* const by = issuer.get();
  const bool right = AddExtension(made.get(), by, NID_basic_constraints, "critical,CA:FALSE") &&
                     AddExtension(made.get(), by, NID_key_usage, "critical,digitalSignature") &&
                     AddExtension(made.get(), by, NID_ext_key_usage, "serverAuth,clientAuth") &&
                     AddExtension(made.get(), by, NID_authority_key_identifier, "keyid") &&
                     AddExtension(made.get(), by, NID_subject_alt_name, names) &&
                     X509_sign(made.get(), signing.get(), EVP_sha256()) > 0;
  if (!right) return Failed("make the certificate");
  return ToPem(made.get(), key.get());
}

}  // namespace fairway
