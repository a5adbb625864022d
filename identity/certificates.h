// SPDX-License-Identifier: Apache-2.0
// Certificates of a cluster's daemons: what they say, and how they are made.
//
// A certificate names one daemon by a URI in its subjectAltName (RFC 5280, 4.2.1.6):
// fairway://controller, or fairway://worker/NAME. Whoever has a certificate that the cluster's CA
// signed is that daemon; nothing else of the certificate counts, so addresses may change.
#ifndef FAIRWAY_IDENTITY_CERTIFICATES_H_
#define FAIRWAY_IDENTITY_CERTIFICATES_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace fairway {

enum class Role : uint8_t { kController, kWorker };

// The daemon that a certificate names.
struct Subject {
  Role role = Role::kWorker;
  std::string name;  // of a worker: as in --name; of the controller: empty

  friend bool operator==(const Subject&, const Subject&) = default;
};

// "fairway://worker/w0".
std::string UriOf(const Subject& subject);
// INVALID_ARGUMENT: the URI is none of Fairway's, or its name has other characters than letters,
// digits, '.', '_' and '-', or more than 128.
absl::StatusOr<Subject> SubjectOfUri(std::string_view uri);
// "worker w0", "controller": for messages.
std::string Described(const Subject& subject);

// A certificate and its private key, each as PEM. Keys are ECDSA on P-256, which gRPC takes, too.
struct Certified {
  std::string certificate;
  std::string key;
};

// A certificate whose key is elsewhere, and all CAs of its cluster; each as PEM.
struct IssuedCertificate {
  std::string certificate;
  std::string authorities;
};

// Makes a CA for one cluster. It may sign daemons' certificates only, no other CA's.
absl::StatusOr<Certified> MakeAuthority(std::chrono::seconds lifetime);
// Certificates begin an hour before they are made, for clocks that differ.
inline constexpr std::chrono::hours kBeganBefore{1};
// Makes a daemon's key and its certificate, which `authority` signs: of several CAs in its text
// the one whose key it has. `hosts`: names and addresses
// by which web clients ask for it; daemons and Fairway's clients look at none. INVALID_ARGUMENT:
// `authority` is no CA with its key, or one of `hosts` is neither.
absl::StatusOr<Certified> MakeCertificate(const Certified& authority, const Subject& subject,
                                          std::chrono::seconds lifetime,
                                          const std::vector<std::string>& hosts = {});
// SHA-256 of a certificate's bytes (DER), or of its public key's.
using CertificateHash = std::array<uint8_t, 32>;

// What is recorded of a certificate.
struct CertificateFacts {
  std::string serial;  // hexadecimal digits
  CertificateHash hash{};
  CertificateHash key{};             // of its public key
  std::chrono::sys_seconds begin{};  // it is valid from then on,
  std::chrono::sys_seconds end{};    // until then
};
// INVALID_ARGUMENT: the text (PEM) is no certificate.
absl::StatusOr<CertificateFacts> FactsOf(std::string_view certificate);
// The hosts of a certificate (PEM); empty: it has none, or is none.
std::vector<std::string> HostsOf(std::string_view certificate);

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_CERTIFICATES_H_
