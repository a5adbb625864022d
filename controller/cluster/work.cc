// SPDX-License-Identifier: Apache-2.0
// Turns: do the work that operations and events left, one slice of each session after the other.
#include "controller/cluster/work.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <utility>
#include <vector>

#include <absl/container/inlined_vector.h>

#include "base/planted.h"
#include "controller/cluster/ending.h"
#include "controller/cluster/poison.h"
#include "controller/cluster/sessions.h"
#include "controller/cluster/state.h"
#include "controller/cluster/virtual_device.h"

namespace fairway {
namespace {
// Of an ending or a taking back, and for those that wait for code, between two looks at the unit
// count.
constexpr uint64_t kEndingUnits = 32, kLoadedUnits = 32;
// Nodes that are admitted, or launched, at once.
constexpr size_t kNodesAtOnce = 32;
}  // namespace

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
  state_.Publish();
  state_.most_units = std::max(state_.most_units, state_.units - began_);
  state_.work.HandOver();
}

namespace {

void Tell(SessionSink* sink, Answer answer) {
  if (auto* const ended = std::get_if<Answer::Ended>(&answer.what))
    return ended->done(std::move(ended->result));
  if (sink == nullptr) return;
  if (auto* const watched = std::get_if<Answer::Watched>(&answer.what)) {
    sink->OnWatched(answer.session, watched->token, std::move(watched->status));
  } else if (auto* const fetched = std::get_if<Answer::Fetched>(&answer.what)) {
    sink->OnFetched(answer.session, fetched->token, std::move(fetched->bytes));
  } else if (auto* const bound = std::get_if<Answer::Bound>(&answer.what)) {
    sink->OnBound(answer.session, bound->key, std::move(bound->program));
  }
}

}  // namespace

void Cluster::Work::HandOver() {
  if (s.answers.empty() || std::exchange(handing_over_, true)) return;
  while (!s.answers.empty()) {
    Answer answer = std::move(s.answers.front());
    s.answers.pop_front();
    // An earlier answer may have ended the session.
    const auto open = s.sessions.find(answer.session);
    const Session* session = open == s.sessions.end() ? nullptr : &open->second;
    if (Planted(Bug::kAnswerEnded)) session = s.RestOf(answer.session);
    if (session != nullptr) Tell(session->sink, std::move(answer));
  }
  handing_over_ = false;
}

void Cluster::Work::Fetched(SessionId session, uint64_t token, absl::StatusOr<BytesRef> bytes) {
  s.answers.push_back({session, Answer::Fetched{token, std::move(bytes)}});
  if (Planted(Bug::kAnswerReenters)) HandOver();
}

void Cluster::Turn() {
  const Operation operation(*state_);
  state_->work.Turn();
}

uint64_t Cluster::units() const { return state_->units; }

void Cluster::Work::Turn() {
  turn_wanted_ = false;
  Do(s.units + s.options.turn_units);
}

bool Cluster::Work::AnyLeft() const {
  return !s.busy.empty() || !s.to_pump.empty() || s.losses.Unparks() || s.losses.Drops() ||
         s.memory.Looks();
}

void Cluster::Work::GoOn() {
  if (!turn_wanted_) Do(s.operation_ends);
}

void Cluster::Work::Do(uint64_t until) {
  while (AnyLeft() && s.units < until) {
    if (slices_left_ == 0) slices_left_ = s.busy.size();
    for (; slices_left_ > 0 && s.units < until; --slices_left_) {
      const SessionId session = s.busy.front();
      s.busy.pop_front();
      DoSlice(session, until);
    }
    if (slices_left_ > 0) break;  // islands follow in a later turn, once all have had a slice
    s.losses.GoOnDropping(until);
    s.losses.Unpark();
    if (s.memory.Looks()) s.memory.GoOnLooking(std::min(until, s.units + kSliceUnits));
    for (const IslandId id : std::exchange(s.to_pump, {})) {
      Pump(s.islands.at(id), until);
      s.Charge(1);
    }
  }
  s.commands.FlushAll();
  if (!AnyLeft() || Planted(Bug::kForgetTurn)) return;
  turn_wanted_ = true;
  s.actions->WantTurn();
}

void Cluster::Work::DoSlice(SessionId session, uint64_t turn_ends) {
  // References into the map stay valid, unless the session ends and its entry is erased.
  Worklist& list = s.worklists.at(session);
  const uint64_t until =
      Planted(Bug::kEndlessSlice) ? UINT64_MAX : std::min(turn_ends, s.units + kSliceUnits);
  while (!list.empty() && s.units < until) DoItem(session, list);
  if (!list.empty()) {
    if (!Planted(Bug::kForgetBusy)) s.busy.push_back(session);
    return;
  }
  list.queued = false;
  if (!s.sessions.contains(session)) s.worklists.erase(session);
}

void Cluster::Work::DoItem(SessionId session, Worklist& list) {
  s.Charge(1);
  if (!list.endings.empty()) {
    const uint64_t until = s.units + std::min(kEndingUnits, s.options.turn_units);
    if (s.nodes.GoOnEnding(*list.endings.front(), until)) list.endings.pop_front();
  } else if (!list.taking_back.empty()) {
    const uint64_t until = s.units + std::min(kEndingUnits, s.options.turn_units);
    if (s.nodes.GoOnTakingBack(list.taking_back.front(), until)) {
      list.taking_back.pop_front();
      --s.nodes.taking_back;
    }
  } else if (!list.losses.empty()) {
    s.losses.GoOnLoss(session, list);
  } else if (!list.held.empty()) {
    const NodeId id = list.held.front();
    list.held.pop_front();
    if (s.parked.erase(id) > 0) s.nodes.Submit(*s.FindNode(id));
  } else if (!list.loaded.empty()) {
    if (TellLoaded(list.loaded.front())) list.loaded.pop_front();
  } else if (!list.told.empty()) {
    Told told = std::move(list.told.front());
    list.told.pop_front();
    TellEnded(std::move(told));
  } else if (!list.settled.empty()) {
    if (s.groups.TellWaiters(list.settled.front())) list.settled.pop_front();
  } else if (!list.ended_inputs.empty()) {
    const NodeId id = list.ended_inputs.front();
    list.ended_inputs.pop_front();
    if (Node* node = s.FindNode(id)) s.nodes.InputsEnded(*node);
  } else if (!list.launched.empty()) {
    if (s.launches.GoOnLaunched(list.launched.front())) list.launched.pop_front();
  } else if (!list.retiring.empty()) {
    s.programs.GoOnRetiring(session, list);
  } else if (!list.binds.empty()) {
    s.programs.GoOnBind(s.sessions.at(session), list);
  } else if (list.run != nullptr) {
    s.programs.GoOn(session, list);
  } else if (list.request != nullptr) {
    s.requests.GoOnRequest(session, list);
  } else {
    GoOnClosing(list);
  }
}

bool Cluster::Work::TellLoaded(Loaded& loaded) {
  const uint64_t until = s.units + std::min(kLoadedUnits, s.options.turn_units);
  while (s.units < until && loaded.num_told < loaded.waiters.size()) {
    s.Charge(1);
    const Loaded::Waiter& waiter = loaded.waiters[loaded.num_told++];
    Node* const node = s.FindNode(waiter.node);
    if (node == nullptr) continue;
    if (node->attempt != waiter.attempt && !Planted(Bug::kLoadedForAnother)) continue;
    if (loaded.status.ok()) {
      --node->open_installs;
      s.launches.MaybeArrived(*node);
    } else {
      s.nodes.Fail(*node,
                   Annotate(loaded.status, node->name + ": loading on " + s.Where(node->island)),
                   waiter.node);
    }
  }
  return loaded.num_told == loaded.waiters.size();
}

void Cluster::Work::TellEnded(Told told) {
  Node* node = s.FindNode(told.node);
  if (node == nullptr) return;
  // The node may have been taken back since, or have lost this executor.
  if (node->attempt != told.attempt && !Planted(Bug::kEndedForAnother)) return;
  if (told.all == Told::All::kFailed)
    return s.nodes.PartFailed(*node, told.executor, std::move(told.status));
  if (told.all == Told::All::kEnded) return s.nodes.AllEnded(*node);
  if (told.participant >= node->participants.size()) return;
  const Participant& participant = node->participants[told.participant];
  if (participant.executor != told.executor || participant.seq != told.seq) return;
  OutputsFailed(*node, told.participant, std::move(told.failed_outputs));
  if (node->state == NodeState::kPrepared && node->kind == NodeKind::kLaunch) {
    // An executor refused it before its launch, which is a bug; but the node must end.
    s.nodes.Fail(
        *node, told.status.ok() ? absl::InternalError("ended before it was launched") : told.status,
        told.node);
  } else {
    s.nodes.ParticipantEnded(*node, told.participant, std::move(told.status));
  }
}

void Cluster::Work::GoOnClosing(Worklist& list) {
  constexpr int kAtOnce = 16;
  Session& session = list.closing->session;
  if (list.closing->run != nullptr) {
    if (s.programs.GiveUp(*list.closing->run) || Planted(Bug::kCloseLeavesRun))
      list.closing->run.reset();
  } else if (list.closing->request != nullptr) {
    if (Planted(Bug::kLeaveRequest) || list.closing->request->GiveUp())
      list.closing->request.reset();
  } else if (!session.arrays.empty() && !Planted(Bug::kForgetSessionArrays)) {
    for (int i = 0; i < kAtOnce && !session.arrays.empty(); ++i)
      s.views.Drop(session.arrays.TakeFirst());
  } else if (!session.watches.empty()) {
    for (int i = 0; i < kAtOnce && !session.watches.empty(); ++i)
      session.watch_records.Remove(session.watches.extract(session.watches.begin()).mapped().bytes);
  } else if (!session.programs.empty()) {
    list.retiring.push_back(std::move(session.programs.extract(session.programs.begin()).mapped()));
  } else {
    // Younger nodes first, so that nothing is taken back for nodes that end as well.
    const absl::Status closed = absl::CancelledError("the session has ended");
    const uint64_t until = s.units + kSliceUnits;  // nodes may be of many pieces
    for (int i = 0; i < kAtOnce && !Planted(Bug::kCloseLeavesNodes); ++i) {
      const auto has = s.holdings.find(session.id);
      if (has == s.holdings.end()) break;
      const auto next = has->second.nodes.lower_bound(list.closing->below);
      if (next == has->second.nodes.begin()) break;
      const NodeId id = list.closing->below = *std::prev(next);
      // Receives end now, since their sources may compute for long.
      Node& open = *s.FindNode(id);
      const bool receives = open.kind == NodeKind::kReceive && open.behind_transfer;
      if (receives && open.state == NodeState::kLaunched) s.nodes.CancelReceive(open, closed);
      if (receives || open.state != NodeState::kLaunched) s.nodes.Fail(open, closed, id);
      if (i + 1 == kAtOnce || s.units >= until) return;
    }
    s.ForgetHoldings(session.id);
    int32_t slice = -1;
    for (const VirtualDevice& device : session.devices) {
      if (std::exchange(slice, device.slice_index) != device.slice_index)
        --s.islands.at(device.island_id).sessions;
    }
    list.closing.reset();
  }
}

void Cluster::Work::Pump(Island& island, uint64_t until) {
  if (island.telling > 0 && !Planted(Bug::kServeTooSoon)) return;
  if (const absl::Status drained = s.Drained(island); !s.IslandUp(island) || !drained.ok()) {
    const absl::Status& why = drained.ok() ? island.gone : drained;
    if (why.ok()) return;
    const std::vector<NodeId> first = s.admission.Queue(island.id, kNodesAtOnce);
    for (const NodeId id : first) s.nodes.Fail(*s.FindNode(id), why, id);
    if (!first.empty()) s.to_pump.insert(island.id);
    return;
  }
  s.launches.GoOnPreparing(island, std::min(until, s.units + kSliceUnits));
  while (true) {
    if (!s.memory.MakeRoom(island, until)) return;
    // By session: bytes of the commands of those that are admitted. Few, as kNodesAtOnce is.
    absl::InlinedVector<std::pair<SessionId, int64_t>, 4> planned;
    const std::vector<NodeId> admitted =
        s.admission.Admit(island.id, island.large > 0 ? 1 : kNodesAtOnce, [&](NodeId id) {
          const Node& node = *s.FindNode(id);
          auto its = std::find_if(planned.begin(), planned.end(),
                                  [&](const auto& entry) { return entry.first == node.session; });
          if (its == planned.end()) its = planned.insert(its, {node.session, 0});
          const int64_t more = s.commands.BytesOf(node);
          const bool may =
              id == island.room_made_for || s.commands.HasRoom(node, more, its->second);
          if (may) its->second += more;
          return may;
        });
    for (const NodeId id : admitted) {
      Node& node = *s.FindNode(id);
      if (id == island.room_made_for) island.room_made_for = NodeId();
      const bool open = s.losses.open_losses > 0 || s.nodes.taking_back > 0;
      open ? s.losses.AfterLosses(node) : s.nodes.Prepare(node);
    }
    s.Charge(kNodesAtOnce / 8 + s.admission.TakeSteps() / kShardsPerUnit);
    if (s.admission.HasCandidates(island.id)) {
      if (s.units < until) continue;
      s.to_pump.insert(island.id);
      break;
    }
    const std::vector<Admission::Shortage> fresh = s.admission.NewFirsts(island.id, kNodesAtOnce);
    bool again = s.admission.HasNewFirsts(island.id);
    for (const Admission::Shortage& first : fresh) {
      s.Charge(1);
      if (!first.hopeless) continue;
      s.nodes.Fail(*s.FindNode(first.node), s.memory.Exhausted(first, "it can never fit"),
                   first.node);
      again = true;
    }
    const auto oldest = fresh.empty() ? std::nullopt : s.admission.Oldest(island.id);
    if (oldest &&
        std::ranges::any_of(fresh, [&](const auto& first) { return first.node == oldest->node; })) {
      s.memory.BeginSearch(island, *s.FindNode(oldest->node));
      again = true;
    }
    if (!again) {
      // What asked for this pump meanwhile has arrived, and is launched below.
      if (island.victims.empty() && !s.admission.HasCandidates(island.id))
        s.to_pump.erase(island.id);
      break;
    }
    if (s.units >= until) {
      s.to_pump.insert(island.id);
      break;
    }
  }
  if (!island.preparing.empty()) s.to_pump.insert(island.id);
  Grants(island, until);
}

void Cluster::Work::Grants(Island& island, uint64_t until) {
  const size_t most = island.large > 0 ? 1 : kNodesAtOnce;
  for (size_t granted = 0; granted < kNodesAtOnce && (granted == 0 || s.units < until);
       granted += most) {
    const std::vector<Grant> grants = island.sequencer.Step(most);
    s.Charge(island.sequencer.TakeSteps() / kShardsPerUnit);
    for (const Grant& grant : grants) {
      if (Node* node = s.FindNode(grant.node)) s.launches.DoLaunch(*node, grant.launch_id);
    }
    if (grants.size() < most) return;
  }
  s.to_pump.insert(island.id);
}

}  // namespace fairway
