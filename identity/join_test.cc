// SPDX-License-Identifier: Apache-2.0
#include "identity/join.h"

#include <openssl/pem.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "identity/files_for_test.h"
#include "identity/openssl.h"
#include "identity/tls_identity.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(JoinTest, ARequestBecomesTheCertificateOfItsKey) {
  CertificateFiles files;
  const auto asked = MakeRequest();
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_THAT(asked->request, testing::Not(HasSubstr("PRIVATE KEY")));
  const auto made =
      Certify(files.authority(), asked->request, {Role::kWorker, "w7"}, std::chrono::hours(1));
  ASSERT_TRUE(made.ok()) << made.status();
  const auto loaded =
      TlsIdentity::Load({files.Write("ca.pem", files.authority().certificate),
                         files.Write("w7.pem", *made), files.Write("w7.key", asked->key)},
                        Role::kWorker);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->subject(), (Subject{Role::kWorker, "w7"}));
}

TEST(JoinTest, WhatIsNoRequestIsRefused) {
  CertificateFiles files;
  const auto refused = [&](const std::string& request) {
    const auto made =
        Certify(files.authority(), request, {Role::kWorker, "w7"}, std::chrono::hours(1));
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    return Text(made.status());
  };
  EXPECT_THAT(refused(""), HasSubstr("it is no request for a certificate"));
  EXPECT_THAT(refused(files.authority().certificate), HasSubstr("it is no request"));
  EXPECT_THAT(refused(std::string(20000, 'x')), HasSubstr("at most 16384 bytes, this one 20000"));
  // Signed with another key than it is for.
  const KeyPtr own(EVP_EC_gen("P-256")), other(EVP_EC_gen("P-256")), large(EVP_EC_gen("P-384"));
  const auto request = [](EVP_PKEY* key, EVP_PKEY* signing) {
    X509_REQ* const made = X509_REQ_new();
    X509_REQ_set_pubkey(made, key);
    X509_REQ_sign(made, signing, EVP_sha256());
    const BioPtr out(BIO_new(BIO_s_mem()));
    PEM_write_bio_X509_REQ(out.get(), made);
    X509_REQ_free(made);
    return PemOf(out.get());
  };
  EXPECT_THAT(refused(request(own.get(), other.get())), HasSubstr("signed with its own key"));
  EXPECT_THAT(refused(request(large.get(), large.get())), HasSubstr("ECDSA on P-256"));
  const auto bad_name = Certify(files.authority(), request(own.get(), own.get()),
                                {Role::kWorker, "a b"}, std::chrono::hours(1));
  EXPECT_THAT(Text(bad_name.status()), HasSubstr("is no name of a worker"));
  EXPECT_TRUE(Certify(files.authority(), request(own.get(), own.get()), {Role::kWorker, "w7"},
                      std::chrono::hours(1))
                  .ok());
}

TEST(JoinTest, CertificatesHaveHashes) {
  CertificateFiles first, second;
  const std::string both = first.authority().certificate + second.authority().certificate;
  const auto hashes = CertificateHashes(both);
  ASSERT_EQ(hashes.size(), 2u);
  EXPECT_THAT(hashes[0], MatchesRegex("sha256:[0-9a-f]{64}"));
  EXPECT_NE(hashes[0], hashes[1]);
  EXPECT_EQ(CertificateHashes(first.authority().certificate).at(0), hashes[0]);
  EXPECT_TRUE(CertificateHashes("none").empty());
}

}  // namespace
}  // namespace fairway
