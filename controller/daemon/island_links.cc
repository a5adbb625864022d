// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/island_links.h"

#include <algorithm>
#include <set>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/planted.h"
#include "transport/frame.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

constexpr size_t kMaxLingeringBytes = 64 << 10;  // of waiting entries that linger

NewLogEntry CommandEntry(LogSpan span, EncodedCommand&& command, uint8_t flags,
                         std::shared_ptr<MemoryBudget> payer) {
  NewLogEntry entry;
  entry.span = span;
  entry.kind = EntryKind::kCommand;
  entry.flags = kNeverWaits | flags;
  entry.body = std::move(command.body);
  entry.tail = std::move(command.tail);
  if (entry.body_bytes() > kMaxEntryBytes) entry.flags |= kBulkEntry;
  // The tail is compiled code, which is charged where it is kept.
  const size_t bytes = kMaxEntryHeaderBytes + entry.body.size();
  entry.charge = MemoryCharge(std::move(payer), static_cast<int64_t>(bytes));
  return entry;
}

}  // namespace

IslandLinks::IslandLinks(IslandLinksOptions options)
    : options_(std::move(options)), head_(LogLimits{.floors = options_.fanout > 0}) {}

void IslandLinks::Expect(const absl::Status& status) {
  if (!status.ok()) spdlog::error("the log of an island: {}", Text(status));
}

void IslandLinks::Join(ExecutorId executor, Link* link, Incarnation incarnation,
                       std::string worker) {
  Member& member = members_[executor];
  ++unknown_;
  member.link = link;
  member.incarnation = incarnation;
  member.worker = std::move(worker);
  if (options_.fanout > 0) member.secret = options_.secret();
  version_due_ = true;
}

void IslandLinks::Leave(ExecutorId executor) {
  const auto it = members_.find(executor);
  if (it == members_.end()) return;
  Member& member = it->second;
  if (member.child) {
    head_.Detach(*member.child);
    end_of_child_[*member.child] = nullptr;
  }
  std::erase(due_, &member);
  if (!member.known) --unknown_;
  for (const NewLogEntry& entry : member.waiting) {
    if (entry.awaited) NoteEnded(entry.awaited);
  }
  members_.erase(it);
  version_due_ = true;
}

void IslandLinks::Cut(ExecutorId executor) {
  const auto it = members_.find(executor);
  if (it == members_.end()) return;
  it->second.link = nullptr;
  if (it->second.child) head_.Detach(*it->second.child);
}

LogOutbox::Standing IslandLinks::StandingOf(const Member& member) const {
  if (!member.child) return {};
  return member.before ? *member.before : head_.outbox(*member.child).standing();
}

absl::Status IslandLinks::CheckFloor(ExecutorId executor, LogNumber applied) const {
  const LogNumber floor = head_.floor(executor.value);
  if (applied >= floor || Planted(Bug::kBehindIsServed)) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition,
               "it has entries up to {}, but entry {} is concluded, so nobody has that any more",
               applied, floor);
}

absl::Status IslandLinks::Resume(ExecutorId executor, Link* link, uint64_t version,
                                 LogNumber applied) {
  const auto it = members_.find(executor);
  if (it == members_.end())
    return absl::FailedPreconditionError("the log has nothing for this executor any more");
  Member& member = it->second;
  // We send its log in the present version, and it has asked if it had to. Otherwise it begins with
  // the next version, hears of its parent, or is yet to ask.
  const bool ours = member.child && !member.asks;
  const LogOutbox::Standing had = member.known && !ours
                                      ? LogOutbox::Standing{0, head_.log().last(), 0, {}}
                                      : StandingOf(member);
  if (version > head_.version() || applied < had.applied || applied > had.sent)
    return InvalidArgument(
        "it knows version {} and entries up to {}, expected at most {}, and {} to {}", version,
        applied, head_.version(), had.applied, had.sent);
  // Below a relay entries may have come since it said so: then its relay, or Ask, checks the floor.
  // Before its first version the floor is that of its executor's earlier registration.
  if (ours) FAIRWAY_RETURN_IF_ERROR(CheckFloor(executor, applied));
  member.link = link;
  if (!ours) return absl::OkStatus();
  FAIRWAY_RETURN_IF_ERROR(head_.Attach(*member.child, applied, had.sent));
  member.before.reset();
  SetDue(member);
  return absl::OkStatus();
}

absl::Status IslandLinks::Append(ExecutorId executor, EncodedCommand&& command, bool lingers,
                                 std::shared_ptr<MemoryBudget> payer) {
  NewLogEntry entry = CommandEntry(LogSpan::One(executor.value), std::move(command),
                                   lingers ? kMayLinger : 0, std::move(payer));
  FAIRWAY_RETURN_IF_ERROR(CheckEntry(entry.kind, entry.flags, entry.body_bytes()));
  return Append(members_.at(executor), std::move(entry));
}

absl::Status IslandLinks::Append(Member& member, NewLogEntry&& entry) {
  if (!member.known) {
    const bool first = Planted(Bug::kOvertakeWaiting) && !member.waiting.empty();
    member.waiting.insert(first ? member.waiting.begin() : member.waiting.end(), std::move(entry));
    return absl::OkStatus();
  }
  FAIRWAY_RETURN_IF_ERROR(head_.Append(std::move(entry)).status());
  End& end = EndOf(member);
  if (Leaves(end)) SetDue(end);
  return absl::OkStatus();
}

absl::Status IslandLinks::AppendAll(ExecutorId first, ExecutorId last, EncodedCommand&& command,
                                    bool lingers, NodeId awaited,
                                    std::shared_ptr<MemoryBudget> payer) {
  const LogSpan span{first.value, last.value};
  const uint8_t flags = (awaited ? kEndsLater : 0) | (lingers ? kMayLinger : 0);
  if (unknown_ == 0 && !members_.empty()) {
    NewLogEntry entry = CommandEntry(span, std::move(command), flags, std::move(payer));
    entry.awaited = awaited;
    FAIRWAY_RETURN_IF_ERROR(CheckEntry(entry.kind, entry.flags, entry.body_bytes()));
    if (const absl::Status appended = head_.Append(std::move(entry)).status();
        absl::IsFailedPrecondition(appended)) {
      if (awaited) NoteEnded(awaited);  // all of them have left
      return absl::OkStatus();
    } else if (!appended.ok()) {
      return appended;
    }
    head_.ForEachConcerned(span, [this](uint32_t child) {
      End* const end = end_of_child_[child];
      if (end != nullptr && Leaves(*end)) SetDue(*end);
    });
    return absl::OkStatus();
  }
  size_t entries = 0;
  for (auto it = members_.lower_bound(first); it != members_.end() && it->first <= last; ++it) {
    NewLogEntry entry =
        CommandEntry(LogSpan::One(it->first.value), EncodedCommand(command), flags, payer);
    entry.awaited = awaited;
    FAIRWAY_RETURN_IF_ERROR(CheckEntry(entry.kind, entry.flags, entry.body_bytes()));
    FAIRWAY_RETURN_IF_ERROR(Append(it->second, std::move(entry)));
    ++entries;
  }
  if (awaited && entries > 1) split_.emplace(awaited, entries);
  if (awaited && entries == 0) NoteEnded(awaited);
  return absl::OkStatus();
}

void IslandLinks::NoteConcluded() {
  head_.TakeConcluded();
  for (const NodeId node : head_.TakeEnded()) NoteEnded(node);
}

void IslandLinks::NoteEnded(NodeId node) {
  if (const auto split = split_.find(node); split != split_.end()) {
    if (--split->second > 0) return;
    split_.erase(split);
  }
  ended_.push_back(node);
}

std::vector<NodeId> IslandLinks::TakeEnded() { return std::exchange(ended_, {}); }

absl::Status IslandLinks::Take(ExecutorId executor, std::string_view bytes) {
  Member& member = members_.at(executor);
  if (!member.known)
    return InvalidArgument("a report of the log came before its first frame was sent");
  FAIRWAY_ASSIGN_OR_RETURN(const LogReport report, DecodeLogReport(bytes));
  if (!member.child || member.asks) {
    if (report.version < head_.version()) return absl::OkStatus();  // R3
    return InvalidArgument("a report of version {} came from an executor that was not sent it",
                           report.version);
  }
  FAIRWAY_RETURN_IF_ERROR(head_.Take(*member.child, report));
  NoteConcluded();
  if (Leaves(member)) SetDue(member);
  return absl::OkStatus();
}

void IslandLinks::SetDue(End& end) {
  if (!std::exchange(end.due, true)) due_.push_back(&end);
}

bool IslandLinks::Leaves(const End& end) const {
  if (end.link == nullptr || !end.child) return false;
  const LogOutbox& outbox = head_.outbox(*end.child);
  return outbox.Urgent() || (outbox.connected() && outbox.unsent_bytes() >= kMaxLingeringBytes);
}

void IslandLinks::Replan(Clock::time_point now) {
  replan_ = false;
  planned_ = now;
  TreePlan plan = Plan();
  if (version_due_ || plan != plan_) Begin(std::move(plan), now);
}

void IslandLinks::Begin(TreePlan plan, Clock::time_point now) {
  version_due_ = false;
  std::vector<std::optional<LogOutbox::Standing>> had;
  for (auto& [id, member] : members_) {
    if (!member.known) {
      member.joined = Planted(Bug::kEntriesForSuccessor) ? 0 : head_.log().last();
      had.emplace_back(LogOutbox::Standing{});
    } else if (member.child && !member.asks) {
      had.emplace_back(StandingOf(member));
    } else {
      had.emplace_back();
    }
  }
  plan_ = std::move(plan);
  std::vector<LogChild> children;
  for (const ExecutorIndex executor : plan_.executors)
    children.push_back({{{executor, members_.at(ExecutorId(executor)).joined}}});
  for (size_t i = 0; i < plan_.relays.size(); ++i) {
    if (plan_.relays[i].top) children.push_back(Below(i));
  }
  end_of_child_.assign(children.size(), nullptr);
  Expect(head_.Begin(std::move(children)));
  NoteConcluded();
  for (auto& [id, member] : members_) {
    member.child.reset();
    member.above = nullptr;
  }
  uint32_t child = 0;
  for (const ExecutorIndex executor : plan_.executors)
    members_.at(ExecutorId(executor)).child = child++;
  PlaceRelays(child, now);
  unknown_ = 0;
  size_t i = 0;
  for (auto& [id, member] : members_) BeginMember(id, member, std::move(had[i++]));
}

void IslandLinks::BeginMember(ExecutorId id, Member& member,
                              std::optional<LogOutbox::Standing> had) {
  member.known = true;
  member.asks = false;
  if (member.child) end_of_child_[*member.child] = &member;
  if (member.above != nullptr) {
    member.before.reset();
  } else if (!had && !Planted(Bug::kSendUnasked)) {
    // A relay sent it entries until now. It must close that link before it gets others.
    member.asks = true;
    member.before.reset();
    TellParent(id, member, {}, 0);
  } else if (member.link != nullptr) {
    Expect(head_.Keep(*member.child, had ? std::move(*had) : LogOutbox::Standing()));
  } else if (had && !Planted(Bug::kForgetCut)) {
    member.before = std::move(*had);
  }
  for (NewLogEntry& entry : std::exchange(member.waiting, {}))
    Expect(head_.Append(std::move(entry)).status());
  SetDue(EndOf(member));
}

void IslandLinks::Send(Clock::time_point now, LinkTraffic& sent) {
  const bool may_begin =
      members_.size() <= options_.few || now - planned_ >= options_.version_pause;
  if ((version_due_ || replan_) && may_begin) Replan(now);
  for (End* const end : std::exchange(due_, {})) {
    end->due = false;
    SendTo(*end, false, sent);
  }
}

void IslandLinks::SendAll(Clock::time_point now, LinkTraffic& sent) {
  EndTroubles(now);
  JudgeRelays(now);
  Send(now, sent);
  const bool lingering = !Planted(Bug::kKeepLingering);
  for (auto& [id, member] : members_) {
    NoteProgress(id, member, now);
    SendTo(member, lingering, sent);
  }
  for (const auto& [id, relay] : relays_) SendTo(relay, lingering, sent);
}

void IslandLinks::NoteProgress(ExecutorId id, Member& member, Clock::time_point now) const {
  LogNumber applied = 0;
  bool open = !member.waiting.empty();
  if (member.child) {
    applied = head_.outbox(*member.child).applied();
    open = head_.outbox(*member.child).entries() > 0;
  } else if (member.above != nullptr) {
    applied = head_.floor(id.value);
    open = head_.open(id.value).entries > 0;
  }
  if (member.moved && open && applied == member.moved_to) return;
  member.moved = now;
  member.moved_to = applied;
}

LinkHealth IslandLinks::Health(ExecutorId executor, Clock::time_point now) const {
  LinkHealth health;
  const auto it = members_.find(executor);
  if (it == members_.end()) return health;
  const Member& member = it->second;
  if (member.child) {
    health.open_entries = head_.outbox(*member.child).entries();
    health.open_bytes = head_.outbox(*member.child).bytes();
  } else if (member.above != nullptr) {
    const LogHead::Open open = head_.open(executor.value);
    health.open_entries = open.entries;
    health.open_bytes = open.bytes;
  } else {
    health.open_entries = member.waiting.size();
    for (const NewLogEntry& entry : member.waiting) health.open_bytes += entry.body_bytes();
  }
  if (health.open_entries > 0 && member.moved)
    health.still = std::chrono::duration_cast<std::chrono::milliseconds>(now - *member.moved);
  return health;
}

void IslandLinks::SendTo(const End& end, bool lingering, LinkTraffic& sent) {
  if (end.link == nullptr || !end.child) return;
  const LogOutbox& outbox = head_.outbox(*end.child);
  while (end.link->queued_bytes() < options_.link_bytes && outbox.connected() &&
         (Leaves(end) || (lingering && outbox.unsent_bytes() > 0))) {
    Frame frame;
    frame.type = kLogFrame;
    frame.payload = head_.Next(*end.child, &frame.tail);
    ++sent.messages;
    sent.bytes += kFrameHeaderBytes + frame.bytes();
    end.link->Send(std::move(frame));
  }
}

size_t IslandLinks::open() const {
  size_t open = head_.log().open().size();
  for (const auto& [id, member] : members_) open += member.waiting.size();
  return open;
}

int64_t IslandLinks::charged_bytes() const {
  int64_t charged = head_.log().charged_bytes();
  for (const auto& [id, member] : members_) {
    for (const NewLogEntry& entry : member.waiting) charged += entry.charge.bytes();
  }
  return charged;
}

absl::Status IslandLinks::CheckInvariants() const {
  FAIRWAY_RETURN_IF_ERROR(head_.CheckInvariants());
  std::set<uint32_t> children;
  for (const auto& [id, member] : members_) {
    if (!member.known && version_due_) continue;
    if (!member.known || !member.waiting.empty())
      return absl::InternalError(
          fmt::format("executor {} waits for a version, but none is due", id));
    if (!member.child) {
      if (member.above == nullptr && !version_due_)
        return absl::InternalError(fmt::format("executor {} has no parent", id));
      continue;
    }
    if (head_.outbox(*member.child).connected() != (member.link != nullptr && !member.asks))
      return absl::InternalError(fmt::format("executor {} has a link on one side only", id));
    if (*member.child >= static_cast<uint32_t>(head_.children()) ||
        !children.insert(*member.child).second)
      return absl::InternalError(
          fmt::format("executor {} is child {} of {}", id, *member.child, head_.children()));
  }
  return absl::OkStatus();
}

}  // namespace fairway
