// SPDX-License-Identifier: Apache-2.0
#include "identity/openssl.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <ctime>

#include <fmt/format.h>

namespace fairway {

std::string TakeOpenSslError() {
  const unsigned long error = ERR_get_error();  // NOLINT: OpenSSL's type
  ERR_clear_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? "unknown error" : reason;
}

CertificatePtr ReadCertificate(std::string_view pem) {
  const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  CertificatePtr out(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return out;
}

std::vector<CertificatePtr> ReadCertificates(std::string_view pem) {
  const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  std::vector<CertificatePtr> out;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr))
    out.emplace_back(next);
  ERR_clear_error();
  return out;
}

KeyPtr ReadKey(std::string_view pem) {
  const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  // A key with a passphrase is refused; without this OpenSSL would ask for it on the terminal.
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  KeyPtr out(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  return out;
}

std::string PemOf(BIO* memory) {
  char* bytes = nullptr;
  const auto size = BIO_get_mem_data(memory, &bytes);
  return {bytes, static_cast<size_t>(size)};
}

std::string TimeText(const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return "an unknown time";
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::chrono::sys_seconds TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return std::chrono::sys_seconds(std::chrono::seconds(::timegm(&parts)));
}

std::array<uint8_t, 32> KeyHash(EVP_PKEY* key) {
  std::array<uint8_t, 32> out{};
  const int size = i2d_PUBKEY(key, nullptr);
  if (size <= 0) return out;
  std::vector<unsigned char> bytes(static_cast<size_t>(size));
  unsigned char* end = bytes.data();
  i2d_PUBKEY(key, &end);
  EVP_Digest(bytes.data(), bytes.size(), out.data(), nullptr, EVP_sha256(), nullptr);
  return out;
}

std::string HashText(X509* certificate) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  X509_digest(certificate, EVP_sha256(), hash, &size);
  std::string out = "sha256:";
  for (unsigned i = 0; i < size; ++i) out += fmt::format("{:02x}", hash[i]);
  return out;
}

}  // namespace fairway
