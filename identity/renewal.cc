// SPDX-License-Identifier: Apache-2.0
#include "identity/renewal.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "identity/private_file.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::system_clock;

constexpr seconds kShortestPause{1};
constexpr seconds kFirstPause{60};
constexpr seconds kLongestPause{3600};

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream out;
  out << file.rdbuf();
  return out.str();
}

// Clients of this host may read the CAs, too.
unsigned ModeOf(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? facts.st_mode & 0644 : 0600;
}

seconds LifeOf(const CertificateFacts& certificate) {
  const seconds life = certificate.end - certificate.begin;
  return life > kBeganBefore ? life - kBeganBefore : life;
}

}  // namespace

system_clock::time_point RenewalDue(const CertificateFacts& certificate) {
  return certificate.end - LifeOf(certificate) / 3;
}

milliseconds RetryPause(const CertificateFacts& certificate, int failures,
                        system_clock::time_point now) {
  const seconds doubled = kFirstPause * (1 << std::clamp(failures - 1, 0, 6));
  const auto left = std::chrono::duration_cast<milliseconds>(certificate.end - now);
  return std::clamp<milliseconds>(std::min<milliseconds>(doubled, left / 10), kShortestPause,
                                  kLongestPause);
}

absl::Status ReplaceFiles(const TlsFiles& files, const Subject& subject, const Certified& made,
                          const std::string& authorities) {
  const std::string both = made.certificate + made.key;
  const TemporaryFile ca(files.ca + ".next"), certificate(files.certificate + ".next");
  FAIRWAY_RETURN_IF_ERROR(WritePrivate(ca.path, authorities));
  FAIRWAY_RETURN_IF_ERROR(WritePrivate(certificate.path, both));
  const auto loaded =
      TlsIdentity::Load({ca.path, certificate.path, certificate.path}, subject.role);
  FAIRWAY_RETURN_IF_ERROR(loaded.status());
  if ((*loaded)->subject() != subject) {
    return InvalidArgument("it is the certificate of {}, and this is {}",
                           Described((*loaded)->subject()), Described(subject));
  }
  // The CAs first: the one that signed the new certificate may be new, too.
  if (TextOf(files.ca) != authorities) {
    FAIRWAY_RETURN_IF_ERROR(WritePrivate(files.ca, authorities, ModeOf(files.ca)));
  }
  FAIRWAY_RETURN_IF_ERROR(WritePrivate(files.certificate, both));
  if (files.key == files.certificate) return absl::OkStatus();
  return WritePrivate(files.key, made.key);
}

absl::Status RenewController(const TlsFiles& files, const std::string& ca_key) {
  const std::string before = TextOf(files.certificate);
  FAIRWAY_ASSIGN_OR_RETURN(const CertificateFacts facts, FactsOf(before));
  Certified authority;
  FAIRWAY_ASSIGN_OR_RETURN(authority.certificate, ReadAuthorities(files.ca));
  FAIRWAY_ASSIGN_OR_RETURN(authority.key, ReadKeyFile(ca_key));
  const Subject controller{Role::kController, ""};
  FAIRWAY_ASSIGN_OR_RETURN(const Certified made,
                           MakeCertificate(authority, controller, LifeOf(facts), HostsOf(before)));
  // The CAs stay as they are, perhaps replaced meanwhile.
  return ReplaceFiles(files, controller, made, TextOf(files.ca));
}

}  // namespace fairway
