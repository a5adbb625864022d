// SPDX-License-Identifier: Apache-2.0
// Owners of OpenSSL's objects, and its errors as text. Only .cc files of this folder and of
// transport/ include it.
#ifndef FAIRWAY_IDENTITY_OPENSSL_H_
#define FAIRWAY_IDENTITY_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fairway {

template <auto kFree>
struct OpenSslDeleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using BioPtr = std::unique_ptr<BIO, OpenSslDeleter<BIO_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpenSslDeleter<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, OpenSslDeleter<X509_free>>;
using ContextPtr = std::unique_ptr<SSL_CTX, OpenSslDeleter<SSL_CTX_free>>;
using GeneralNamesPtr = std::unique_ptr<GENERAL_NAMES, OpenSslDeleter<GENERAL_NAMES_free>>;

// Returns the reason of OpenSSL's oldest error of this thread, and forgets all of them.
std::string TakeOpenSslError();

// Returns nullptr if `pem` has none.
CertificatePtr ReadCertificate(std::string_view pem);
// All of them.
std::vector<CertificatePtr> ReadCertificates(std::string_view pem);
KeyPtr ReadKey(std::string_view pem);

// The text that was written to `memory`, a BIO_s_mem.
std::string PemOf(BIO* memory);

// "2026-11-27 14:07:25 UTC".
std::string TimeText(const ASN1_TIME* time);

std::chrono::sys_seconds TimeOf(const ASN1_TIME* time);

// SHA-256 of a public key (DER).
std::array<uint8_t, 32> KeyHash(EVP_PKEY* key);

// "sha256:" and 64 hexadecimal digits, of the certificate's bytes (DER).
std::string HashText(X509* certificate);

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_OPENSSL_H_
