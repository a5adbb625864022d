// SPDX-License-Identifier: Apache-2.0
// WorkerHub, continued: certificates of workers.
#include <optional>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "controller/daemon/worker_hub.h"
#include "controller/daemon/worker_hub_peers.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

// A message of revocations ends with the worker with which it has so many.
constexpr size_t kRevocationBytes = size_t{32} << 10;

}  // namespace

// Whose certificate it is, the connection has just proved; the request says nothing of that.
void WorkerHub::OnRenewCertificate(Peer& peer, const v1::RenewCertificate& message) {
  const std::optional<Subject> proved = peer.link->subject();
  if (!proved || options_.renew == nullptr)
    return FencePeer(peer,
                     "certificates are renewed by TLS only, and by a controller that has one");
  peer.role = Role::kDone;  // it has no more to say; Tick removes it if no answer comes
  options_.renew(
      proved->name, peer.link->certificate(), message.request(),
      [this, alive = alive_, number = peer.number](absl::StatusOr<IssuedCertificate> issued) {
        if (!*alive) return;
        const auto it = peers_.find(number);
        if (it == peers_.end()) return;
        v1::FromController answer;
        v1::RenewedCertificate* const renewed = answer.mutable_renewed_certificate();
        *renewed->mutable_status() = ToProto(issued.status());
        if (issued.ok()) {
          renewed->set_certificate(std::move(issued->certificate));
          renewed->set_authorities(std::move(issued->authorities));
        }
        Reply(*it->second, answer);
        it->second->link->Close();
      });
}

void WorkerHub::EndWorker(const std::string& worker, const std::string& why) {
  if (Executor* const executor = FindExecutor(worker);
      executor != nullptr && executor->state != Executor::State::kLost)
    EndExecutor(*executor, why);
  pulses_.erase(worker);
  pulse_cut_until_.erase(worker);
  std::vector<Peer*> peers;  // also those that have said nothing yet, or wait for a certificate
  for (const auto& [number, peer] : peers_) {
    const auto proved = peer->link->subject();
    if (peer->worker == worker || (proved && proved->name == worker)) peers.push_back(peer.get());
  }
  for (Peer* const peer : peers) {
    const Role role = peer->role;
    if (role == Role::kDone) {
      peer->link->Close();
      continue;
    }
    FencePeer(*peer, why);
    if (role == Role::kSupervisor) SupervisorEnded(*peer);
    if (role == Role::kRelay) RelayEnded(*peer);
  }
  if (!peers.empty()) spdlog::warn("worker {} is disconnected: {}", worker, why);
}

void WorkerHub::TellRevocations(Peer& peer) {
  if (options_.revocations == nullptr) return;
  v1::FromController message;
  v1::RevokedWorkers& workers = *message.mutable_revoked_workers();
  size_t bytes = 0;
  const auto send = [&] {
    if (workers.workers_size() > 0) Reply(peer, message);
    workers.clear_workers();
    bytes = 0;
  };
  for (const Revocation& one : options_.revocations->All()) {
    v1::RevokedWorkers::Worker* const to = workers.add_workers();
    ToProto(one, to);
    bytes += to->ByteSizeLong();
    if (bytes >= kRevocationBytes ||
        static_cast<size_t>(workers.workers_size()) == kMaxRevokedWorkers)
      send();
  }
  send();
}

void WorkerHub::TellRevocation(const std::string& worker) {
  if (options_.revocations == nullptr) return;
  const auto revocation = options_.revocations->Find(worker);
  if (!revocation.has_value()) return;
  v1::FromController message;
  ToProto(*revocation, message.mutable_revoked_workers()->add_workers());
  for (const auto& [number, peer] : peers_) {
    if (peer->role == Role::kExecutor || peer->role == Role::kRelay) Reply(*peer, message);
  }
}

}  // namespace fairway
