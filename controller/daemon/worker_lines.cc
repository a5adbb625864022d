// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/worker_lines.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fairway {

uint64_t WorkerLines::Ask(const std::string& worker, std::string who, Time now,
                          WorkerTailDone done) {
  Question& question = questions_[worker];
  question.waiters.push_back({now + kAnswerWait, std::move(done)});
  if (question.id != 0) return 0;
  question.who = std::move(who);
  question.id = next_++;
  return question.id;
}

void WorkerLines::Answered(const std::string& worker, uint64_t id, const WorkerTail& tail) {
  const auto it = questions_.find(worker);
  if (it == questions_.end() || it->second.id != id) return;
  const Question question = std::move(it->second);
  questions_.erase(it);  // who is answered may ask again
  for (const Waiter& waiter : question.waiters) waiter.done(tail);
}

void WorkerLines::Gone(const std::string& worker) {
  const auto it = questions_.find(worker);
  if (it == questions_.end()) return;
  const Question question = std::move(it->second);
  questions_.erase(it);
  for (const Waiter& waiter : question.waiters) {
    waiter.done(Error(absl::StatusCode::kAborted,
                      "{} went away while it was asked for its log: read it on its host",
                      question.who));
  }
}

void WorkerLines::Tick(Time now) {
  std::vector<std::pair<std::string, WorkerTailDone>> late;
  for (auto& [worker, question] : questions_) {
    auto& waiters = question.waiters;
    const auto patient = std::ranges::find_if(waiters, [&](auto& one) { return one.until > now; });
    for (auto it = waiters.begin(); it != patient; ++it)
      late.emplace_back(question.who, std::move(it->done));
    waiters.erase(waiters.begin(), patient);
  }
  for (const auto& [who, done] : late) {
    done(Error(absl::StatusCode::kAborted,
               "{} has not answered within {} s: it is stopped or busy; read its log on its host",
               who, std::chrono::duration_cast<std::chrono::seconds>(kAnswerWait).count()));
  }
}

}  // namespace fairway
