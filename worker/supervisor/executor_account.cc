// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/executor_account.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "worker/process/exit_codes.h"

namespace fairway {

void ExecutorAccount::Started(Time now) {
  started_ = now;
  kill_reason_.clear();
  kill_asked_ = false;
  told_.reset();  // its successor tells as much
}

ExecutorAccount::Milliseconds ExecutorAccount::NotStarted() {
  return std::exchange(restart_, std::min(2 * restart_, options_.last_restart));
}

bool ExecutorAccount::Kill(uint64_t wanted, uint64_t present, std::string reason, bool asked) {
  if (present != wanted) return false;
  kill_reason_ = std::move(reason);
  kill_asked_ = asked;
  return true;
}

ExecutorAccount::Verdict ExecutorAccount::Ended(const ProcessEnd& end, Time now, bool stopping) {
  ever_registered_ = ever_registered_ || end.incarnation != 0;
  Verdict verdict;
  verdict.cause = Cause(end);
  if (!kill_reason_.empty() && end.signal != 0)
    verdict.cause += " by its supervisor: " + kill_reason_;
  verdict.hopeless = !ever_registered_ && end.signal == 0 &&
                     (end.exit_code == kExitNoPlugin || end.exit_code == kExitPortTaken ||
                      end.exit_code == kExitBadFlags);
  verdict.asked = end.exit_code == kExitAsked || (kill_asked_ && end.signal == SIGKILL);
  verdict.late = end.exit_code == kExitDrainTimeout || !kill_reason_.empty();
  if (verdict.asked || now - started_ > options_.stable_after) restart_ = options_.first_restart;
  verdict.restart_in = restart_;
  if (!verdict.asked && !stopping) restart_ = std::min(2 * restart_, options_.last_restart);

  v1::ExecutorDied died;
  died.set_incarnation(end.incarnation);
  died.set_signal(end.signal);
  died.set_exit_code(end.exit_code);
  died.set_cause(verdict.cause);
  for (const std::string& line : end.last_lines) died.add_last_lines(line);
  died.set_restart_in_ms(stopping || verdict.hopeless ? -1 : verdict.restart_in.count());
  died.set_asked(verdict.asked);
  deaths_.push_back(std::move(died));
  if (deaths_.size() > kMaxDeaths) deaths_.pop_front();
  return verdict;
}

std::deque<v1::ExecutorDied> ExecutorAccount::TakeDeaths() {
  if (!deaths_.empty()) told_ = deaths_.back();
  return std::exchange(deaths_, {});
}

void ExecutorAccount::LinkEnded() {
  if (told_) deaths_.push_front(*std::exchange(told_, std::nullopt));
}

}  // namespace fairway
