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
    auto issuer = Issuer::Open(gate_.get(), &revocations_, options_);
    ASSERT_TRUE(issuer.ok()) << issuer.status();
    issuer_ = *std::move(issuer);
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

  absl::StatusOr<IssuedCertificate> Renew(const std::string& worker, const std::string& request) {
    return issuer_->Renew(worker, CertificateHash(), request);
  }
  absl::Status Counts(const std::string& worker, const std::string& certificate) {
    return revocations_.Check({Role::kWorker, worker}, FactsOf(certificate)->hash);
  }

  CertificateFiles files_;
  Revocations revocations_;
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
  const auto renewed = Renew("w7", next.request);
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
  const absl::Status refused = Renew("w7", MakeRequest()->request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(refused), HasSubstr("has not the CA's key (--tls-ca-key)"));
}

TEST_F(IssuerTest, AWorkerHasSoManyCertificatesAndLeavesOthersTheirs) {
  const std::string request = MakeRequest()->request;
  for (int i = 0; i < CertificateStore::kMostOfWorker; ++i)
    ASSERT_TRUE(Renew("w7", MakeRequest()->request).ok());
  const absl::Status refused = Renew("w7", request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(refused), HasSubstr("worker w7 has 64 certificates, and no more may be"));
  EXPECT_TRUE(Renew("w8", request).ok());
  Open();  // the next process knows it, too
  EXPECT_EQ(Renew("w7", request).status().code(), absl::StatusCode::kResourceExhausted);
}

// As a crash between the two would leave it otherwise.
TEST_F(IssuerTest, ACertificateThatIsNotRecordedUsesNoToken) {
  const Caller caller = Worker("w7");
  for (int i = 0; i < CertificateStore::kMostOfWorker; ++i)
    ASSERT_TRUE(Renew("w7", MakeRequest()->request).ok());
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

TEST_F(IssuerTest, TheSameKeyGetsItsCertificateAgainAndNobodyElseDoes) {
  const Caller caller = Worker("w7");
  const std::string request = MakeRequest()->request;
  const auto first = issuer_->Join(caller, request);
  ASSERT_TRUE(first.ok()) << first.status();
  for (int i = 0; i < 2; ++i) {
    const auto again = issuer_->Join(caller, request);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->certificate, first->certificate);
    EXPECT_THAT(Text(issuer_->Join(caller, MakeRequest()->request).status()),
                HasSubstr("was used as often as it may be, by others"));
    Open();  // also in the next process
  }
  // With another token the same key gets another certificate.
  const auto other = issuer_->Join(Worker("w7"), request);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(other->certificate, first->certificate);
  // A token that was taken back gives nothing again.
  ASSERT_TRUE(gate_->Revoke(caller.token).ok());
  EXPECT_EQ(issuer_->Join(caller, request).status().code(), absl::StatusCode::kUnauthenticated);
}

// Else a worker that cannot write its files would use up what it may have.
TEST_F(IssuerTest, ARenewalWithTheSameKeyGetsTheSameCertificate) {
  const std::string request = MakeRequest()->request;
  const auto first = Renew("w7", request);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Renew("w7", request)->certificate, first->certificate);
  EXPECT_NE(Renew("w8", request)->certificate, first->certificate);
  EXPECT_NE(Renew("w7", MakeRequest()->request)->certificate, first->certificate);
  // Not by way of a token, nor the other way round.
  const auto joined = issuer_->Join(Worker("w7"), request);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_NE(joined->certificate, first->certificate);
  EXPECT_EQ(Renew("w7", request)->certificate, first->certificate);
}

TEST_F(IssuerTest, OfARevokedWorkerOnlyWhatIsIssuedAfterwardsCounts) {
  const auto before = Renew("w7", MakeRequest()->request);
  const auto other = Renew("w8", MakeRequest()->request);
  const std::string issued = MakeCertificate(files_.authority(), {Role::kWorker, "w7"}, hours(1))
                                 ->certificate;  // of which the controller does not know
  const Caller late = Worker("w7");
  EXPECT_TRUE(Counts("w7", before->certificate).ok());
  EXPECT_TRUE(Counts("w7", issued).ok());
  const auto revoked = issuer_->Revoke("w7");
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  EXPECT_EQ(revoked->certificates, 1);
  EXPECT_EQ(revoked->tokens, 1);
  std::string after;
  for (int i = 0; i < 2; ++i) {
    for (const std::string& certificate : {before->certificate, issued}) {
      const absl::Status refused = Counts("w7", certificate);
      EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
      EXPECT_THAT(Text(refused), HasSubstr("the certificate of worker w7 was revoked on 20"));
    }
    EXPECT_TRUE(Counts("w8", other->certificate).ok());
    // It cannot come back by itself.
    EXPECT_EQ(issuer_->Renew("w7", FactsOf(before->certificate)->hash, MakeRequest()->request)
                  .status()
                  .code(),
              absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(issuer_->Join(late, MakeRequest()->request).status().code(),
              absl::StatusCode::kUnauthenticated);
    if (i == 0) {  // but an admin may let it join
      const auto joined = issuer_->Join(Worker("w7"), MakeRequest()->request);
      ASSERT_TRUE(joined.ok()) << joined.status();
      after = joined->certificate;
    }
    EXPECT_TRUE(Counts("w7", after).ok());
    revocations_.Revoke("w7", {});  // the next process begins with what is on the disk
    Open();
  }
  EXPECT_EQ(issuer_->Revoke("a b").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(IssuerTest, WhatWasIssuedIsListedInTurnWithItsEnd) {
  const std::string request = MakeRequest()->request;
  const auto first = Renew("w7", request);
  ASSERT_TRUE(Renew("w8", request).ok());
  ASSERT_TRUE(issuer_->Revoke("w8").ok());
  const auto all = issuer_->List(0, 10);
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 2u);
  const CertificateFacts facts = *FactsOf(first->certificate);
  EXPECT_EQ(all->at(0).worker, "w7");
  EXPECT_EQ(all->at(0).facts.serial, facts.serial);
  EXPECT_EQ(all->at(0).facts.hash, facts.hash);
  EXPECT_EQ(all->at(0).facts.end, facts.end);
  EXPECT_EQ(all->at(0).revoked, std::chrono::sys_seconds());
  EXPECT_NE(all->at(1).revoked, std::chrono::sys_seconds());
  ASSERT_EQ(issuer_->List(all->at(0).id, 10)->size(), 1u);
  ASSERT_EQ(issuer_->List(0, 1)->size(), 1u);
}

}  // namespace
}  // namespace fairway
