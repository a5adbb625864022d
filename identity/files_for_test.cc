// SPDX-License-Identifier: Apache-2.0
#include "identity/files_for_test.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace fairway {

CertificateFiles::~CertificateFiles() {
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

std::string CertificateFiles::Write(const std::string& name, const std::string& text) {
  if (directory_.empty()) {
    std::string directory = (std::filesystem::temp_directory_path() / "fairway-XXXXXX").string();
    if (::mkdtemp(directory.data()) == nullptr) std::abort();
    directory_ = directory;
  }
  const std::string path = directory_ + "/" + name;
  std::filesystem::remove(path);
  std::ofstream(path) << text;
  ::chmod(path.c_str(), 0600);
  return path;
}

const Certified& CertificateFiles::authority() {
  if (authority_.certificate.empty()) authority_ = MakeAuthority(std::chrono::hours(24)).value();
  return authority_;
}

TlsFiles CertificateFiles::Files(const Subject& subject, std::chrono::seconds lifetime) {
  const Certified made = MakeCertificate(authority(), subject, lifetime).value();
  const std::string name = subject.role == Role::kController ? "controller" : subject.name;
  return {Write("ca.pem", authority().certificate), Write(name + ".pem", made.certificate),
          Write(name + ".key", made.key)};
}

std::shared_ptr<TlsIdentity> CertificateFiles::Controller() {
  return TlsIdentity::Load(Files({Role::kController, ""}), Role::kController).value();
}

std::shared_ptr<TlsIdentity> CertificateFiles::Worker(const std::string& name) {
  return TlsIdentity::Load(Files({Role::kWorker, name}), Role::kWorker).value();
}

}  // namespace fairway
