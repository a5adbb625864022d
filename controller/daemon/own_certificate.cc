// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/own_certificate.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/time_text.h"
#include "identity/certificates.h"
#include "identity/renewal.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

// Clocks of hosts may be set meanwhile.
constexpr milliseconds kLongestPause{60000};
constexpr milliseconds kShortestPause{100};
constexpr milliseconds kWhileRenewing{1000};
constexpr milliseconds kPauseBehindTheEnd{60000};
// In which this process has seen the new files.
constexpr milliseconds kUntilSeen{3000};

}  // namespace

OwnCertificate::OwnCertificate(EventLoop& loop, BlockingPool& disk,
                               std::shared_ptr<TlsIdentity> tls, std::string ca_key,
                               std::function<void(const absl::Status&)> record)
    : loop_(loop),
      disk_(disk),
      tls_(std::move(tls)),
      ca_key_(std::move(ca_key)),
      record_(std::move(record)) {}

void OwnCertificate::Look() {
  const auto now = std::chrono::system_clock::now();
  auto next = now + kLongestPause;
  if (const auto present = FactsOf(tls_->Texts().certificates); present.ok() && !renewing_) {
    next = std::min(next, std::max(RenewalDue(*present), not_before_));
    if (next <= now) Renew();
  }
  if (renewing_) next = now + kWhileRenewing;
  loop_.PostAfter(std::max(std::chrono::duration_cast<milliseconds>(next - now), kShortestPause),
                  "certificate", [this] { Look(); });
}

void OwnCertificate::Renew() {
  renewing_ = true;
  disk_.Run([this] {
    const absl::Status status = RenewController(tls_->files(), ca_key_);
    loop_.Post("certificate", [this, status] { Ended(status); });
  });
}

void OwnCertificate::Ended(const absl::Status& status) {
  renewing_ = false;
  const auto now = std::chrono::system_clock::now();
  if (status.ok()) {
    disk_.Run([this] { record_(absl::OkStatus()); });
    failures_ = 0;
    fault_.clear();
    not_before_ = now + kUntilSeen;
    spdlog::info("TLS: the certificate of the controller is renewed: {}",
                 tls_->files().certificate);
    return;
  }
  const auto present = FactsOf(tls_->Texts().certificates);
  auto pause = RetryPause(present.ok() ? *present : CertificateFacts{}, ++failures_, now);
  if (!present.ok() || present->end <= now) pause = std::max(pause, kPauseBehindTheEnd);
  not_before_ = now + pause;
  const std::string text = Text(status);
  if (text == std::exchange(fault_, text)) return;
  disk_.Run([this, status] { record_(status); });
  spdlog::warn(
      "TLS: cannot renew the certificate of the controller{}: {}; trying again in {} s, and so on; "
      "by hand: fairway issue --controller",
      present.ok() ? ", which expires on " + TimeText(present->end) : "", text,
      pause.count() / 1000);
}

}  // namespace fairway
