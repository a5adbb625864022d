// SPDX-License-Identifier: Apache-2.0
// What workers have logged, as the controller asks them for it (docs/design/0088-logs.md).
#include <algorithm>
#include <utility>

#include "base/recent_lines.h"
#include "controller/daemon/worker_hub.h"
#include "controller/daemon/worker_hub_peers.h"
#include "wire/link_codec.h"

namespace fairway {

namespace {

// Workers of the version before do not know the question.
constexpr uint32_t kSendsLines = 14;

}  // namespace

void WorkerHub::AskRecentLines(const std::string& worker, WorkerTailDone done) {
  const auto it = supervisors_.find(worker);
  if (it == supervisors_.end()) {
    return done(Error(absl::StatusCode::kFailedPrecondition,
                      "worker {} is not connected, so only its host has its log: see there whether "
                      "fairway-worker runs",
                      worker));
  }
  const Supervisor& supervisor = *it->second;
  Peer& peer = *peers_.at(supervisor.peer);
  std::string who =
      fmt::format("worker {} (host {}, pid {})", worker, supervisor.host, supervisor.pid);
  if (peer.protocol < kSendsLines) {
    return done(Error(absl::StatusCode::kFailedPrecondition,
                      "{} speaks link protocol {}, and its log can be had from {} on: upgrade it "
                      "(docs/upgrade.md); until then read the log on its host",
                      who, peer.protocol, kSendsLines));
  }
  // It sends heartbeats. Nobody waits for what is known to be silent.
  if (const auto silence = now_() - peer.heard; silence > WorkerLines::kAnswerWait) {
    return done(Error(absl::StatusCode::kAborted,
                      "{} has been silent for {:.0f} s: it is stopped or busy; read its log on its "
                      "host",
                      who, std::chrono::duration<double>(silence).count()));
  }
  const uint64_t id = lines_.Ask(worker, std::move(who), now_(), std::move(done));
  if (id == 0) return;
  v1::FromController message;
  message.mutable_ask_recent_lines()->set_id(id);
  Reply(peer, message);
}

void WorkerHub::OnRecentLines(const Peer& peer, v1::RecentLines lines) {
  const auto it = supervisors_.find(peer.worker);
  if (it == supervisors_.end() || it->second->peer != peer.number) return;
  std::string text = std::move(*lines.mutable_text());
  const size_t more = text.size() - std::min(text.size(), RecentLines::kBytes);
  text.erase(0, more);  // a worker may say anything
  lines_.Answered(peer.worker, lines.id(),
                  {it->second->host, std::move(text), lines.older() || more > 0});
}

std::set<std::string> WorkerHub::Workers() const {
  std::set<std::string> out = Supervisors();
  for (const auto& [worker, id] : executor_of_worker_) out.insert(worker);
  return out;
}

}  // namespace fairway
