// SPDX-License-Identifier: Apache-2.0
// Requests of many arrays: begun, gone on with, answered.
#include "controller/cluster/requests.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/state.h"

namespace fairway {

void Cluster::Requests::Begin(Session& session, std::unique_ptr<LongRequest> request,
                              Cluster::Done done, Cluster::Each each) {
  request->done = std::move(done);
  request->each = std::move(each);
  const uint64_t until = s.units + std::min(kSliceUnits, s.options.turn_units);
  bool over = false;
  while (!over && s.units < until) over = request->GoOn(session);
  if (over) {
    AnswerRequest(session.id, *request);
  } else {
    s.Hold(session.id, request->hold, request->ComputesOn());
    s.WorkOf(session.id).request = std::move(request);
  }
  s.work.GoOn();
}

absl::StatusOr<std::vector<uint64_t>> Cluster::Requests::AtOnce(Session& session,
                                                                LongRequest& request) {
  while (!request.GoOn(session)) {
  }
  s.work.GoOn();
  return std::move(request.result);
}

void Cluster::Requests::AnswerRequest(SessionId session, LongRequest& request) {
  if (request.done == nullptr) return;
  s.answers.push_back({session, Answer::Ended{std::move(request.done), std::move(request.result)}});
}

void Cluster::Requests::AnswerAtOnce(SessionId session, Cluster::Done done, absl::Status refusal) {
  s.answers.push_back({session, Answer::Ended{std::move(done), std::move(refusal)}});
}

void Cluster::Requests::GoOnRequest(SessionId session, Worklist& list) {
  if (!list.request->GoOn(s.sessions.at(session))) return;
  if (!Planted(Bug::kLoseAnswer)) AnswerRequest(session, *list.request);
  list.request.reset();
}

void Cluster::Requests::FinishBusy(SessionId session) {
  const auto list = s.worklists.find(session);
  if (list == s.worklists.end()) return;
  Worklist& left = list->second;
  while (true) {
    if (!left.retiring.empty()) {
      s.programs.GoOnRetiring(session, left);
    } else if (left.run != nullptr) {
      s.programs.GoOn(session, left);
    } else if (left.request != nullptr) {
      GoOnRequest(session, left);
    } else {
      return;
    }
  }
}

}  // namespace fairway
