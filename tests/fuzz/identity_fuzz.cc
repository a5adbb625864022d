// SPDX-License-Identifier: Apache-2.0
// What strangers send to be believed: tokens, requests for certificates, certificates and the names
// in them. Whatever is accepted is what its check says, and nothing of it gets into what is signed.
#include <chrono>
#include <string>
#include <string_view>

#include <absl/strings/escaping.h>

#include "identity/certificates.h"
#include "identity/join.h"
#include "identity/tls_identity.h"
#include "identity/token.h"
#include "tests/fuzz/fuzz.h"

namespace fairway::fuzz {
namespace {

enum Kind : uint8_t {
  kSecret = 0,       // of a token
  kRequest = 1,      // for a certificate, PEM
  kCertificate = 2,  // PEM, one or several
  kRequestDer = 6,   // the same as DER, of which PEM is made: a changed byte stays readable
  kCertificateDer = 7,
  kUri = 3,  // of a certificate's subject
  kTenant = 4,
  kRole = 5,
};

std::string Pem(const std::string& name, std::string_view der) {
  const std::string text = absl::Base64Escape({der.data(), der.size()});
  std::string out = "-----BEGIN " + name + "-----\n";
  for (size_t i = 0; i < text.size(); i += 64) out += text.substr(i, 64) + "\n";
  return out + "-----END " + name + "-----\n";
}

const Certified& Authority() {
  static const Certified authority = MakeAuthority(std::chrono::hours(24)).value();
  return authority;
}

bool IsSecret(std::string_view text) {
  return text.size() == 67 && text.starts_with("fw_") &&
         text.find_first_not_of("0123456789abcdef", 3) == text.npos;
}

void OnSecret(std::string_view text) {
  const auto hash = HashOfSecret(text);
  FUZZ_CHECK(hash.ok() == IsSecret(text));
  // A message goes into logs and to the sender's screen.
  if (!hash.ok() && text.size() >= 16)
    FUZZ_CHECK(Text(hash.status()).find(text) == std::string::npos);
}

void OnRequest(std::string_view text) {
  const Subject subject{Role::kWorker, "w0"};
  const auto made = Certify(Authority(), text, subject, std::chrono::hours(1));
  if (!made.ok()) return;
  FUZZ_CHECK(HostsOf(*made).empty());  // a request may ask for names; nobody gives them
  FUZZ_CHECK(CertificateHashes(*made).size() == 1);
}

void OnCertificate(std::string_view text) {
  for (const std::string& hash : CertificateHashes(text)) FUZZ_CHECK(hash.size() == 7 + 64);
  (void)HostsOf(text);
  (void)ExpiryWarning(text, std::chrono::system_clock::now());
}

void OnUri(std::string_view text) {
  const auto subject = SubjectOfUri(text);
  if (subject.ok()) FUZZ_CHECK(UriOf(*subject) == text);
}

void On(const Record& record) {
  switch (record.kind) {
    case kSecret:
      return OnSecret(record.payload);
    case kRequest:
      return OnRequest(record.payload);
    case kCertificate:
      return OnCertificate(record.payload);
    case kRequestDer:
      return OnRequest(Pem("CERTIFICATE REQUEST", record.payload));
    case kCertificateDer:
      return OnCertificate(Pem("CERTIFICATE", record.payload));
    case kUri:
      return OnUri(record.payload);
    case kTenant:
      if (CheckTenant(record.payload).ok())
        FUZZ_CHECK(!record.payload.empty() && record.payload.size() <= 64);
      return;
    case kRole: {
      const auto role = TokenRoleOf(record.payload);
      if (role.ok()) FUZZ_CHECK(NameOf(*role) == record.payload);
    }
  }
}

}  // namespace

const google::protobuf::Message* Prototype(uint8_t) { return nullptr; }

}  // namespace fairway::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fairway::fuzz;
  for (const Record& record : Cut({reinterpret_cast<const char*>(data), size})) On(record);
  return 0;
}
