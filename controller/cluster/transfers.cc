// SPDX-License-Identifier: Apache-2.0
// Moving shards: the receiver pulls, and the source answers when it is ready (docs/architecture.md,
// "Links"). A transfer's id is made of its node's id and of how often that was taken back, so that
// late pulls of one attempt are not taken for another's.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/planted.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/state.h"

namespace fairway {
namespace {

constexpr int kAttemptShift = 48;
// A shard of an upload up to this size is sent once per device. A larger one is sent once per
// executor, which copies it to its other devices.
constexpr int64_t kRepeatedBytes = 256;
// A fetch costs one unit per 2^18 bytes, at most kFetchUnits, so a turn begins a few hundred MiB of
// fetches.
constexpr int kFetchedBytesOfAUnit = 18;
constexpr int64_t kFetchUnits = 1000;
// What fetched bytes count for, at most: larger blocks come out of the memory for bytes in transit,
// or are files.
constexpr int64_t kMostCharged = int64_t{1} << 20;

TransferId TransferOf(const Node& node) {
  return TransferId(node.id.value + (node.attempt << kAttemptShift));
}
NodeId NodeOf(TransferId transfer) {
  return NodeId(transfer.value & ((uint64_t{1} << kAttemptShift) - 1));
}

// The receiver's ticket for a port with this key.
Ticket TicketOf(const PrepareReceive& command, const PortKey& key, const Executor& receiver) {
  const uint64_t other = Planted(Bug::kTicketOfAnother) ? 1 : 0;
  return TicketFor(key, TransferId(command.transfer.value + other), receiver.spec.incarnation);
}

// The bytes, which keep the charge of their fetch until nobody has them any more.
BytesRef Charged(BytesRef bytes, std::shared_ptr<void> charge) {
  if (charge.use_count() == 0) return bytes;  // what it points at is null
  char* const data = const_cast<char*>(bytes->data());
  const size_t size = bytes->size();
  return Blob::Adopt(data, size, [bytes = std::move(bytes), charge = std::move(charge)] {});
}

}  // namespace

Cluster::Transfers::Transfers(State& state)
    : s(state),
      fetched_(std::make_shared<MemoryBudget>(state.options.fetched_memory, state.options.memory)) {
}

std::shared_ptr<MemoryBudget> Cluster::Transfers::Share() const {
  return std::make_shared<MemoryBudget>(fetched_);
}

void Cluster::Transfers::PrepareSends(Node& node) {
  const Group& out = *s.FindGroup(node.outputs[0]);
  std::map<ExecutorId, PrepareSend> sends;
  for (size_t i = 0; i < node.sources.size(); ++i) {
    const ShardRef from = node.sources[i];
    const ExecutorId source = s.FindGroup(from.group)->places[from.shard].executor;
    if (source == out.places[node.OutOf(i)].executor) continue;
    PrepareSend& send = sends[source];
    send.transfer = TransferOf(node);
    send.items.push_back({static_cast<int32_t>(i), from, std::nullopt});
    if (!node.pieces.empty()) send.items.back().box = node.pieces[i].from;
  }
  for (auto& [id, send] : sends) s.commands.Send(s.executors.at(id), std::move(send), node.session);
  if (node.is_upload && !IsInline(node)) s.actions->OfferUpload(TransferOf(node), node.blobs);
}

bool Cluster::Transfers::IsInline(const Node& upload) const {
  const SharedVector<Place>& places = s.all_groups.at(upload.outputs[0])->places;
  return std::all_of(places.begin(), places.end(), [&](const Place& place) {
    return place.bytes <= s.options.inline_upload_bytes;
  });
}

ShardSource Cluster::Transfers::SourceOf(const Node& node, size_t i, const Executor& receiver,
                                         const PrepareReceive& command) {
  ShardSource source;
  const ShardRef from = node.sources[i];
  const Executor& owner = s.executors.at(s.FindGroup(from.group)->places[from.shard].executor);
  if (owner.id == receiver.id) {
    source.kind = ShardSource::Kind::kLocal;
    source.shard = from;
  } else {
    source.kind = ShardSource::Kind::kPeer;
    source.endpoint = owner.spec.data_endpoint;
    source.incarnation = owner.spec.incarnation;
    source.index = static_cast<int32_t>(i);
    // The shards of one owner often follow each other, and have one ticket.
    const ShardSource* const before = command.sources.empty() ? nullptr : &command.sources.back();
    const bool same = before != nullptr && before->kind == ShardSource::Kind::kPeer &&
                      before->incarnation == source.incarnation &&
                      before->endpoint == source.endpoint;
    source.ticket = same ? before->ticket : TicketOf(command, owner.spec.data_key, receiver);
  }
  return source;
}

void Cluster::Transfers::AddPieces(const Node& node, int32_t shard, PrepareReceive& command) {
  const Group& out = *s.FindGroup(node.outputs[0]);
  const Executor& receiver = s.executors.at(out.places[shard].executor);
  const auto position = static_cast<int32_t>(command.out.shards.size() - 1);
  const size_t before = command.sources.size();
  // The pieces are in the order of the shards.
  const auto first = std::lower_bound(node.pieces.begin(), node.pieces.end(), shard,
                                      [](const Piece& piece, int32_t s) { return piece.out < s; });
  for (auto i = static_cast<size_t>(first - node.pieces.begin());
       i < node.pieces.size() && node.pieces[i].out == shard; ++i) {
    command.pieces.push_back(node.pieces[i]);
    command.pieces.back().out = position;
    command.sources.push_back(SourceOf(node, i, receiver, command));
  }
  if (command.sources.size() > before) return;
  // A shard without bytes.
  ShardSource nothing;
  nothing.kind = ShardSource::Kind::kInline;
  nothing.bytes = Blob::Make(0);
  command.sources.push_back(std::move(nothing));
  command.pieces.push_back({position, Box::Whole(1, {0}), Box::Whole(1, {0})});
}

void Cluster::Transfers::PrepareReceiveOn(Node& node, size_t participant,
                                          const std::vector<int32_t>& shards) {
  const Participant& part = node.participants[participant];
  Executor& executor = s.executors.at(part.executor);
  const Group& out = *s.FindGroup(node.outputs[0]);
  PrepareReceive command;
  command.node = node.id;
  command.seq = part.seq;
  command.transfer = TransferOf(node);
  command.out = {out.id, out.dtype, out.memory_kind, {}};
  std::map<int32_t, int32_t> first_with_blob;
  for (const int32_t shard : shards) {
    const Place& place = out.places[shard];
    command.out.shards.push_back({shard, place.ordinal, out.shape(shard)});
    ShardSource source;
    if (node.is_upload) {
      const int32_t blob = node.blob_of_shard[shard];
      const auto [first, fresh] = first_with_blob.emplace(blob, shard);
      if (place.bytes <= (fresh ? s.options.inline_upload_bytes : kRepeatedBytes)) {
        source.kind = ShardSource::Kind::kInline;
        source.bytes = node.blobs[blob];
        s.ChargeBytes(source.bytes->size());
      } else if (fresh) {
        source.kind = ShardSource::Kind::kController;
        source.index = blob;
        source.ticket = TicketOf(command, s.options.data_key, executor);
      } else {
        source.kind = ShardSource::Kind::kLocal;
        source.shard = {out.id, first->second};
      }
    } else if (node.remade) {
      AddPieces(node, shard, command);
      continue;
    } else {
      source = SourceOf(node, static_cast<size_t>(shard), executor, command);
    }
    command.sources.push_back(std::move(source));
  }
  // A stored upload is placed for its first reader.
  command.has_reader = node.is_upload && !node.reads.empty();
  s.ChargeNamed(command.out.shards.size());
  s.commands.Send(executor, std::move(command), node.session);
}

void Cluster::Transfers::EndTransfer(const Node& node) {
  const TransferId transfer = TransferOf(node);
  if (node.kind == NodeKind::kFetch) {
    if (Planted(Bug::kFreeUnderTransfer) && s.FindGroup(node.fetched.group) == nullptr) return;
    s.commands.Send(
        s.executors.at(s.FindGroup(node.fetched.group)->places[node.fetched.shard].executor),
        EndSend{transfer}, node.session);
    return;
  }
  if (node.is_upload) {
    s.actions->WithdrawUpload(transfer);
    return;
  }
  std::set<ExecutorId> sources;
  const Group& out = *s.FindGroup(node.outputs[0]);
  for (size_t i = 0; i < node.sources.size(); ++i) {
    const ShardRef from = node.sources[i];
    const ExecutorId source = s.FindGroup(from.group)->places[from.shard].executor;
    if (source != out.places[node.OutOf(i)].executor) sources.insert(source);
  }
  for (const ExecutorId id : sources)
    s.commands.Send(s.executors.at(id), EndSend{transfer}, node.session);
}

void Cluster::Arrays::Fetch(SessionId session, uint64_t token, uint64_t handle) {
  const Operation operation(*state_);
  State& s = *state_;
  const absl::StatusOr<Array*> array = s.FindArray(session, handle);
  absl::Status status = array.status();
  if (status.ok()) status = (*array)->error;
  if (status.ok()) status = s.views.CheckUsable(**array, handle);
  if (status.ok() && (*array)->shards.size() != 1 && !(*array)->spec.sharding.fully_replicated())
    status = InvalidArgument("fetch: array {} has {} different shards; fetch them one by one",
                             handle, (*array)->shards.size());
  if (!status.ok()) {
    s.work.Fetched(session, token, status);
    return;
  }
  const ShardRef ref = (*array)->shards[0];
  Group& group = *s.FindGroup(ref.group);
  if (group.state == GroupState::kFailed) {
    s.work.Fetched(session, token, group.error);
    return;
  }
  if (group.state == GroupState::kReady) {
    if (BytesRef bytes = s.groups.Inlined(group, ref.shard)) {
      ++s.transfers.inline_hits;
      s.ChargeBytes(bytes->size());
      s.work.Fetched(session, token, std::move(bytes));
      return;
    }
  }
  Node& node = s.nodes.Make(session, NodeKind::kFetch, group.island, "fetch");
  node.fetched = ref;
  node.token = token;
  if (!(Planted(Bug::kFreeUnderTransfer))) node.reads = {ref.group};
  Nodes::Weigh(s.sessions.at(session), node);
  s.nodes.Enqueue(node);
  s.work.GoOn();
}

void Cluster::Transfers::StartFetch(Node& node) {
  Group* group = s.FindGroup(node.fetched.group);
  if (group == nullptr) {
    s.nodes.Fail(node, absl::InternalError("the array was freed under its fetch"), node.id);
    return;
  }
  const auto session = s.sessions.find(node.session);
  if (session == s.sessions.end()) {
    s.nodes.Fail(node, absl::CancelledError("the session has ended"), node.id);
    return;
  }
  if (!MayFetch(session->second)) {
    SetPaced(node, true);
    return;
  }
  const Place& place = group->places[node.fetched.shard];
  if (place.bytes >= s.options.counted_fetch_bytes) {
    const int64_t counted = std::min(place.bytes, kMostCharged);
    session->second.fetched->Take(counted);
    node.charge = {nullptr, [fetched = session->second.fetched, counted](void*) {
                     fetched->Release(counted);
                   }};
  }
  BytesRef bytes = s.groups.Inlined(*group, node.fetched.shard);
  if (bytes != nullptr) {
    ++inline_hits;
    s.ChargeBytes(bytes->size());
  } else if (place.bytes == 0) {
    bytes = Blob::Make(0);
  }
  if (bytes != nullptr) {
    s.work.Fetched(node.session, node.token, Charged(std::move(bytes), std::move(node.charge)));
    s.nodes.Conclude(node, absl::OkStatus(), node.id);
    return;
  }
  s.nodes.Move(node, NodeState::kPrepared);
  ++executor_fetches;
  node.pulling = place.bytes;
  session->second.fetching += node.pulling;
  s.Charge(static_cast<uint64_t>(std::min(place.bytes >> kFetchedBytesOfAUnit, kFetchUnits)));
  const TransferId transfer = TransferOf(node);
  s.commands.Send(s.executors.at(place.executor), PrepareSend{transfer, {{0, node.fetched}}},
                  node.session);
  s.actions->PullToHost(transfer, place.executor, 0, place.bytes);
  WakeFetch(node.session);
}

// A session of which nobody has anything may always begin one, whatever others have.
bool Cluster::Transfers::MayFetch(const Session& session) const {
  if (s.commands.Wait(session.id)) return false;
  if (session.fetched->used() == 0 && session.fetching == 0) return true;
  return session.fetching < s.options.fetching_bytes && !session.fetched->over();
}

void Cluster::Transfers::SetPaced(Node& node, bool paced) {
  if (std::exchange(node.paced, paced) == paced) return;
  s.memory.Moved(node.id);
  if (paced) {
    waiting_[node.session].insert(node.id);
  } else if (const auto waiting = waiting_.find(node.session);
             waiting->second.erase(node.id) > 0 && waiting->second.empty()) {
    waiting_.erase(waiting);
  }
  for (const GroupId id : node.reads) s.groups.CountQueued(*s.FindGroup(id), paced);
}

void Cluster::Transfers::WakeFetch(SessionId id) {
  const auto waiting = waiting_.find(id);
  const auto session = s.sessions.find(id);
  if (waiting == waiting_.end() || session == s.sessions.end() || !MayFetch(session->second) ||
      Planted(Bug::kPacedForEver))
    return;
  Node& next = *s.FindNode(*waiting->second.begin());
  SetPaced(next, false);
  s.WorkOf(id).ended_inputs.push_back(next.id);
}

void Cluster::Transfers::WakeFetches() {
  uint64_t left = std::min<uint64_t>(waiting_.size(), s.options.turn_units);
  s.Charge(left / kStepsPerUnit);
  for (; left > 0 && !waiting_.empty(); --left) {
    auto next = waiting_.lower_bound(wake_next_);
    if (next == waiting_.end()) next = waiting_.begin();
    const SessionId id = next->first;
    wake_next_ = SessionId(id.value + 1);
    WakeFetch(id);
  }
}

absl::Status Cluster::Transfers::Check() const {
  for (const auto& [session, nodes] : waiting_) {
    for (const NodeId id : nodes) {
      const Node* const node = s.FindNode(id);
      if (node == nullptr || node->kind != NodeKind::kFetch || node->session != session ||
          !node->paced || node->state != NodeState::kQueued || node->unsettled_inputs > 0)
        return Error(absl::StatusCode::kInternal, "n{} waits as a fetch whose group is there", id);
    }
  }
  return absl::OkStatus();
}

void Cluster::Transfers::FetchEnded(Node& node) {
  node.charge = nullptr;
  SetPaced(node, false);
  WakeFetch(node.session);
}

void Cluster::Arrays::FetchArrived(TransferId transfer, absl::StatusOr<BytesRef> bytes) {
  const Operation operation(*state_);
  State& s = *state_;
  Node* node = s.FindNode(NodeOf(transfer));
  if (node == nullptr || node->pulling == 0 || TransferOf(*node) != transfer) return;
  // The cause may be a lost executor, of which its session will soon be told.
  if (PeerGone(bytes.status()) || (!bytes.ok() && s.losses.HasLosses(node->session))) {
    s.nodes.Defer(*node, Annotate(bytes.status(), "fetch from " + s.Where(node->island)));
    return;
  }
  if (bytes.ok()) {
    if (s.sessions.contains(node->session))
      s.work.Fetched(node->session, node->token,
                     Charged(*std::move(bytes), std::move(node->charge)));
    s.nodes.Conclude(*node, absl::OkStatus(), node->id);
  } else {
    s.nodes.Fail(*node, Annotate(bytes.status(), "fetch from " + s.Where(node->island)), node->id);
  }
  s.work.GoOn();
}

}  // namespace fairway
