// SPDX-License-Identifier: Apache-2.0
#include "identity/revocations.h"

#include <chrono>
#include <utility>

#include "base/time_text.h"

namespace fairway {

Revocations::Revocations() : state_(std::make_shared<State>()) {}

void Revocations::Revoke(const std::string& worker, std::chrono::sys_seconds when) {
  Learn({.worker = worker, .when = when, .since = {}});
  if (changed_) changed_(worker);
}

void Revocations::Permit(const std::string& worker, const CertificateHash& hash,
                         std::chrono::sys_seconds end) {
  {
    const std::lock_guard lock(state_->mu);
    const auto it = state_->workers.find(worker);
    if (it == state_->workers.end()) return;
    auto& since = it->second.since;
    std::erase_if(since, [now = std::chrono::system_clock::now()](const auto& certificate) {
      return certificate.second < now;
    });
    since.emplace(hash, end);
  }
  if (changed_) changed_(worker);
}

void Revocations::Learn(Revocation revocation) {
  const std::lock_guard lock(state_->mu);
  std::string worker = revocation.worker;
  state_->workers[std::move(worker)] = std::move(revocation);
}

bool Revocations::Counts(const Subject& subject, const CertificateHash& hash) const {
  if (subject.role != Role::kWorker) return true;
  const auto it = state_->workers.find(subject.name);
  return it == state_->workers.end() || it->second.since.contains(hash);
}

absl::Status Revocations::Check(const Subject& subject, const CertificateHash& hash) const {
  const std::lock_guard lock(state_->mu);
  if (Counts(subject, hash)) return absl::OkStatus();
  return Error(absl::StatusCode::kPermissionDenied,
               "the certificate of worker {} was revoked on {}; if it is to come back, let it join "
               "again (`fairway token create --worker {}`)",
               subject.name, TimeText(state_->workers.at(subject.name).when), subject.name);
}

std::vector<Revocation> Revocations::All() const {
  const std::lock_guard lock(state_->mu);
  std::vector<Revocation> out;
  for (const auto& [_, revocation] : state_->workers) out.push_back(revocation);
  return out;
}

std::optional<Revocation> Revocations::Find(const std::string& worker) const {
  const std::lock_guard lock(state_->mu);
  const auto it = state_->workers.find(worker);
  if (it == state_->workers.end()) return std::nullopt;
  return it->second;
}

std::shared_ptr<void> Revocations::Stand(Subject subject, const CertificateHash& hash,
                                         std::function<void()> end) {
  const std::lock_guard lock(state_->mu);
  const uint64_t number = state_->next++;
  state_->standing.emplace(number, Standing{std::move(subject), hash, std::move(end)});
  return {nullptr, [state = state_, number](void*) {
            const std::lock_guard locked(state->mu);
            state->standing.erase(number);
          }};
}

size_t Revocations::EndRevoked() {
  std::vector<std::function<void()>> ends;
  {
    const std::lock_guard lock(state_->mu);
    for (const auto& [_, one] : state_->standing) {
      if (!Counts(one.subject, one.hash)) ends.push_back(one.end);
    }
  }
  for (const auto& end : ends) end();
  return ends.size();
}

}  // namespace fairway
