// SPDX-License-Identifier: Apache-2.0
#include "identity/tls_identity.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "identity/openssl.h"

namespace fairway {
namespace {

constexpr auto kLookEvery = std::chrono::seconds(1);
constexpr auto kWarnEvery = std::chrono::hours(24);
constexpr off_t kLongestFile = 1 << 20;

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0)
    return InvalidArgument("{}: cannot be read: {}", path, std::strerror(errno));
  if (!S_ISREG(facts.st_mode) || facts.st_size > kLongestFile)
    return InvalidArgument("{}: is no regular file of at most 1 MiB", path);
  std::ifstream file(path, std::ios::binary);
  std::stringstream out;
  if (!file || (facts.st_size > 0 && !(out << file.rdbuf())))
    return InvalidArgument("{}: cannot be read: {}", path, std::strerror(errno));
  return out.str();
}

// All certificates of the file, at least one.
absl::StatusOr<std::vector<CertificatePtr>> CertificatesIn(const std::string& path) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::string pem, ReadPem(path));
  std::vector<CertificatePtr> out = ReadCertificates(pem);
  if (out.empty()) return InvalidArgument("{}: has no certificate (PEM)", path);
  return out;
}

absl::StatusOr<KeyPtr> ReadPrivateKey(const std::string& path) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::string pem, ReadPem(path));
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0 && (facts.st_mode & 077) != 0) {
    return InvalidArgument(
        "{}: a private key that other users can reach (mode {:03o}); chmod 600 it", path,
        facts.st_mode & 0777);
  }
  KeyPtr key = ReadKey(pem);
  if (key == nullptr) return InvalidArgument("{}: has no private key (PEM, no passphrase)", path);
  return key;
}

// Where the key of the certificate is.
absl::StatusOr<std::string> FileOfKey(const TlsFiles& files) {
  FAIRWAY_ASSIGN_OR_RETURN(const std::string pem, ReadPem(files.certificate));
  return ReadKey(pem) != nullptr ? files.certificate : files.key;
}

// Which daemon the certificate names.
absl::StatusOr<Subject> SubjectOf(X509* certificate) {
  const GeneralNamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    const auto subject = SubjectOfUri({reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                                       static_cast<size_t>(ASN1_STRING_length(uri))});
    if (subject.ok()) return subject;
  }
  return Error(absl::StatusCode::kPermissionDenied,
               "it names no daemon: its subjectAltName has neither URI:fairway://controller nor "
               "URI:fairway://worker/NAME");
}

std::string Seconds(int days, int seconds) {
  const int64_t all = std::llabs(int64_t{days} * 86400 + seconds);
  if (all >= 2 * 86400) return fmt::format("{} days", all / 86400);
  if (all >= 2 * 3600) return fmt::format("{} hours", all / 3600);
  if (all >= 120) return fmt::format("{} minutes", all / 60);
  return fmt::format("{} s", all);
}

// What is wrong with the time of a certificate; empty: it is valid now.
std::string FaultOfTime(X509* certificate) {
  const ASN1_TIME* begin = X509_get0_notBefore(certificate);
  const ASN1_TIME* end = X509_get0_notAfter(certificate);
  int days = 0;
  int seconds = 0;
  if (X509_cmp_current_time(begin) > 0) {
    ASN1_TIME_diff(&days, &seconds, nullptr, begin);
    return fmt::format(
        "is valid from {} on, which is in {} by this host's clock: set the clock, or wait",
        TimeText(begin), Seconds(days, seconds));
  }
  if (X509_cmp_current_time(end) < 0) {
    ASN1_TIME_diff(&days, &seconds, end, nullptr);
    return fmt::format("has expired on {}, {} ago by this host's clock: make a new one",
                       TimeText(end), Seconds(days, seconds));
  }
  return "";
}

// Why no CA of the file stands for the certificate: it has expired, or something between them is
// missing.
std::string WhyUnsigned(const TlsFiles& files, const std::vector<CertificatePtr>& authorities,
                        const std::vector<CertificatePtr>& chain) {
  for (const auto* const certificates : {&authorities, &chain}) {
    for (size_t i = certificates == &chain ? 1 : 0; i < certificates->size(); ++i) {
      X509* const issuer = (*certificates)[i].get();
      const std::string fault = FaultOfTime(issuer);
      const bool above = std::ranges::any_of(chain, [&](const CertificatePtr& one) {
        return X509_check_issued(issuer, one.get()) == X509_V_OK;
      });
      if (above && !fault.empty()) {
        return fmt::format("{}: a CA's certificate in {} {}", files.certificate,
                           certificates == &authorities ? files.ca : files.certificate, fault);
      }
    }
  }
  char name[200] = "";
  X509_NAME_oneline(X509_get_issuer_name(chain.back().get()), name, sizeof name);
  return fmt::format(
      "{}: none of the CAs in {} has signed it; it is signed by {}, whose certificate must be in "
      "that file, or behind this one's",
      files.certificate, files.ca, name);
}

// What is seen of the files from outside: when each, or its mode, was changed last.
std::string LooksOf(const TlsFiles& files) {
  std::string out;
  for (const std::string& path : {files.ca, files.certificate, files.key}) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) {
      out += "none ";
      continue;
    }
    out += fmt::format("{}.{}.{}.{} ", facts.st_ino, facts.st_ctim.tv_sec, facts.st_ctim.tv_nsec,
                       facts.st_size);
  }
  return out;
}

TlsTexts TextsOf(const std::vector<CertificatePtr>& authorities,
                 const std::vector<CertificatePtr>& chain, EVP_PKEY* key) {
  const auto text = [](const std::vector<CertificatePtr>& certificates) {
    const BioPtr out(BIO_new(BIO_s_mem()));
    for (const CertificatePtr& one : certificates) PEM_write_bio_X509(out.get(), one.get());
    return PemOf(out.get());
  };
  const BioPtr private_key(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(private_key.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return {text(authorities), text(chain), PemOf(private_key.get()), 0};
}

// Where a connection keeps what is wrong with its peer's certificate, a std::string.
int FaultIndex() {
  static const int kIndex = SSL_get_ex_new_index(
      0, nullptr, nullptr, nullptr, [](void*, void* fault, CRYPTO_EX_DATA*, int, long, void*) {
        delete static_cast<std::string*>(fault);
      });
  return kIndex;
}

// OpenSSL's verdict stands; what it is about is kept for HandshakeFault.
int OnVerified(int right, X509_STORE_CTX* verified) {
  if (right == 1) return right;
  auto* const connection =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(verified, SSL_get_ex_data_X509_STORE_CTX_idx()));
  X509* const certificate = X509_STORE_CTX_get_current_cert(verified);
  if (connection == nullptr || certificate == nullptr ||
      SSL_get_ex_data(connection, FaultIndex()) != nullptr)
    return right;
  const auto subject = SubjectOf(certificate);
  const std::string whose =
      subject.ok() ? fmt::format("the certificate of {}", Described(*subject)) : "its certificate";
  const std::string time = FaultOfTime(certificate);
  auto fault = std::make_unique<std::string>(
      time.empty() ? fmt::format("{} is refused: {}; it must be signed by a CA in --tls-ca", whose,
                                 X509_verify_cert_error_string(X509_STORE_CTX_get_error(verified)))
                   : fmt::format("{} {}",
                                 X509_STORE_CTX_get_error_depth(verified) > 0
                                     ? "the certificate of the CA that signed its own"
                                     : whose,
                                 time));
  if (SSL_set_ex_data(connection, FaultIndex(), fault.get()) == 1) fault.release();
  return right;
}

// Which of the protocols that a client offers it is to speak. Ports that ask for no certificate
// have HTTP/1.1, and HTTP/2 for those who offer nothing else, as clients of gRPC.
int OnOffered(SSL* connection, const uint8_t** chosen, uint8_t* size, const uint8_t* offered,
              unsigned int offered_size, void*) {
  static constexpr uint8_t kOurs[] = "\x8http/1.1\x2h2";
  uint8_t* found = nullptr;
  if (SSL_get_verify_mode(connection) != SSL_VERIFY_NONE ||
      SSL_select_next_proto(&found, size, kOurs, sizeof kOurs - 1, offered, offered_size) !=
          OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

struct TlsIdentity::Loaded {
  ContextPtr context;
  Subject subject;
  TlsTexts texts;
};

TlsIdentity::TlsIdentity(TlsFiles files, std::optional<Role> role)
    : files_(std::move(files)), role_(role) {}

absl::StatusOr<std::unique_ptr<TlsIdentity::Loaded>> TlsIdentity::LoadFiles(
    const TlsFiles& files, std::optional<Role> role) {
  std::vector<CertificatePtr> authorities;
  if (role) {
    FAIRWAY_ASSIGN_OR_RETURN(authorities, CertificatesIn(files.ca));
  }
  FAIRWAY_ASSIGN_OR_RETURN(auto chain, CertificatesIn(files.certificate));
  FAIRWAY_ASSIGN_OR_RETURN(const std::string key_file, FileOfKey(files));
  FAIRWAY_ASSIGN_OR_RETURN(const KeyPtr key, ReadPrivateKey(key_file));
  X509* const own = chain.front().get();
  auto out = std::make_unique<Loaded>();
  out->context.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* const context = out->context.get();
  if (context == nullptr)
    return Error(absl::StatusCode::kInternal, "cannot use TLS: {}", TakeOpenSslError());
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(
      context, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, OnVerified);
  // Nothing is resumed, so each connection proves who is there.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context, OnOffered, nullptr);
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  for (const CertificatePtr& authority : authorities) X509_STORE_add_cert(store, authority.get());
  if (const std::string fault = FaultOfTime(own); !fault.empty())
    return InvalidArgument("{}: {}", files.certificate, fault);
  if (role) {
    const auto subject = SubjectOf(own);
    if (!subject.ok()) return InvalidArgument("{}: {}", files.certificate, Text(subject.status()));
    if (subject->role != *role) {
      return InvalidArgument("{}: is the certificate of {}, and this is a {}", files.certificate,
                             Described(*subject),
                             role == Role::kController ? "controller" : "worker");
    }
    out->subject = *subject;
  }
  if (SSL_CTX_use_certificate(context, own) != 1)
    return InvalidArgument("{}: cannot be used: {}", files.certificate, TakeOpenSslError());
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1) {
    TakeOpenSslError();
    return InvalidArgument("{}: is not the key of the certificate in {}", key_file,
                           files.certificate);
  }
  for (size_t i = 1; i < chain.size(); ++i) SSL_CTX_add1_chain_cert(context, chain[i].get());
  if (role && SSL_CTX_build_cert_chain(
                  context, SSL_BUILD_CHAIN_FLAG_UNTRUSTED | SSL_BUILD_CHAIN_FLAG_NO_ROOT) != 1) {
    TakeOpenSslError();
    return InvalidArgument("{}", WhyUnsigned(files, authorities, chain));
  }
  ERR_clear_error();
  out->texts = TextsOf(authorities, chain, key.get());
  return out;
}

absl::StatusOr<std::shared_ptr<TlsIdentity>> TlsIdentity::Load(TlsFiles files,
                                                               std::optional<Role> role) {
  std::shared_ptr<TlsIdentity> out(new TlsIdentity(std::move(files), role));
  out->seen_ = LooksOf(out->files_);
  FAIRWAY_ASSIGN_OR_RETURN(out->loaded_, LoadFiles(out->files_, role));
  return out;
}

TlsIdentity::~TlsIdentity() {
  {
    const std::lock_guard lock(mu_);
    ending_ = true;
  }
  end_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Subject TlsIdentity::subject() const {
  const std::lock_guard lock(mu_);
  return loaded_->subject;
}

void TlsIdentity::Watch() {
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void TlsIdentity::Run() {
  ::pthread_setname_np(::pthread_self(), "fairway-tls");
  std::unique_lock lock(mu_);
  do {
    lock.unlock();
    TakeChanges();
    WarnOfExpiry(std::chrono::steady_clock::now());
    lock.lock();
  } while (!end_.wait_for(lock, kLookEvery, [this] { return ending_; }));
}

void TlsIdentity::TakeChanges() {
  std::string looks = LooksOf(files_);
  if (looks == seen_ && fault_.empty()) return;
  seen_ = std::move(looks);
  auto fresh = LoadFiles(files_, role_);
  const Subject present = subject();
  if (fresh.ok() && (*fresh)->subject != present) {
    fresh = InvalidArgument("{}: is the certificate of {}, and this is {}", files_.certificate,
                            Described((*fresh)->subject), Described(present));
  }
  if (!fresh.ok()) {  // which may pass by itself: a certificate may become valid later
    std::string fault = Text(fresh.status());
    if (fault != fault_) spdlog::error("TLS: the files before stay in use: {}", fault);
    fault_ = std::move(fault);
    return;
  }
  fault_.clear();
  warned_.reset();
  const std::lock_guard lock(mu_);
  (*fresh)->texts.change = loaded_->texts.change + 1;
  loaded_ = *std::move(fresh);
  spdlog::info("TLS: {} has been replaced, and is used from now on", files_.certificate);
}

void TlsIdentity::WarnOfExpiry(std::chrono::steady_clock::time_point now) {
  if (warned_ && now - *warned_ < kWarnEvery) return;
  TlsTexts texts;
  {
    const std::lock_guard lock(mu_);
    texts = loaded_->texts;
  }
  warned_ = now;
  const auto today = std::chrono::system_clock::now();
  for (const auto& [path, warning] :
       {std::pair(files_.certificate, ExpiryWarning(texts.certificates, today)),
        {files_.ca, AuthorityWarning(texts.authorities, today)}}) {
    if (!warning.empty()) spdlog::warn("TLS: {} {}", path, warning);
  }
}

TlsTexts TlsIdentity::Texts() {
  const std::lock_guard lock(mu_);
  Watch();
  return loaded_->texts;
}

std::shared_ptr<ssl_ctx_st> TlsIdentity::Context() {
  const std::lock_guard lock(mu_);
  Watch();
  SSL_CTX* const context = loaded_->context.get();
  SSL_CTX_up_ref(context);
  return {context, SSL_CTX_free};
}

namespace {

// "expires on ..., in ..." if less than so many days and a quarter of its time are left.
std::string EndsSoon(X509* certificate, int days_left, std::chrono::system_clock::time_point now) {
  const ASN1_TIME* const end = X509_get0_notAfter(certificate);
  std::unique_ptr<ASN1_TIME, OpenSslDeleter<ASN1_TIME_free>> present(
      ASN1_TIME_set(nullptr, std::chrono::system_clock::to_time_t(now)));
  const auto seconds = [end](const ASN1_TIME* from) {
    int days = 0;
    int rest = 0;
    ASN1_TIME_diff(&days, &rest, from, end);
    return int64_t{days} * 86400 + rest;
  };
  const int64_t left = seconds(present.get());
  if (left <= 0 || left >= int64_t{days_left} * 86400 ||
      4 * left >= seconds(X509_get0_notBefore(certificate)))
    return "";
  return fmt::format("expires on {}, in {}", TimeText(end), Seconds(0, static_cast<int>(left)));
}

}  // namespace

std::string ExpiryWarning(std::string_view certificate, std::chrono::system_clock::time_point now) {
  const CertificatePtr read = ReadCertificate(certificate);
  const std::string soon = read == nullptr ? "" : EndsSoon(read.get(), 30, now);
  return soon.empty() ? "" : soon + ": replace it before (`fairway issue`)";
}

std::string AuthorityWarning(std::string_view authorities,
                             std::chrono::system_clock::time_point now) {
  const CertificatePtr last = ReadCertificate(LastingAuthority(authorities));
  const std::string soon = last == nullptr ? "" : EndsSoon(last.get(), 90, now);
  return soon.empty() ? "" : soon + ": let another CA take over before (docs/operate.md)";
}

std::string LastingAuthority(std::string_view authorities) {
  const std::vector<CertificatePtr> all = ReadCertificates(authorities);
  const auto last = std::ranges::max_element(
      all, {}, [](const CertificatePtr& one) { return TimeOf(X509_get0_notAfter(one.get())); });
  if (last == all.end()) return "";
  const BioPtr out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(out.get(), last->get());
  return PemOf(out.get());
}

absl::StatusOr<std::string> ReadAuthorities(const std::string& path) {
  FAIRWAY_RETURN_IF_ERROR(CertificatesIn(path).status());
  return ReadPem(path);
}

absl::StatusOr<std::string> ReadKeyFile(const std::string& path) {
  FAIRWAY_RETURN_IF_ERROR(ReadPrivateKey(path).status());
  return ReadPem(path);
}

absl::StatusOr<std::shared_ptr<ssl_ctx_st>> ClientContext(const std::string& authorities) {
  ContextPtr context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr)
    return Error(absl::StatusCode::kInternal, "cannot use TLS: {}", TakeOpenSslError());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, OnVerified);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  X509_STORE* const store = SSL_CTX_get_cert_store(context.get());
  for (const CertificatePtr& authority : ReadCertificates(authorities))
    X509_STORE_add_cert(store, authority.get());
  ERR_clear_error();
  return std::shared_ptr<ssl_ctx_st>(context.release(), SSL_CTX_free);
}

absl::StatusOr<Subject> PeerOf(ssl_st* connection) {
  X509* const certificate = SSL_get0_peer_certificate(connection);
  if (certificate == nullptr)
    return Error(absl::StatusCode::kPermissionDenied, "it has shown no certificate");
  return SubjectOf(certificate);
}

CertificateHash HashOfPeer(ssl_st* connection) {
  CertificateHash out{};
  if (X509* const certificate = SSL_get0_peer_certificate(connection))
    X509_digest(certificate, EVP_sha256(), out.data(), nullptr);
  return out;
}

std::string HandshakeFault(ssl_st* connection, const std::string& error) {
  if (const auto* fault = static_cast<std::string*>(SSL_get_ex_data(connection, FaultIndex())))
    return *fault;
  if (error.find("wrong version number") != std::string::npos ||
      error.find("http request") != std::string::npos ||
      error.find("packet length") != std::string::npos) {
    return fmt::format("{}: give both ends --tls-ca, --tls-certificate and --tls-key, or none",
                       kNoTls);
  }
  return error;
}

}  // namespace fairway
