// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/island_links.h"

#include <set>
#include <utility>

#include <spdlog/spdlog.h>

#include "base/planted.h"
#include "transport/frame.h"
#include "wire/link_codec.h"

namespace fairway {
namespace {

constexpr size_t kMaxLingeringBytes = 64 << 10;  // of waiting entries that linger

NewLogEntry CommandEntry(ExecutorId executor, EncodedCommand command, bool lingers,
                         std::shared_ptr<MemoryBudget> payer) {
  NewLogEntry entry;
  entry.set = LogSetId::One(executor.value);
  entry.kind = EntryKind::kCommand;
  entry.flags = kNeverWaits;
  if (lingers) entry.flags |= kMayLinger;
  entry.body = std::move(command.body);
  entry.tail = std::move(command.tail);
  if (entry.body_bytes() > kMaxEntryBytes) entry.flags |= kBulkEntry;
  // The tail is compiled code, which is charged where it is kept.
  const size_t bytes = kMaxEntryHeaderBytes + entry.body.size();
  entry.charge = MemoryCharge(std::move(payer), static_cast<int64_t>(bytes));
  return entry;
}

}  // namespace

void IslandLinks::Expect(const absl::Status& status) {
  if (!status.ok()) spdlog::error("the log of an island: {}", Text(status));
}

void IslandLinks::Join(ExecutorId executor, Link* link) {
  members_[executor].link = link;
  version_due_ = true;
}

void IslandLinks::Leave(ExecutorId executor) {
  const auto it = members_.find(executor);
  if (it == members_.end()) return;
  if (it->second.child) head_.Detach(*it->second.child);
  std::erase(due_, &it->second);
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

absl::Status IslandLinks::Resume(ExecutorId executor, Link* link, uint64_t version,
                                 LogNumber applied) {
  const auto it = members_.find(executor);
  if (it == members_.end())
    return absl::FailedPreconditionError("the log has nothing for this executor any more");
  Member& member = it->second;
  const LogOutbox::Standing had = StandingOf(member);
  if (version > head_.version() || applied < had.applied || applied > had.sent)
    return InvalidArgument(
        "it knows version {} and entries up to {}, expected at most {}, and {} to {}", version,
        applied, head_.version(), had.applied, had.sent);
  member.link = link;
  if (!member.child) return absl::OkStatus();  // it begins with the next version
  FAIRWAY_RETURN_IF_ERROR(head_.Attach(*member.child, applied, had.sent));
  member.before.reset();
  SetDue(member);
  return absl::OkStatus();
}

absl::Status IslandLinks::Append(ExecutorId executor, EncodedCommand command, bool lingers,
                                 std::shared_ptr<MemoryBudget> payer) {
  Member& member = members_.at(executor);
  NewLogEntry entry = CommandEntry(executor, std::move(command), lingers, std::move(payer));
  FAIRWAY_RETURN_IF_ERROR(CheckEntry(entry.kind, entry.set, entry.flags, entry.body_bytes()));
  if (!member.child) {
    const bool first = Planted(Bug::kOvertakeWaiting) && !member.waiting.empty();
    member.waiting.insert(first ? member.waiting.begin() : member.waiting.end(), std::move(entry));
    return absl::OkStatus();
  }
  FAIRWAY_RETURN_IF_ERROR(head_.Append(std::move(entry)).status());
  if (Leaves(member)) SetDue(member);
  return absl::OkStatus();
}

absl::Status IslandLinks::Take(ExecutorId executor, std::string_view bytes) {
  Member& member = members_.at(executor);
  if (!member.child)
    return InvalidArgument("a report of the log came before its first frame was sent");
  FAIRWAY_ASSIGN_OR_RETURN(const LogReport report, DecodeLogReport(bytes));
  FAIRWAY_RETURN_IF_ERROR(head_.Take(*member.child, report));
  head_.TakeConcluded();
  if (Leaves(member)) SetDue(member);
  return absl::OkStatus();
}

void IslandLinks::SetDue(Member& member) {
  if (!std::exchange(member.due, true)) due_.push_back(&member);
}

bool IslandLinks::Leaves(const Member& member) const {
  if (member.link == nullptr) return false;
  const LogOutbox& outbox = head_.outbox(*member.child);
  return outbox.Urgent() || outbox.unsent_bytes() >= kMaxLingeringBytes;
}

void IslandLinks::Begin(Clock::time_point now) {
  version_due_ = false;
  version_began_ = now;
  std::vector<LogChild> children;
  std::vector<LogOutbox::Standing> had;
  for (auto& [id, member] : members_) {
    had.push_back(StandingOf(member));
    if (!member.child) {
      member.joined = Planted(Bug::kEntriesForSuccessor) ? 0 : head_.log().last();
    }
    children.push_back({{{id.value, member.joined}}});
  }
  Expect(head_.Begin(std::move(children)));
  head_.TakeConcluded();
  uint32_t child = 0;
  for (auto& [id, member] : members_) {
    member.child = child;
    if (member.link != nullptr) {
      Expect(head_.Keep(child, std::move(had[child])));
    } else if (!Planted(Bug::kForgetCut)) {
      member.before = std::move(had[child]);
    }
    for (NewLogEntry& entry : std::exchange(member.waiting, {}))
      Expect(head_.Append(std::move(entry)).status());
    SetDue(member);
    ++child;
  }
}

void IslandLinks::Send(Clock::time_point now, LinkTraffic& sent) {
  const bool may_begin =
      members_.size() <= options_.few || now - version_began_ >= options_.version_pause;
  if (version_due_ && may_begin) Begin(now);
  for (Member* const member : std::exchange(due_, {})) {
    member->due = false;
    SendTo(*member, false, sent);
  }
}

void IslandLinks::SendAll(Clock::time_point now, LinkTraffic& sent) {
  Send(now, sent);
  for (auto& [id, member] : members_) {
    NoteProgress(member, now);
    if (member.child && member.link != nullptr) SendTo(member, !Planted(Bug::kKeepLingering), sent);
  }
}

void IslandLinks::NoteProgress(Member& member, Clock::time_point now) const {
  const LogNumber applied = member.child ? head_.outbox(*member.child).applied() : 0;
  const bool open =
      member.child ? head_.outbox(*member.child).entries() > 0 : !member.waiting.empty();
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
  } else {
    health.open_entries = member.waiting.size();
    for (const NewLogEntry& entry : member.waiting) health.open_bytes += entry.body_bytes();
  }
  if (health.open_entries > 0 && member.moved)
    health.still = std::chrono::duration_cast<std::chrono::milliseconds>(now - *member.moved);
  return health;
}

void IslandLinks::SendTo(const Member& member, bool lingering, LinkTraffic& sent) {
  if (member.link == nullptr) return;
  const LogOutbox& outbox = head_.outbox(*member.child);
  while (member.link->queued_bytes() < options_.link_bytes &&
         (Leaves(member) || (lingering && outbox.unsent_bytes() > 0))) {
    Frame frame;
    frame.type = kLogFrame;
    frame.payload = head_.Next(*member.child, &frame.tail);
    ++sent.messages;
    sent.bytes += kFrameHeaderBytes + frame.bytes();
    member.link->Send(std::move(frame));
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
    if (!member.child && version_due_) continue;
    if (!member.child || !member.waiting.empty())
      return absl::InternalError(
          fmt::format("executor {} waits for a version, but none is due", id));
    if (head_.outbox(*member.child).connected() != (member.link != nullptr))
      return absl::InternalError(fmt::format("executor {} has a link on one side only", id));
    if (*member.child >= static_cast<uint32_t>(head_.children()) ||
        !children.insert(*member.child).second)
      return absl::InternalError(
          fmt::format("executor {} is child {} of {}", id, *member.child, head_.children()));
  }
  return absl::OkStatus();
}

}  // namespace fairway
