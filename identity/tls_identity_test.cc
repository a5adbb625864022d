// SPDX-License-Identifier: Apache-2.0
#include "identity/tls_identity.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "identity/files_for_test.h"
#include "identity/openssl.h"

namespace fairway {
namespace {

using std::chrono::hours;
using testing::HasSubstr;

const Subject kController{Role::kController, ""};
const Subject kWorker{Role::kWorker, "w0"};

class TlsIdentityTest : public testing::Test {
 protected:
  std::string Fault(const TlsFiles& files, Role role = Role::kController) {
    const auto identity = TlsIdentity::Load(files, role);
    EXPECT_EQ(identity.status().code(), absl::StatusCode::kInvalidArgument);
    return Text(identity.status());
  }
  CertificateFiles files_;
};

TEST_F(TlsIdentityTest, LoadsWhatTheCaHasSigned) {
  const auto identity = TlsIdentity::Load(files_.Files(kWorker), Role::kWorker);
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ((*identity)->subject(), kWorker);
  EXPECT_NE((*identity)->Context(), nullptr);
}

TEST_F(TlsIdentityTest, WithoutARoleNobodyAsksWhomItNamesAndWhoSignedIt) {
  TlsFiles files = files_.Files(kWorker);
  files.ca = "/no/such.pem";
  EXPECT_TRUE(TlsIdentity::Load(files, std::nullopt).ok());
  const auto own = MakeAuthority(hours(1));
  files.certificate = files_.Write("own.pem", own->certificate);
  EXPECT_THAT(Text(TlsIdentity::Load(files, std::nullopt).status()),
              HasSubstr("is not the key of the certificate in " + files.certificate));
  files.key = files_.Write("own.key", own->key);
  EXPECT_TRUE(TlsIdentity::Load(files, std::nullopt).ok());
  ::chmod(files.key.c_str(), 0640);
  EXPECT_THAT(Text(TlsIdentity::Load(files, std::nullopt).status()), HasSubstr("chmod 600 it"));
}

TEST_F(TlsIdentityTest, FaultsNameTheFileAndTheCure) {
  const TlsFiles right = files_.Files(kController);
  TlsFiles files = right;
  files.ca = "/no/such.pem";
  EXPECT_EQ(Fault(files), "/no/such.pem: cannot be read: No such file or directory");
  files.ca = files_.Write("empty.pem", "");
  EXPECT_EQ(Fault(files), files.ca + ": has no certificate (PEM)");
  files.ca = files_.Write("garbage.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
  EXPECT_EQ(Fault(files), files.ca + ": has no certificate (PEM)");
  files.ca = "/dev/zero";
  EXPECT_EQ(Fault(files), "/dev/zero: is no regular file of at most 1 MiB");
  files.ca = files_.Write("other.pem", MakeAuthority(hours(1))->certificate);
  EXPECT_EQ(Fault(files), right.certificate + ": none of the CAs in " + files.ca +
                              " has signed it; it is signed by /CN=Fairway cluster CA, whose "
                              "certificate must be in that file, or behind this one's");

  files = right;
  files.key = right.certificate;
  EXPECT_EQ(Fault(files), files.key + ": has no private key (PEM, no passphrase)");
  files.key = files_.Write("other.key", MakeAuthority(hours(1))->key);
  EXPECT_EQ(Fault(files),
            files.key + ": is not the key of the certificate in " + right.certificate);
  ::chmod(right.key.c_str(), 0640);
  EXPECT_EQ(Fault(right), right.key +
                              ": a private key that other users can reach (mode 640); "
                              "chmod 600 it");

  const TlsFiles worker = files_.Files(kWorker);
  EXPECT_EQ(Fault(worker),
            worker.certificate + ": is the certificate of worker w0, and this is a controller");
  files = worker;
  files.certificate = files.ca;
  EXPECT_THAT(Fault(files), HasSubstr("it names no daemon: its subjectAltName"));
}

TEST_F(TlsIdentityTest, TimesThatAreNotNowAreToldWithTheDifference) {
  const TlsFiles expired = files_.Files(kWorker, hours(-5) + hours(0));
  EXPECT_THAT(Fault(expired, Role::kWorker),
              testing::AllOf(testing::StartsWith(expired.certificate + ": has expired on "),
                             HasSubstr(", 5 hours ago by this host's clock: make a new one")));
}

TEST_F(TlsIdentityTest, FilesThatAreReplacedCountForTheNextConnection) {
  const auto identity = files_.Worker("w0");
  const auto serial = [](const std::shared_ptr<ssl_ctx_st>& context) {
    return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(
                           X509_get0_serialNumber(SSL_CTX_get0_certificate(context.get())))),
                       8);
  };
  const std::string first = serial(identity->Context());
  EXPECT_EQ(serial(identity->Context()), first);
  const TlsFiles fresh = files_.Files(kWorker);
  // The files are looked at once a second.
  const auto changes = [&](const std::string& from) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (serial(identity->Context()) == from && std::chrono::steady_clock::now() < end) {
    }
    return serial(identity->Context()) != from;
  };
  EXPECT_TRUE(changes(first));
  const std::string second = serial(identity->Context());
  // A fault leaves what there was.
  std::ofstream(fresh.certificate) << "garbage";
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  while (std::chrono::steady_clock::now() < end) EXPECT_EQ(serial(identity->Context()), second);
  // Right files count as soon as nothing else is wrong with them.
  ASSERT_EQ(::chmod(fresh.key.c_str(), 0644), 0);
  const Certified third = *MakeCertificate(files_.authority(), kWorker, std::chrono::hours(1));
  std::ofstream(fresh.key) << third.key;
  std::ofstream(fresh.certificate) << third.certificate;
  const auto open = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  while (std::chrono::steady_clock::now() < open) EXPECT_EQ(serial(identity->Context()), second);
  ASSERT_EQ(::chmod(fresh.key.c_str(), 0600), 0);
  EXPECT_TRUE(changes(second));
}

// Waits for a line of the log.
class TlsLog : public TlsIdentityTest {
 protected:
  TlsLog() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)));
  }
  ~TlsLog() override { spdlog::set_default_logger(before_); }
  bool Says(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (std::chrono::steady_clock::now() < end) {
      spdlog::default_logger()->flush();
      if (log_.Text().find(text) != std::string::npos) return true;
    }
    return false;
  }

 private:
  // Which one thread writes and another reads.
  class Lines : public std::stringbuf {
   public:
    std::string Text() {
      const std::lock_guard lock(mutex_);
      return str();
    }

   protected:
    std::streamsize xsputn(const char* text, std::streamsize size) override {
      const std::lock_guard lock(mutex_);
      return std::stringbuf::xsputn(text, size);
    }

   private:
    std::mutex mutex_;
  };
  struct Stream : std::ostream {
    Stream() : std::ostream(&lines) {}
    std::string Text() { return lines.Text(); }
    Lines lines;
  };
  Stream log_;
  const std::shared_ptr<spdlog::logger> before_;
};

TEST_F(TlsLog, FilesThatNameSomebodyElseAreNotTaken) {
  const TlsFiles mine = files_.Files(kWorker);
  const TlsFiles theirs = files_.Files({Role::kWorker, "w1"});
  const auto identity = *TlsIdentity::Load(mine, Role::kWorker);
  identity->Context();
  const uint64_t change = identity->Texts().change;
  std::filesystem::rename(theirs.key, mine.key);
  std::filesystem::rename(theirs.certificate, mine.certificate);
  EXPECT_TRUE(Says("the files before stay in use: " + mine.certificate +
                   ": is the certificate of worker w1, and this is worker w0"));
  EXPECT_EQ(identity->subject(), kWorker);
  EXPECT_EQ(identity->Texts().change, change);
  // The right ones are.
  files_.Files(kWorker);
  EXPECT_TRUE(Says("has been replaced, and is used from now on"));
}

TEST_F(TlsLog, ACertificateThatExpiresSoonIsToldOfWithoutAnyConnection) {
  const Certified made = *MakeCertificate(files_.authority(), kWorker, hours(24));
  const auto after = [&](hours since) {
    return ExpiryWarning(made.certificate, std::chrono::system_clock::now() + since);
  };
  EXPECT_EQ(after(hours(0)), "");
  EXPECT_EQ(after(hours(17)), "");
  EXPECT_THAT(after(hours(18)), testing::AllOf(testing::StartsWith("expires on "),
                                               HasSubstr(": replace it before (`fairway issue`)")));
  EXPECT_THAT(after(hours(19)), HasSubstr("in 5 hours"));
  EXPECT_EQ(after(hours(25)), "");
  const Certified year = *MakeCertificate(files_.authority(), kWorker, hours(24 * 365));
  const auto in_a_year = [&](int days) {
    return ExpiryWarning(year.certificate, std::chrono::system_clock::now() + hours(24 * days));
  };
  EXPECT_EQ(in_a_year(334), "");
  EXPECT_THAT(in_a_year(336), HasSubstr("in 29 days"));
  const TlsFiles soon = files_.Files(kWorker, std::chrono::minutes(15));
  const auto identity = *TlsIdentity::Load(soon, Role::kWorker);
  identity->Context();
  EXPECT_TRUE(Says("TLS: " + soon.certificate + " expires on "));
  EXPECT_EQ(ExpiryWarning("garbage", std::chrono::system_clock::now()), "");
}

TEST_F(TlsLog, CasOfWhichTheLastEndsSoonAreToldOf) {
  const Certified ends = *MakeAuthority(hours(24 * 400)), lasts = *MakeAuthority(hours(24 * 3650));
  const auto after = [](const std::string& authorities, int days) {
    return AuthorityWarning(authorities, std::chrono::system_clock::now() + hours(24 * days));
  };
  EXPECT_EQ(after(ends.certificate, 309), "");
  EXPECT_THAT(after(ends.certificate, 311), HasSubstr(" days: let another CA take over"));
  EXPECT_EQ(after(ends.certificate + lasts.certificate, 399), "");
  EXPECT_EQ(after(lasts.certificate + ends.certificate, 401), "");
  EXPECT_EQ(after("garbage", 0), "");
  EXPECT_EQ(LastingAuthority(ends.certificate + lasts.certificate), lasts.certificate);
  // A CA of an hour, of which a quarter is left.
  TlsFiles files = files_.Files(kWorker);
  const Certified soon = *MakeAuthority(std::chrono::minutes(15));
  const Certified own = *MakeCertificate(soon, kWorker, hours(24));
  files.ca = files_.Write("soon.pem", soon.certificate);
  files.certificate = files_.Write("own.pem", own.certificate + own.key);
  const auto identity = *TlsIdentity::Load(files, Role::kWorker);
  identity->Context();
  EXPECT_TRUE(Says("TLS: " + files.ca + " expires on "));
}

TEST_F(TlsIdentityTest, ACaThatHasExpiredIsToldAsThat) {
  const Certified expired = *MakeAuthority(hours(-5));
  const Certified made = *MakeCertificate(expired, kWorker, hours(24));
  const TlsFiles files{files_.Write("ca.pem", expired.certificate),
                       files_.Write("w0.pem", made.certificate), files_.Write("w0.key", made.key)};
  EXPECT_THAT(Fault(files, Role::kWorker),
              testing::AllOf(testing::StartsWith(files.certificate + ": a CA's certificate in " +
                                                 files.ca + " has expired on "),
                             HasSubstr(", 5 hours ago by this host's clock")));
}

}  // namespace
}  // namespace fairway
