// SPDX-License-Identifier: Apache-2.0
#include "identity/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "identity/openssl.h"

namespace fairway {
namespace {

using std::chrono::hours;
using testing::HasSubstr;

TEST(SubjectTest, UrisNameTheDaemons) {
  EXPECT_EQ(UriOf({Role::kController, ""}), "fairway://controller");
  EXPECT_EQ(UriOf({Role::kWorker, "w0"}), "fairway://worker/w0");
  EXPECT_EQ(*SubjectOfUri("fairway://controller"), (Subject{Role::kController, ""}));
  EXPECT_EQ(*SubjectOfUri("fairway://worker/host-1.x_2"), (Subject{Role::kWorker, "host-1.x_2"}));
  for (const std::string& wrong :
       {std::string(""), std::string("https://worker/w0"), std::string("fairway://worker/"),
        std::string("fairway://worker/a b"), std::string("fairway://worker/a,URI:b"),
        std::string("fairway://worker/a\0b", 20), std::string("fairway://controller/x"),
        "fairway://worker/" + std::string(129, 'a'), std::string(100000, 'x')}) {
    const auto subject = SubjectOfUri(wrong);
    EXPECT_EQ(subject.status().code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_LT(Text(subject.status()).size(), 500u);
  }
}

TEST(CertificatesTest, TheCaSignsWhatNamesADaemon) {
  const Certified authority = *MakeAuthority(hours(48));
  const Certified worker = *MakeCertificate(authority, {Role::kWorker, "w0"}, hours(24));
  const CertificatePtr ca = ReadCertificate(authority.certificate);
  const CertificatePtr made = ReadCertificate(worker.certificate);
  const KeyPtr key = ReadKey(worker.key);
  ASSERT_TRUE(ca != nullptr && made != nullptr && key != nullptr);
  EXPECT_EQ(X509_check_issued(ca.get(), made.get()), X509_V_OK);
  EXPECT_EQ(X509_verify(made.get(), X509_get0_pubkey(ca.get())), 1);
  EXPECT_EQ(X509_check_private_key(made.get(), key.get()), 1);
  EXPECT_EQ(X509_check_ca(ca.get()), 1);
  EXPECT_EQ(X509_check_ca(made.get()), 0);
  EXPECT_LT(X509_cmp_current_time(X509_get0_notBefore(made.get())), 0);
  EXPECT_GT(X509_cmp_current_time(X509_get0_notAfter(made.get())), 0);
  const auto longest = MakeCertificate(authority, {Role::kWorker, std::string(128, 'a')}, hours(1));
  EXPECT_TRUE(longest.ok()) << longest.status();
  // Two certificates of one daemon differ.
  EXPECT_NE(MakeCertificate(authority, {Role::kWorker, "w0"}, hours(24))->certificate,
            worker.certificate);
}

TEST(CertificatesTest, HostsAreNamesOfTheCertificateToo) {
  const Certified authority = *MakeAuthority(hours(48));
  const std::vector<std::string> hosts = {"head.example.com", "10.0.0.7", "2001:db8::1",
                                          "localhost"};
  const Certified made = *MakeCertificate(authority, {Role::kController, ""}, hours(24), hosts);
  EXPECT_EQ(HostsOf(made.certificate), hosts);
  const CertificatePtr read = ReadCertificate(made.certificate);
  EXPECT_EQ(X509_check_host(read.get(), "head.example.com", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_ip_asc(read.get(), "10.0.0.7", 0), 1);
  EXPECT_EQ(X509_check_host(read.get(), "evil.example.com", 0, 0, nullptr), 0);
  EXPECT_THAT(HostsOf(authority.certificate), testing::IsEmpty());
  EXPECT_THAT(HostsOf("garbage"), testing::IsEmpty());
  for (const char* wrong : {"", "a,URI:fairway://worker/w0", "a b", "[::1]", "*"}) {
    EXPECT_THAT(
        Text(MakeCertificate(authority, {Role::kController, ""}, hours(1), {wrong}).status()),
        HasSubstr("is neither an IP address nor a host's name"))
        << wrong;
  }
}

TEST(CertificatesTest, OfSeveralCasTheOneSignsWhoseKeyItIs) {
  const Certified old = *MakeAuthority(hours(48));
  const Certified next = *MakeAuthority(hours(48));
  for (const Certified& authority : {old, next}) {
    const auto made = MakeCertificate({old.certificate + next.certificate, authority.key},
                                      {Role::kWorker, "w0"}, hours(24));
    ASSERT_TRUE(made.ok()) << made.status();
    const CertificatePtr ca = ReadCertificate(authority.certificate);
    EXPECT_EQ(X509_verify(ReadCertificate(made->certificate).get(), X509_get0_pubkey(ca.get())), 1);
  }
}

TEST(CertificatesTest, WhatIsNoCaSignsNothing) {
  const Certified authority = *MakeAuthority(hours(48));
  const Certified other = *MakeAuthority(hours(48));
  const Certified worker = *MakeCertificate(authority, {Role::kWorker, "w0"}, hours(24));
  const auto refused = [](const Certified& by) {
    const auto made = MakeCertificate(by, {Role::kWorker, "w1"}, hours(1));
    return !made.ok() &&
           Text(made.status()) == "what should sign it is no CA's certificate with its key";
  };
  EXPECT_TRUE(refused(worker));
  EXPECT_TRUE(refused({authority.certificate, other.key}));
  EXPECT_TRUE(refused({"", ""}));
  EXPECT_TRUE(refused({"garbage", authority.key}));
  EXPECT_THAT(Text(MakeCertificate(authority, {Role::kWorker, "a b"}, hours(1)).status()),
              HasSubstr("'a b' is no name of a worker"));
}

}  // namespace
}  // namespace fairway
