// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/daemon/worker_hub_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// A link whose far end has shown a certificate.
class ProvedLink final : public Link {
 public:
  ProvedLink(std::unique_ptr<Link> link, std::string worker, CertificateHash hash)
      : link_(std::move(link)), worker_(std::move(worker)), hash_(hash) {
    link_->on_frame = [this](Frame frame) { on_frame(std::move(frame)); };
    link_->on_closed = [this](absl::Status status) { on_closed(std::move(status)); };
  }
  void Send(Frame frame) override { link_->Send(std::move(frame)); }
  size_t queued_bytes() const override { return link_->queued_bytes(); }
  void Close() override { link_->Close(); }
  std::string peer() const override { return link_->peer(); }
  std::optional<Subject> subject() const override { return Subject{Role::kWorker, worker_}; }
  CertificateHash certificate() const override { return hash_; }

 private:
  const std::unique_ptr<Link> link_;
  const std::string worker_;
  const CertificateHash hash_;
};

class WorkerHubCertificatesTest : public WorkerHubTest {
 protected:
  struct Asked {
    std::string worker;
    CertificateHash shown;
    std::string request;
    std::function<void(absl::StatusOr<IssuedCertificate>)> done;
  };

  WorkerHubCertificatesTest() {
    options_.renew = [this](const std::string& worker, const CertificateHash& shown,
                            std::string request,
                            std::function<void(absl::StatusOr<IssuedCertificate>)> done) {
      asked_.push_back({worker, shown, std::move(request), std::move(done)});
    };
    options_.revocations = &revocations_;
    hub_ = std::make_unique<WorkerHub>(loop_, options_, this, [this] { return now_; });
  }
  std::unique_ptr<FarEnd> ConnectProved(const std::string& worker, CertificateHash hash = {}) {
    auto pair = MakeLinkPair(loop_);
    auto far = std::make_unique<FarEnd>();
    far->link = std::move(pair.second);
    far->link->on_frame = [f = far.get()](const Frame& frame) { f->OnFrame(frame); };
    far->link->on_closed = [f = far.get()](absl::Status) { f->closed = true; };
    hub_->Accept(std::make_unique<ProvedLink>(std::move(pair.first), worker, hash));
    return far;
  }
  void AskFor(FarEnd& far, const std::string& request) {
    v1::ToController message;
    message.mutable_renew_certificate()->set_request(request);
    far.Send(message);
    Settle();
  }

  // What this end has heard of revocations since it was asked last.
  static std::vector<Revocation> HeardBy(FarEnd& far) {
    std::vector<Revocation> out;
    for (const v1::FromController& message : std::exchange(far.received, {})) {
      if (!message.has_revoked_workers()) continue;
      const auto heard = RevocationsFromProto(message.revoked_workers());
      EXPECT_TRUE(heard.ok()) << heard.status();
      if (heard.ok()) out.insert(out.end(), heard->begin(), heard->end());
    }
    return out;
  }

  std::vector<Asked> asked_;
  Revocations revocations_;
};

TEST_F(WorkerHubCertificatesTest, ARenewalIsForWhomTheConnectionHasProved) {
  const auto far = ConnectProved("w0", {7, 8});
  AskFor(*far, "a request");
  ASSERT_THAT(asked_, SizeIs(1));
  EXPECT_EQ(asked_[0].worker, "w0");
  EXPECT_EQ(asked_[0].shown, (CertificateHash{7, 8}));
  EXPECT_EQ(asked_[0].request, "a request");
  AskFor(*far, "another");  // is not heard
  EXPECT_THAT(asked_, SizeIs(1));
  asked_[0].done(IssuedCertificate{"certificate", "authorities"});
  Settle();
  const v1::FromController answer = far->Next();
  EXPECT_EQ(answer.renewed_certificate().status().code(), 0);
  EXPECT_EQ(answer.renewed_certificate().certificate(), "certificate");
  EXPECT_EQ(answer.renewed_certificate().authorities(), "authorities");
  EXPECT_TRUE(far->closed);
}

TEST_F(WorkerHubCertificatesTest, ARefusalIsAnswered) {
  const auto far = ConnectProved("w0");
  AskFor(*far, "a request");
  asked_.at(0).done(absl::FailedPreconditionError("no key"));
  Settle();
  const v1::FromController answer = far->Next();
  EXPECT_EQ(StatusFromProto(answer.renewed_certificate().status()),
            absl::FailedPreconditionError("no key"));
  EXPECT_TRUE(far->closed);
}

TEST_F(WorkerHubCertificatesTest, WhoHasProvedNothingGetsNoCertificate) {
  const auto far = Connect();
  AskFor(*far, "a request");
  EXPECT_THAT(asked_, SizeIs(0));
  EXPECT_THAT(far->Next().fence().reason(), HasSubstr("certificates are renewed by TLS only"));
}

TEST_F(WorkerHubCertificatesTest, AnAnswerThatComesTooLateIsForNobody) {
  auto far = ConnectProved("w0");
  AskFor(*far, "a request");
  far->link->Close();
  Settle();
  asked_.at(0).done(IssuedCertificate{});
  hub_ = nullptr;
  asked_.at(0).done(IssuedCertificate{});
}

TEST_F(WorkerHubCertificatesTest, ExecutorsHearOfRevocationsWhenTheyRegisterAndWhenOneChanges) {
  const std::chrono::sys_seconds when(std::chrono::seconds(7));
  for (int i = 0; i < 3000; ++i) revocations_.Revoke(fmt::format("old{:04}", i), when);
  const auto executor = ConnectExecutor("w0", 11);
  const auto supervisor = ConnectSupervisor("w0");
  EXPECT_EQ(HeardBy(*executor), revocations_.All());
  EXPECT_THAT(HeardBy(*supervisor), SizeIs(0));  // nobody connects to it
  revocations_.Revoke("w1", when);
  revocations_.Permit("w1", {3}, std::chrono::sys_days(std::chrono::year(2100) / 1 / 1));
  hub_->TellRevocation("w1");
  hub_->TellRevocation("w0");  // was never revoked
  Settle();
  EXPECT_THAT(HeardBy(*executor), testing::ElementsAre(*revocations_.Find("w1")));
  EXPECT_THAT(HeardBy(*supervisor), SizeIs(0));
}

TEST_F(WorkerHubCertificatesTest, AnExecutorThatIsBackHearsOfThemAgain) {
  const auto supervisor = ConnectSupervisor("w0");
  const auto before = ConnectExecutor("w0", 11);
  revocations_.Revoke("w1", {});
  before->link.reset();
  Settle();
  const auto executor = Connect();
  executor->follower = before->follower;
  v1::ToController message;
  v1::ResumeExecutor* const words = message.mutable_resume_executor();
  words->set_protocol(kLinkProtocol);
  words->set_controller_incarnation(options_.controller.value);
  words->set_executor(1);
  words->set_incarnation(11);
  words->set_version(before->follower->version());
  words->set_applied(before->follower->applied());
  executor->Send(message);
  Settle();
  EXPECT_THAT(HeardBy(*executor), testing::ElementsAre(Revocation{.worker = "w1", .when = {}}));
}

TEST_F(WorkerHubCertificatesTest, TheEndOfAWorkerEndsAllItsConnectionsAndNobodyElses) {
  const auto supervisor = ConnectSupervisor("w0");
  const auto executor = ConnectExecutor("w0", 11);
  const auto other_supervisor = ConnectSupervisor("w1");
  const auto other = ConnectExecutor("w1", 12, 101);
  const auto silent = ConnectProved("w0");    // it has said nothing yet
  const auto renewing = ConnectProved("w0");  // it waits for its certificate
  AskFor(*renewing, "a request");
  const auto renewing_other = ConnectProved("w1");
  AskFor(*renewing_other, "a request");
  hub_->EndWorker("w0", "its certificate was revoked");
  Settle();
  ASSERT_THAT(lost_, SizeIs(1));
  EXPECT_EQ(lost_[0].first, 1u);
  EXPECT_THAT(lost_[0].second, HasSubstr("its certificate was revoked"));
  for (const FarEnd* const far : {supervisor.get(), executor.get(), silent.get(), renewing.get()})
    EXPECT_TRUE(far->closed);
  for (const FarEnd* const far : {other_supervisor.get(), other.get(), renewing_other.get()})
    EXPECT_FALSE(far->closed);
  EXPECT_FALSE(hub_->Supervisors().contains("w0"));
  EXPECT_TRUE(hub_->CheckInvariants().ok());
  asked_.at(0).done(IssuedCertificate{"certificate", ""});
  Settle();
  EXPECT_THAT(renewing->received, SizeIs(0));
  hub_->EndWorker("nobody", "it is not there");
}

}  // namespace
}  // namespace fairway
