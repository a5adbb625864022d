// SPDX-License-Identifier: Apache-2.0
// What a process shows its peers by TLS, and whom it believes. Daemons speak TLS 1.3 only, and both
// ends are certified; of clients only the controller's end is.
#ifndef FAIRWAY_IDENTITY_TLS_IDENTITY_H_
#define FAIRWAY_IDENTITY_TLS_IDENTITY_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/status.h"
#include "identity/certificates.h"
#include "identity/revocations.h"

// Of OpenSSL: SSL_CTX and SSL.
struct ssl_ctx_st;
struct ssl_st;

namespace fairway {

// Paths of PEM files.
struct TlsFiles {
  std::string ca;           // certificates of those who may sign peers' certificates
  std::string certificate;  // this process's, and then those between it and the CA, if there are
  // Of the certificate; without passphrase, and its owner's alone. Not read if the certificate's
  // own file has a key, as after a renewal: then one step replaces both.
  std::string key;
};

// What gRPC takes: texts in PEM, and the count of the changes that led to them.
struct TlsTexts {
  std::string authorities;
  std::string certificates;  // this process's, and those between it and the CA
  std::string key;
  uint64_t change = 0;
};

// The present content of three files. Whoever replaces them changes what later connections use;
// those that stand go on. From the first connection on a thread of its own looks at them once a
// second. If there is a fault then, or they name somebody else, the log says so once, and what was
// read before goes on. It also warns before the certificate or the CAs expire (ExpiryWarning,
// AuthorityWarning). Thread-safe.
class TlsIdentity {
 public:
  // INVALID_ARGUMENT names the file and the fault: it cannot be read, is no PEM, the key is of
  // another certificate or can be read by other users, the certificate is not valid now (by how
  // much), names no daemon or one of another role than `role`, or the CA has not signed it.
  //
  // Without a role it is a certificate of no daemon, for a port to which clients show none: whose
  // it is and who signed it is not looked at, and it believes nobody. `files.ca` is not read.
  static absl::StatusOr<std::shared_ptr<TlsIdentity>> Load(TlsFiles files,
                                                           std::optional<Role> role);
  ~TlsIdentity();

  // Who this process is; of an identity with a role.
  Subject subject() const;
  const TlsFiles& files() const { return files_; }

  // Of workers; each handshake asks it.
  Revocations& revocations() { return revocations_; }

  // For the next connection, of either side.
  std::shared_ptr<ssl_ctx_st> Context();
  // The same files for the next connection of a port that gRPC listens on.
  TlsTexts Texts();

 private:
  struct Loaded;
  TlsIdentity(TlsFiles files, std::optional<Role> role);
  static absl::StatusOr<std::unique_ptr<Loaded>> LoadFiles(const TlsFiles& files,
                                                           std::optional<Role> role);
  // With mu_ held. Begins to look at the files.
  void Watch();
  // These three run on the thread that does.
  void Run();
  void TakeChanges();
  void WarnOfExpiry(std::chrono::steady_clock::time_point now);

  Revocations revocations_;
  const TlsFiles files_;
  const std::optional<Role> role_;
  mutable std::mutex mu_;
  std::unique_ptr<Loaded> loaded_;  // guarded by mu_
  bool ending_ = false;             // the same
  std::condition_variable end_;
  // Of the thread.
  std::string seen_;   // what LooksOf said of the files when they were read last
  std::string fault_;  // of the files that replaced those in use; empty: none
  std::optional<std::chrono::steady_clock::time_point> warned_;  // of the end of the certificate
  std::thread thread_;
};

// What the log says of a certificate (PEM) that will expire soon: less than 30 days are left, and
// less than a quarter of its time. Empty: that is not so, or it has expired.
std::string ExpiryWarning(std::string_view certificate, std::chrono::system_clock::time_point now);

// The same of CAs (PEM), of which the last one ends in less than 90 days: another one takes over as
// certificates are renewed.
std::string AuthorityWarning(std::string_view authorities,
                             std::chrono::system_clock::time_point now);
// The one of the certificates (PEM) that is valid for longest; empty: there is none.
std::string LastingAuthority(std::string_view authorities);

// The certificates in the PEM file of a client, of the CAs that may sign the controller's.
// INVALID_ARGUMENT: it cannot be read, or has none.
absl::StatusOr<std::string> ReadAuthorities(const std::string& path);
// The text of a PEM file that has a private key. INVALID_ARGUMENT: it cannot be read, other users
// can reach it, or it has none.
absl::StatusOr<std::string> ReadKeyFile(const std::string& path);
// For a client without a certificate, which believes these CAs. TLS 1.2 or newer, as gRPC's.
absl::StatusOr<std::shared_ptr<ssl_ctx_st>> ClientContext(const std::string& authorities);

// Who the peer is, after the handshake. PERMISSION_DENIED: its certificate names no daemon.
absl::StatusOr<Subject> PeerOf(ssl_st* connection);

// Of the peer's certificate, after PeerOf.
CertificateHash HashOfPeer(ssl_st* connection);

// How HandshakeFault begins if the peer speaks no TLS.
inline constexpr std::string_view kNoTls = "the other end does not speak TLS";

// Why the handshake failed, for people: what the peer's certificate lacks, or what this process or
// the peer does not speak. `error` is the text of the library.
std::string HandshakeFault(ssl_st* connection, const std::string& error);

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_TLS_IDENTITY_H_
