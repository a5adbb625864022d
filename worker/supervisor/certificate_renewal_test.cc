// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/certificate_renewal.h"

#include <deque>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "identity/files_for_test.h"
#include "identity/join.h"
#include "identity/tls_identity.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

using std::chrono::hours;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr hours kMonth{30 * 24};

// A worker, and a controller that answers as the test says.
class RenewalTest : public ::testing::Test {
 protected:
  using Answer = std::function<v1::FromController(const std::string& request)>;

  RenewalTest() {
    const auto controller = files_.Controller();
    worker_files_ = files_.Files({Role::kWorker, "w0"}, kMonth);
    tls_ = TlsIdentity::Load(worker_files_, Role::kWorker).value();
    server_ = ListenTcp(
                  loop_, "127.0.0.1:0",
                  [this](std::unique_ptr<Link> link) {
                    Link* const at = links_.emplace_back(std::move(link)).get();
                    EXPECT_EQ(at->subject(), (Subject{Role::kWorker, "w0"}));
                    at->on_closed = [](const absl::Status&) {};
                    at->on_frame = [this, at](const Frame& frame) {
                      v1::ToController message;
                      ASSERT_TRUE(UnpackFrame(frame, &message).ok());
                      requests_.push_back(message.renew_certificate().request());
                      if (answer_) at->Send(PackFrame(answer_(requests_.back())));
                      at->Close();
                    };
                  },
                  TlsUse{controller, Role::kWorker})
                  .value();
    renewal_ = std::make_unique<CertificateRenewal>(
        loop_, fmt::format("127.0.0.1:{}", server_->port()), tls_, [this] { return now_; });
    loop_.Post("start", [this] { renewal_->Start(); });
  }

  v1::FromController Renewed(const std::string& request, const Subject& subject) {
    v1::FromController out;
    v1::RenewedCertificate* const to = out.mutable_renewed_certificate();
    to->set_certificate(Certify(files_.authority(), request, subject, kMonth).value());
    to->set_authorities(files_.authority().certificate);
    return out;
  }
  void RunUntil(const std::function<bool()>& until) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    const std::function<void()> look = [&] {
      if (until() || std::chrono::steady_clock::now() > give_up) return loop_.Stop();
      loop_.PostAfter(std::chrono::milliseconds(1), "look", [&] { look(); });
    };
    loop_.Post("look", [&] { look(); });
    loop_.Run();
    EXPECT_TRUE(until());
  }
  // Looks at the certificate once more, as the timer would.
  void LookAgain() {
    loop_.Post("look", [this] { renewal_->Start(); });
    bool done = false;
    loop_.Post("done", [&] { done = true; });
    RunUntil([&] { return done; });
  }
  std::string present() const { return tls_->Texts().certificates; }

  EventLoop loop_;
  CertificateFiles files_;
  TlsFiles worker_files_;
  std::shared_ptr<TlsIdentity> tls_;
  std::unique_ptr<LinkServer> server_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::string> requests_;
  Answer answer_;
  std::chrono::system_clock::time_point now_ = std::chrono::system_clock::now();
  std::unique_ptr<CertificateRenewal> renewal_;
};

TEST_F(RenewalTest, ItAsksAtTwoThirdsOfTheLifeAndTheFilesAreReplaced) {
  answer_ = [this](const std::string& request) { return Renewed(request, {Role::kWorker, "w0"}); };
  now_ += kMonth * 2 / 3 - hours(1);
  LookAgain();
  EXPECT_THAT(requests_, IsEmpty());
  const std::string before = present();
  now_ += hours(2);
  LookAgain();
  RunUntil([&] { return present() != before; });
  EXPECT_THAT(requests_, SizeIs(1));
  // A process that starts now finds files that fit, whichever of them it looks at.
  const auto loaded = TlsIdentity::Load(worker_files_, Role::kWorker);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->Texts().certificates, present());
  // The new one lasts; nobody is asked again.
  now_ = std::chrono::system_clock::now() + kMonth / 2;
  LookAgain();
  EXPECT_THAT(requests_, SizeIs(1));
}

TEST_F(RenewalTest, ARefusalChangesNothingAndIsTriedAgainLater) {
  answer_ = [](const std::string&) {
    v1::FromController out;
    *out.mutable_renewed_certificate()->mutable_status() =
        ToProto(absl::FailedPreconditionError("no key"));
    return out;
  };
  const std::string before = present();
  now_ += kMonth * 3 / 4;
  LookAgain();
  RunUntil([&] { return requests_.size() == 1; });
  RunUntil([&, asked = false]() mutable {
    // Once the refusal has come, it asks again after the pause.
    if (!std::exchange(asked, true)) return false;
    now_ += hours(1);
    renewal_->Start();
    return requests_.size() >= 2;
  });
  // For the same key, so that what it may have been given already is not given twice.
  EXPECT_EQ(*KeyOfRequest(requests_[0]), *KeyOfRequest(requests_[1]));
  EXPECT_EQ(present(), before);
}

TEST_F(RenewalTest, ACertificateOfAnotherOrOfAnotherKeyReplacesNothing) {
  const std::string before = present();
  const CertificateRequest other = MakeRequest().value();
  answer_ = [&](const std::string& request) {
    return requests_.size() % 2 == 1 ? Renewed(request, {Role::kWorker, "w1"})
                                     : Renewed(other.request, {Role::kWorker, "w0"});
  };
  now_ += kMonth * 3 / 4;
  LookAgain();
  RunUntil([&] {
    now_ += hours(1);
    if (requests_.size() < 3) renewal_->Start();
    return requests_.size() >= 3;
  });
  EXPECT_EQ(present(), before);
  EXPECT_TRUE(TlsIdentity::Load(worker_files_, Role::kWorker).ok());
}

}  // namespace
}  // namespace fairway
