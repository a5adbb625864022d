// SPDX-License-Identifier: Apache-2.0
#include "identity/issuer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "identity/certificates.h"
#include "identity/database.h"
#include "identity/files_for_test.h"
#include "identity/join.h"
#include "identity/tls_identity.h"

namespace fairway {
namespace {

using std::chrono::hours;
using ::testing::HasSubstr;

class IssuerTest : public ::testing::Test {
 protected:
  IssuerTest() {
    options_.ca = files_.Write("ca.pem", files_.authority().certificate);
    options_.ca_key = files_.Write("ca.key", files_.authority().key);
    options_.lifetime = hours(720);
    directory_ = options_.ca + ".data";
    Open();
  }
  void Open() {
    issuer_ = nullptr;
    gate_ = nullptr;  // whose directory the next one takes
    auto gate = Gate::Open(directory_);
    ASSERT_TRUE(gate.ok()) << gate.status();
    gate_ = *std::move(gate);
    issuer_ = std::make_unique<Issuer>(gate_.get(), options_);
  }
  Caller Worker(const std::string& name) {
    const auto made = gate_->Create(
        {.role = TokenRole::kWorker, .worker = name, .lifetime = hours(1), .uses = 1});
    EXPECT_TRUE(made.ok()) << made.status();
    return {.token = made->kept.record.id,
            .role = TokenRole::kWorker,
            .tenant = "",
            .worker = name,
            .host = ""};
  }

  CertificateFiles files_;
  IssuerOptions options_;
  std::string directory_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<Issuer> issuer_;
};

TEST_F(IssuerTest, AWorkerThatJoinsOrRenewsGetsItsOwnNameAndAllCas) {
  CertificateFiles older;
  const std::string both = files_.authority().certificate + older.authority().certificate;
  options_.ca = files_.Write("ca.pem", both);
  Open();
  const auto request = MakeRequest().value();
  const auto joined = issuer_->Join(Worker("w7"), request.request);
  ASSERT_TRUE(joined.ok()) << joined.status();
  const auto next = MakeRequest().value();
  const auto renewed = issuer_->Renew("w7", next.request);
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  for (const auto& [issued, key] : {std::pair(*joined, request.key), {*renewed, next.key}}) {
    EXPECT_EQ(issued.authorities, both);
    const auto loaded = TlsIdentity::Load(
        {options_.ca, files_.Write("w.pem", issued.certificate + key), ""}, Role::kWorker);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ((*loaded)->subject(), (Subject{Role::kWorker, "w7"}));
  }
}

TEST_F(IssuerTest, AWrongRequestUsesNoToken) {
  const Caller caller = Worker("w7");
  EXPECT_EQ(issuer_->Join(caller, "nothing").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(issuer_->Join(caller, MakeRequest()->request).ok());
  EXPECT_FALSE(issuer_->Join(caller, MakeRequest()->request).ok());
}

TEST_F(IssuerTest, WithoutTheKeyOfTheCaNobodyGetsACertificate) {
  options_.ca_key.clear();
  Open();
  const absl::Status refused = issuer_->Renew("w7", MakeRequest()->request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(refused), HasSubstr("has not the CA's key (--tls-ca-key)"));
}

TEST_F(IssuerTest, AWorkerHasSoManyCertificatesAndLeavesOthersTheirs) {
  const std::string request = MakeRequest()->request;
  for (int i = 0; i < CertificateStore::kMostOfWorker; ++i)
    ASSERT_TRUE(issuer_->Renew("w7", request).ok());
  const absl::Status refused = issuer_->Renew("w7", request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(refused), HasSubstr("worker w7 has 64 certificates, and no more may be"));
  EXPECT_TRUE(issuer_->Renew("w8", request).ok());
  Open();  // the next process knows it, too
  EXPECT_EQ(issuer_->Renew("w7", request).status().code(), absl::StatusCode::kResourceExhausted);
}

// As a crash between the two would leave it otherwise.
TEST_F(IssuerTest, ACertificateThatIsNotRecordedUsesNoToken) {
  const Caller caller = Worker("w7");
  for (int i = 0; i < CertificateStore::kMostOfWorker; ++i)
    ASSERT_TRUE(issuer_->Renew("w7", MakeRequest()->request).ok());
  EXPECT_EQ(issuer_->Join(caller, MakeRequest()->request).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(gate_->List(caller.token - 1, 1).at(0).uses, 1);
}

// A data directory of the version before has tokens, and no table of certificates.
TEST_F(IssuerTest, ADirectoryOfTheVersionBeforeGetsTheNewTables) {
  const Caller caller = Worker("w7");
  {
    const auto database = gate_->database();
    const std::lock_guard lock(database->mutex());
    for (const char* const sql :
         {"DROP TABLE certificates", "DROP TABLE revocations", "PRAGMA user_version = 1"})
      ASSERT_TRUE(Statement(database->handle(), sql).Run().ok());
  }
  Open();
  EXPECT_EQ(gate_->List(0, 10).size(), 1u);
  EXPECT_TRUE(issuer_->Join(caller, MakeRequest()->request).ok());
}

}  // namespace
}  // namespace fairway
