// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/credentials.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "base/host.h"
#include "fairway/session.h"
#include "fairway/v1/client.grpc.pb.h"
#include "identity/files_for_test.h"
#include "identity/token.h"

namespace fairway::client {
namespace {

using ::testing::HasSubstr;

// A gRPC server that refuses all sessions, and shows the certificate of `subject`.
class Server {
 public:
  Server(CertificateFiles& files, const Subject& subject, std::chrono::hours lifetime) {
    const Certified own = MakeCertificate(files.authority(), subject, lifetime).value();
    grpc::SslServerCredentialsOptions options;
    options.pem_key_cert_pairs = {{own.key, own.certificate}};
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  // What a session with it says.
  Status Said(const std::string& tls_ca) const {
    return Connect(HostPort("127.0.0.1", port_), {.tls_ca = tls_ca}).status();
  }

 private:
  int port_ = 0;
  v1::Client::Service service_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(CredentialsTest, OnlyTheControllerIsBelieved) {
  CertificateFiles files;
  const std::string ca = files.Write("ca.pem", files.authority().certificate);
  const Subject controller{Role::kController, ""};
  const Server right(files, controller, std::chrono::hours(1));
  // It was believed: what is missing is the service.
  EXPECT_EQ(right.Said(ca).code(), StatusCode::kUnimplemented) << right.Said(ca).ToString();

  const Server worker(files, {Role::kWorker, "w0"}, std::chrono::hours(1));
  EXPECT_EQ(worker.Said(ca).code(), StatusCode::kUnavailable);
  EXPECT_THAT(worker.Said(ca).message(),
              HasSubstr("the server there is worker w0, not the controller"));

  const Server expired(files, controller, std::chrono::hours(0));
  EXPECT_THAT(expired.Said(ca).message(),
              HasSubstr("the certificate of controller has expired on "));

  CertificateFiles others;
  const std::string other = others.Write("ca.pem", others.authority().certificate);
  EXPECT_THAT(right.Said(other).message(), HasSubstr("certificate of controller is refused: "));
  EXPECT_EQ(right.Said("/no/such.pem").code(), StatusCode::kInvalidArgument);
}

TEST(CredentialsTest, ATokenIsReadFromAFileAndGoesByTlsOnly) {
  CertificateFiles files;
  const std::string ca = files.Write("ca.pem", files.authority().certificate);
  const std::string secret = MakeTokenSecret();
  const std::string token = files.Write("token", secret + "\n");
  const auto both = ReadClientTexts(ca, token, /*flags=*/true);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->token, secret);
  EXPECT_THAT(both->authorities, HasSubstr("BEGIN CERTIFICATE"));
  EXPECT_TRUE(ReadClientTexts("", "", /*flags=*/true)->token.empty());

  const auto said = [&](const std::string& tls_ca, const std::string& token_file, bool flags) {
    return Text(ReadClientTexts(tls_ca, token_file, flags).status());
  };
  EXPECT_THAT(said("", token, true), HasSubstr("--token-file needs --tls-ca: a token goes by TLS"));
  EXPECT_THAT(said("", token, false), HasSubstr("token_file needs tls_ca: a token goes by TLS"));
  EXPECT_THAT(said(ca, ca, true), HasSubstr("--token-file: " + ca + ": it is no token"));
  EXPECT_THAT(said(token, "", false), HasSubstr("tls_ca: " + token + ": has no certificate"));
  const Status connected = Connect("127.0.0.1:1", {.token_file = token}).status();
  EXPECT_EQ(connected.code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fairway::client
