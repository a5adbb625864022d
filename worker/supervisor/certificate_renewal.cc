// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/certificate_renewal.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/time_text.h"
#include "identity/join.h"
#include "identity/renewal.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kConnectTimeout{5000};
constexpr milliseconds kAnswerTimeout{30000};
// Clocks of hosts may be set meanwhile.
constexpr milliseconds kLongestPause{60000};
constexpr milliseconds kShortestPause{100};
constexpr milliseconds kWhileAsking{1000};
// In which this process has seen the new files.
constexpr milliseconds kUntilSeen{3000};

}  // namespace

CertificateRenewal::CertificateRenewal(EventLoop& loop, std::string controller,
                                       std::shared_ptr<TlsIdentity> tls, Clock now)
    : loop_(loop), controller_(std::move(controller)), tls_(std::move(tls)), now_(std::move(now)) {}

void CertificateRenewal::Look() {
  const auto now = now_();
  auto next = now + kLongestPause;
  if (const auto present = FactsOf(tls_->Texts().certificates); present.ok() && !asking_) {
    next = std::min(next, std::max(RenewalDue(*present), not_before_));
    if (next <= now) Ask(*present);
  }
  if (asking_) next = now + kWhileAsking;
  loop_.PostAfter(std::max(std::chrono::duration_cast<milliseconds>(next - now), kShortestPause),
                  "certificate", [this] { Look(); });
}

void CertificateRenewal::Ask(const CertificateFacts& present) {
  asking_ = true;
  present_ = present;
  const uint64_t attempt = ++attempt_;
  loop_.PostAfter(kAnswerTimeout, "certificate", [this, attempt] {
    if (asking_ && attempt == attempt_)
      Ended(Error(absl::StatusCode::kDeadlineExceeded,
                  "the controller has not answered within {} s", kAnswerTimeout.count() / 1000));
  });
  auto made = MakeRequest(key_);
  if (!made.ok()) return Ended(made.status());
  request_ = std::move(made->request);
  key_ = std::move(made->key);
  ConnectTcp(
      loop_, controller_, kConnectTimeout,
      [this, attempt](absl::StatusOr<std::unique_ptr<Link>> link) {
        if (asking_ && attempt == attempt_) OnConnected(std::move(link));
      },
      TlsUse{tls_, Role::kController});
}

void CertificateRenewal::OnConnected(absl::StatusOr<std::unique_ptr<Link>> link) {
  if (!link.ok()) return Ended(link.status());
  link_ = *std::move(link);
  waiting_ = true;
  link_->on_frame = [this](const Frame& frame) {
    if (!waiting_) return;
    v1::FromController message;
    const absl::Status read = UnpackFrame(frame, &message);
    if (!read.ok()) return Ended(read);
    OnMessage(message);
  };
  link_->on_closed = [this](const absl::Status& status) {
    if (!waiting_) return;
    Ended(Error(absl::StatusCode::kUnavailable, "the controller closed the connection{}{}",
                status.ok() ? "" : ": ", Text(status)));
  };
  v1::ToController message;
  message.mutable_renew_certificate()->set_request(request_);
  link_->Send(PackFrame(message));
}

void CertificateRenewal::OnMessage(const v1::FromController& message) {
  if (message.has_fence())
    return Ended(Error(absl::StatusCode::kFailedPrecondition, "{}", message.fence().reason()));
  if (!message.has_renewed_certificate())
    return Ended(InvalidArgument("the controller sent another message than an answer"));
  const v1::RenewedCertificate& answer = message.renewed_certificate();
  if (const absl::Status status = StatusFromProto(answer.status()); !status.ok())
    return Ended(status);
  waiting_ = false;  // the connection ends now
  disk_.Run([this, attempt = attempt_, subject = tls_->subject(),
             made = Certified{answer.certificate(), key_}, authorities = answer.authorities()] {
    const absl::Status status = ReplaceFiles(tls_->files(), subject, made, authorities);
    loop_.Post("certificate", [this, attempt, status] {
      if (asking_ && attempt == attempt_) Ended(status);
    });
  });
}

void CertificateRenewal::Ended(const absl::Status& status) {
  if (!asking_) return;
  asking_ = waiting_ = false;
  // Posted, because this may be a callback of the link itself.
  if (link_ != nullptr)
    loop_.Post("drop link", [link = std::shared_ptr<Link>(std::move(link_))] {});
  link_ = nullptr;
  const auto now = now_();
  if (status.ok()) {
    failures_ = 0;
    key_.clear();
    refusal_.clear();
    not_before_ = now + kUntilSeen;
    spdlog::info("TLS: the certificate of worker {} is renewed: {}", tls_->subject().name,
                 tls_->files().certificate);
    return;
  }
  const auto pause = RetryPause(present_, ++failures_, now);
  not_before_ = now + pause;
  const std::string text = Text(status);
  // Nothing changes that but the controller's settings: told once.
  if (status.code() == absl::StatusCode::kFailedPrecondition && text == refusal_) return;
  refusal_ = status.code() == absl::StatusCode::kFailedPrecondition ? text : "";
  spdlog::warn(
      "TLS: cannot renew the certificate of worker {}, which expires on {}: {}; trying again in {} "
      "s, and so on",
      tls_->subject().name, TimeText(present_.end), text, pause.count() / 1000);
}

}  // namespace fairway
