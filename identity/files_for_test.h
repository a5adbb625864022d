// SPDX-License-Identifier: Apache-2.0
// Certificates of a cluster in files, for tests.
#ifndef FAIRWAY_IDENTITY_FILES_FOR_TEST_H_
#define FAIRWAY_IDENTITY_FILES_FOR_TEST_H_

#include <chrono>
#include <memory>
#include <string>

#include "identity/certificates.h"
#include "identity/tls_identity.h"

namespace fairway {

// A CA in a directory of its own, and what it signs. Made when first asked for. Faults end the
// test's process.
class CertificateFiles {
 public:
  CertificateFiles() = default;
  ~CertificateFiles();  // removes the directory
  CertificateFiles(const CertificateFiles&) = delete;
  CertificateFiles& operator=(const CertificateFiles&) = delete;

  // Makes new files for the daemon, and replaces those that were there.
  TlsFiles Files(const Subject& subject, std::chrono::seconds lifetime = std::chrono::hours(1));
  std::shared_ptr<TlsIdentity> Controller();
  std::shared_ptr<TlsIdentity> Worker(const std::string& name);
  const Certified& authority();
  // The path of a file with this text, which its owner alone can reach.
  std::string Write(const std::string& name, const std::string& text);

 private:
  std::string directory_;
  Certified authority_;
};

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_FILES_FOR_TEST_H_
