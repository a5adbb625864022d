// SPDX-License-Identifier: Apache-2.0
#include "identity/renewal.h"

#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "identity/files_for_test.h"
#include "identity/private_file.h"

namespace fairway {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;

const Subject kRenewing{Role::kWorker, "w0"};

std::string FileText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(CertificateRenewalTest, ItIsDueAtTwoThirdsOfTheLife) {
  CertificateFiles files;
  for (const seconds life : {seconds(30), seconds(hours(10)), seconds(hours(720))}) {
    const auto facts = FactsOf(MakeCertificate(files.authority(), kRenewing, life)->certificate);
    ASSERT_TRUE(facts.ok()) << facts.status();
    EXPECT_EQ(facts->end - RenewalDue(*facts), life / 3);
  }
}

TEST(CertificateRenewalTest, PausesGrowAndEndWithTheCertificate) {
  CertificateFacts facts;
  facts.end = std::chrono::sys_seconds(hours(24 * 365));
  const auto pause = [&](int failures, seconds left) {
    return RetryPause(facts, failures, facts.end - left);
  };
  EXPECT_EQ(pause(1, hours(240)), minutes(1));
  EXPECT_EQ(pause(2, hours(240)), minutes(2));
  EXPECT_EQ(pause(6, hours(240)), minutes(32));
  EXPECT_EQ(pause(7, hours(240)), hours(1));
  EXPECT_EQ(pause(1000, hours(240)), hours(1));
  EXPECT_EQ(pause(7, hours(1)), minutes(6));
  EXPECT_EQ(pause(7, seconds(5)), seconds(1));
  EXPECT_EQ(pause(7, seconds(-500)), seconds(1));  // its clock may be wrong
}

// Whenever the process ends, what is there fits.
TEST(CertificateRenewalTest, TheCertificateAndItsKeyAreReplacedInOneStep) {
  CertificateFiles files;
  const TlsFiles at = files.Files(kRenewing);
  const Certified made = *MakeCertificate(files.authority(), kRenewing, hours(1));
  ASSERT_TRUE(WritePrivate(at.certificate, made.certificate + made.key).ok());
  // The other key file is the one before.
  const auto loaded = TlsIdentity::Load(at, Role::kWorker);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->Texts().certificates, made.certificate);
  ASSERT_TRUE(ReplaceFiles(at, kRenewing, made, files.authority().certificate).ok());
  EXPECT_EQ(FileText(at.key), made.key);
}

TEST(CertificateRenewalTest, WhatDoesNotFitReplacesNothing) {
  CertificateFiles files, others;
  const TlsFiles at = files.Files(kRenewing);
  const std::string before = FileText(at.ca) + FileText(at.certificate) + FileText(at.key);
  const auto refused = [&](const Certified& made, const std::string& authorities) {
    const absl::Status status = ReplaceFiles(at, kRenewing, made, authorities);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(FileText(at.ca) + FileText(at.certificate) + FileText(at.key), before);
    return Text(status);
  };
  const Certified first = *MakeCertificate(files.authority(), kRenewing, hours(1));
  const Certified second = *MakeCertificate(files.authority(), kRenewing, hours(1));
  const std::string ca = files.authority().certificate;
  EXPECT_THAT(refused({first.certificate, second.key}, ca), HasSubstr("is not the key of"));
  EXPECT_THAT(refused(first, others.authority().certificate), HasSubstr("has signed it"));
  EXPECT_THAT(refused(first, ""), HasSubstr("has no certificate"));
  EXPECT_THAT(refused(*MakeCertificate(files.authority(), {Role::kWorker, "w1"}, hours(1)), ca),
              HasSubstr("is the certificate of worker w1, and this is worker w0"));
  EXPECT_THAT(refused(*MakeCertificate(files.authority(), kRenewing, hours(-1)), ca),
              HasSubstr("has expired"));
}

TEST(CertificateRenewalTest, AllCasAreTakenAndWhoCouldReadThemStillCan) {
  CertificateFiles files, others;
  const TlsFiles at = files.Files(kRenewing);
  ASSERT_EQ(::chmod(at.ca.c_str(), 0644), 0);
  const Certified made = *MakeCertificate(files.authority(), kRenewing, hours(1));
  const std::string both = others.authority().certificate + files.authority().certificate;
  ASSERT_TRUE(ReplaceFiles(at, kRenewing, made, both).ok());
  EXPECT_EQ(FileText(at.ca), both);
  struct stat facts {};
  ASSERT_EQ(::stat(at.ca.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0644U);
  ASSERT_EQ(::stat(at.certificate.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
}

TEST(CertificateRenewalTest, ACertificateWithAKeyThatOthersReadIsRefused) {
  CertificateFiles files;
  const TlsFiles at = files.Files(kRenewing);
  const Certified made = *MakeCertificate(files.authority(), kRenewing, hours(1));
  ASSERT_TRUE(WritePrivate(at.certificate, made.certificate + made.key, 0644).ok());
  EXPECT_THAT(Text(TlsIdentity::Load(at, Role::kWorker).status()),
              HasSubstr("a private key that other users can reach (mode 644)"));
}

TEST(CertificateRenewalTest, TheControllersNextCertificateHasItsNamesAndItsLife) {
  CertificateFiles files;
  const Subject controller{Role::kController, ""};
  const TlsFiles at = files.Files(controller);
  const Certified before =
      *MakeCertificate(files.authority(), controller, hours(30), {"here.example", "10.0.0.1"});
  ASSERT_TRUE(WritePrivate(at.certificate, before.certificate).ok());
  ASSERT_TRUE(WritePrivate(at.key, before.key).ok());
  const std::string ca_key = files.Write("ca.key", files.authority().key);
  ASSERT_EQ(RenewController(at, ca_key), absl::OkStatus());
  const auto loaded = TlsIdentity::Load(at, Role::kController);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto was = FactsOf(before.certificate), is = FactsOf((*loaded)->Texts().certificates);
  EXPECT_NE(is->hash, was->hash);
  EXPECT_NE(is->key, was->key);
  EXPECT_EQ(is->end - is->begin, was->end - was->begin);
  EXPECT_EQ(HostsOf((*loaded)->Texts().certificates), HostsOf(before.certificate));
  EXPECT_EQ(FileText(at.ca), files.authority().certificate);

  // With the key of another CA nothing is replaced.
  const std::string text = FileText(at.certificate);
  CertificateFiles others;
  const absl::Status wrong = RenewController(at, others.Write("ca.key", others.authority().key));
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument) << wrong;
  EXPECT_EQ(FileText(at.certificate), text);
}

}  // namespace
}  // namespace fairway
