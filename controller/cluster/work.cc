// SPDX-License-Identifier: Apache-2.0
// Turns: do the work that operations and events left, one slice of each session after the other.
#include "controller/cluster/work.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/planted.h"
#include "controller/cluster/poison.h"
#include "controller/cluster/sessions.h"
#include "controller/cluster/state.h"

namespace fairway {

Worklist::Worklist() = default;
Worklist::~Worklist() = default;

Cluster::Operation::Operation(State& state) : state_(state), began_(state.units) {
  assert((!state_.operating || Planted(Bug::kAnswerReenters)) && "an answer re-entered the core");
  if (state_.operating) state_.reentered = true;
  state_.operating = true;
  state_.operation_ends = state_.units + state_.options.turn_units;
  state_.Charge(1);
}

Cluster::Operation::~Operation() {
  state_.operating = false;
  state_.most_units = std::max(state_.most_units, state_.units - began_);
  state_.HandOver();
}

void Cluster::State::HandOver() {
  if (answers.empty() || std::exchange(handing_over, true)) return;
  while (!answers.empty()) {
    Answer answer = std::move(answers.front());
    answers.pop_front();
    // An earlier answer may have ended the session.
    if (!sessions.contains(answer.session) && !Planted(Bug::kAnswerEnded)) continue;
    if (answer.done != nullptr) {
      answer.done();
    } else if (!answer.fetch) {
      actions->OnWatched(answer.session, answer.token, std::move(answer.status));
    } else if (answer.status.ok()) {
      actions->OnFetched(answer.session, answer.token, std::move(answer.bytes));
    } else {
      actions->OnFetched(answer.session, answer.token, std::move(answer.status));
    }
  }
  handing_over = false;
}

void Cluster::State::Fetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes) {
  answers.push_back({session, token, bytes.status(), bytes.ok() ? *std::move(bytes) : nullptr,
                     /*fetch=*/true, nullptr});
  if (Planted(Bug::kAnswerReenters)) HandOver();
}

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
    s.WorkOf(session.id).request = std::move(request);
  }
  s.Settle();
}

absl::StatusOr<std::vector<uint64_t>> Cluster::Requests::AtOnce(Session& session,
                                                                LongRequest& request) {
  while (!request.GoOn(session)) {
  }
  s.Settle();
  return std::move(request.result);
}

void Cluster::Requests::AnswerRequest(SessionId session, LongRequest& request) {
  if (request.done == nullptr) return;
  Answer& answer = s.answers.emplace_back();
  answer.session = session;
  answer.done = [done = std::move(request.done), result = std::move(request.result)]() mutable {
    done(std::move(result));
  };
}

void Cluster::Requests::AnswerAtOnce(SessionId session, Cluster::Done done, absl::Status refusal) {
  Answer& answer = s.answers.emplace_back();
  answer.session = session;
  answer.done = [done = std::move(done), refusal = std::move(refusal)] { done(refusal); };
}

void Cluster::Requests::GoOnRequest(SessionId session, Worklist& list) {
  if (!list.request->GoOn(s.sessions.at(session))) return;
  if (!Planted(Bug::kLoseAnswer)) AnswerRequest(session, *list.request);
  list.request.reset();
}

void Cluster::Requests::FinishBusy(SessionId session) {
  const auto list = s.work.find(session);
  if (list == s.work.end()) return;
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

bool Cluster::Sessions::Busy(SessionId session) const {
  const auto list = state_->work.find(session);
  return list != state_->work.end() && list->second.busy();
}

Worklist& Cluster::State::WorkOf(SessionId session) {
  Worklist& list = work[session];
  if (!std::exchange(list.queued, true)) busy.push_back(session);
  return list;
}

void Cluster::Turn() {
  const Operation operation(*state_);
  state_->turn_wanted = false;
  state_->DoWork(state_->units + state_->options.turn_units);
}

uint64_t Cluster::units() const { return state_->units; }

void Cluster::State::Settle() {
  if (!turn_wanted) DoWork(operation_ends);
}

void Cluster::State::DoWork(uint64_t until) {
  while (HasWork() && units < until) {
    if (slices_left == 0) slices_left = busy.size();
    for (; slices_left > 0 && units < until; --slices_left) {
      const SessionId session = busy.front();
      busy.pop_front();
      DoSlice(session, until);
    }
    if (slices_left > 0) break;  // islands follow in a later turn, once all have had a slice
    losses.Unpark();
    for (const IslandId id : std::exchange(to_pump, {})) {
      Pump(islands.at(id), until);
      Charge(1);
    }
  }
  commands.FlushAll();
  if (!HasWork() || Planted(Bug::kForgetTurn)) return;
  turn_wanted = true;
  actions->WantTurn();
}

void Cluster::State::DoSlice(SessionId session, uint64_t turn_ends) {
  // References into the map stay valid, unless the session ends and its entry is erased.
  Worklist& list = work.at(session);
  const uint64_t until =
      Planted(Bug::kEndlessSlice) ? UINT64_MAX : std::min(turn_ends, units + kSliceUnits);
  while (!list.empty() && units < until) DoItem(session, list);
  if (!list.empty()) {
    if (!Planted(Bug::kForgetBusy)) busy.push_back(session);
    return;
  }
  list.queued = false;
  if (!sessions.contains(session)) work.erase(session);
}

void Cluster::State::DoItem(SessionId session, Worklist& list) {
  Charge(1);
  if (!list.losses.empty()) {
    losses.GoOnLoss(session, list);
  } else if (!list.held.empty()) {
    const NodeId id = list.held.front();
    list.held.pop_front();
    if (parked.erase(id) > 0) nodes.Submit(*FindNode(id));
  } else if (!list.told.empty()) {
    Told told = std::move(list.told.front());
    list.told.pop_front();
    told.what == Told::What::kLoaded ? TellLoaded(told) : TellEnded(std::move(told));
  } else if (!list.settled.empty()) {
    if (groups.TellWaiters(list.settled.front())) list.settled.pop_front();
  } else if (!list.ended_inputs.empty()) {
    const NodeId id = list.ended_inputs.front();
    list.ended_inputs.pop_front();
    if (Node* node = FindNode(id)) nodes.InputsEnded(*node);
  } else if (!list.retiring.empty()) {
    programs.GoOnRetiring(session, list);
  } else if (!list.binds.empty()) {
    programs.GoOnBind(sessions.at(session), list);
  } else if (list.run != nullptr) {
    programs.GoOn(session, list);
  } else if (list.request != nullptr) {
    requests.GoOnRequest(session, list);
  } else {
    GoOnClosing(list);
  }
}

void Cluster::State::TellLoaded(const Told& told) {
  Node* node = FindNode(told.node);
  if (node == nullptr) return;
  if (node->attempt != told.attempt && !Planted(Bug::kLoadedForAnother)) return;
  if (told.status.ok()) {
    --node->open_installs;
    launches.MaybeArrived(*node);
  } else {
    nodes.Fail(*node, Annotate(told.status, node->name + ": loading on " + Where(node->island)),
               told.node);
  }
}

void Cluster::State::TellEnded(Told told) {
  Node* node = FindNode(told.node);
  if (node == nullptr) return;
  // The node may have been taken back since, or have lost this executor.
  if (node->attempt != told.attempt && !Planted(Bug::kEndedForAnother)) return;
  if (told.participant >= node->participants.size()) return;
  const Participant& participant = node->participants[told.participant];
  if (participant.executor != told.executor || participant.seq != told.seq) return;
  OutputsFailed(*node, told.participant, std::move(told.failed_outputs));
  if (node->state == NodeState::kPrepared && node->kind == NodeKind::kLaunch) {
    // An executor refused it before its launch, which is a bug; but the node must end.
    nodes.Fail(*node,
               told.status.ok() ? absl::InternalError("ended before it was launched") : told.status,
               told.node);
  } else {
    nodes.ParticipantEnded(*node, told.participant, std::move(told.status));
  }
}

}  // namespace fairway
