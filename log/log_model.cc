// SPDX-License-Identifier: Apache-2.0
#include "log/log_model.h"

#include <algorithm>
#include <utility>

namespace fairway {
namespace {

constexpr int kExecutors = 5;
constexpr int kRelays = 2;
constexpr LogLimits kLimits{1200, 2500, 400, true};

}  // namespace

LogModel::Counts LogModel::counts;

LogModel::LogModel(uint64_t seed, bool strict) : random_(seed), strict_(strict), head_(kLimits) {
  Reform();
}

void LogModel::Fail(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

void LogModel::Expect(const absl::Status& status, const char* what) {
  if (strict_ && !status.ok()) Fail(fmt::format("{}: {}", what, Describe(status)));
}

// A new version: dead executors are lost, missing ones may come, and all get parents anew.
void LogModel::Reform() {
  ++counts.versions;
  std::vector<int> live;
  for (uint32_t e = 0; e < kExecutors; ++e) {
    const auto it = latest_.find(e);
    if (it != latest_.end() && incarnations_[it->second]->alive) {
      live.push_back(it->second);
      continue;
    }
    if (it != latest_.end()) incarnations_[it->second]->lost = true;
    if (Pick(3) == 0 && head_.version() > 0) continue;
    auto fresh = std::make_unique<Incarnation>();
    fresh->executor = e;
    fresh->joined = head_.log().last();
    fresh->follower = LogFollower(e);
    latest_[e] = static_cast<int>(incarnations_.size());
    live.push_back(latest_[e]);
    incarnations_.push_back(std::move(fresh));
  }
  std::shuffle(live.begin(), live.end(), random_);
  std::vector<Child> children;
  std::map<int, size_t> of_relay;
  for (const int i : live) {
    const int relay = static_cast<int>(Pick(kRelays + 1)) - 1;
    if (relay >= 0 && of_relay.contains(relay)) {
      children[of_relay[relay]].live.push_back(i);
    } else {
      if (relay >= 0) of_relay[relay] = children.size();
      children.push_back({relay, {i}});
    }
  }
  // Entries sent on standing links have come, will come, or are lost with their link.
  std::map<int, std::pair<LogNumber, LogNumber>> had;
  for (uint32_t c = 0; c < static_cast<uint32_t>(head_.children()); ++c)
    had[trees_[head_.version()][c].link()] = {head_.outbox(c).applied(), head_.outbox(c).sent()};
  std::vector<LogChild> tree;
  for (const Child& child : children) {
    tree.emplace_back();
    for (const int i : child.live)
      tree.back().live.push_back({incarnations_[i]->executor, incarnations_[i]->joined});
  }
  Expect(head_.Begin(std::move(tree)), "a version begins");
  trees_[head_.version()] = children;
  Conclusions();
  std::set<int> used;
  for (uint32_t c = 0; c < children.size(); ++c) {
    const int link = children[c].link();
    used.insert(link);
    if (!links_[link].up) continue;
    const auto [applied, sent] =
        children[c].relay >= 0 ? std::pair<LogNumber, LogNumber>() : had[link];
    Expect(head_.Attach(c, applied, sent), "a standing link is attached");
  }
  std::erase_if(links_, [&](const auto& link) { return !used.contains(link.first); });
}

void LogModel::Kill() {
  std::vector<int> live;
  for (const auto& [e, i] : latest_) {
    if (incarnations_[i]->alive) live.push_back(i);
  }
  if (live.size() < 2) return;
  ++counts.killed;
  const int victim = live[Pick(live.size())];
  incarnations_[victim]->alive = false;
  const std::vector<Child>& children = trees_[head_.version()];
  for (uint32_t c = 0; c < children.size(); ++c) {
    if (children[c].relay < 0 && children[c].live.front() == victim) Cut(c);
  }
}

void LogModel::Append() {
  NewLogEntry entry;
  entry.session = SessionId(Pick(4));  // 0: nobody is charged
  entry.kind = EntryKind::kRun;
  IndexSet members;
  if (Pick(2) == 0) {
    const auto executor = static_cast<uint32_t>(Pick(kExecutors));
    members.Add(executor);
    entry.span = LogSpan::One(executor);
  } else {
    entry.span.last = 1 + static_cast<uint32_t>(Pick(kExecutors - 1));
    entry.span.first = static_cast<uint32_t>(Pick(entry.span.last));
    for (uint32_t e = entry.span.first; e <= entry.span.last; ++e) members.Add(e);
  }
  if (Pick(2) == 0) entry.kind = EntryKind::kCommand;
  if (Pick(2) == 0) entry.flags |= kEndsLater;
  if (Pick(4) == 0) entry.flags |= kNeverWaits;
  if (Pick(4) == 0) entry.flags |= kMayLinger;
  entry.body.assign(Pick(20) == 0 ? Pick(1500) : Pick(100), 'b');
  Entry record;
  record.members = members;
  record.session = entry.session;
  record.bytes = kMaxEntryHeaderBytes + entry.body.size();
  for (const Child& child : trees_[head_.version()]) {
    for (const int i : child.live) {
      if (members.Contains(incarnations_[i]->executor)) record.concerned.insert(i);
    }
  }
  size_t used = 0;
  for (const auto& [number, other] : entries_) {
    if (other.session == entry.session && other.conclusions == 0) used += other.bytes;
  }
  const bool may_wait = (entry.flags & kNeverWaits) == 0;
  const bool too_much =
      may_wait && entry.session && used > 0 && used + record.bytes > kLimits.session_bytes;
  const absl::Status room = head_.Room(entry.session, entry.span, entry.flags, entry.body.size());
  const LogNumber next = head_.log().last() + 1;
  const auto number = head_.Append(std::move(entry));
  if (!number.ok()) {
    ++counts.refused;
    if (head_.log().last() + 1 != next) Fail("a refused entry took a number");
    if (!record.concerned.empty() && (room.ok() || !may_wait))
      Fail("refused with room: " + Describe(number.status()));
    return;
  }
  ++counts.appended;
  if (record.concerned.empty()) Fail("an entry that concerns nobody was taken");
  if (*number != next) Fail("a number was left out");
  if (too_much) Fail("a session has more than it may have");
  entries_[*number] = std::move(record);
  Conclusions();
}

void LogModel::SendDown(uint32_t child) {
  if (!head_.outbox(child).HasNews()) return;
  const size_t before = head_.outbox(child).unsent_bytes();
  std::string frame = head_.Next(child);
  const auto decoded = DecodeLogFrame(frame);
  Expect(decoded.status(), "a frame");
  if (decoded.ok() && frame.size() > kLimits.frame_bytes && decoded->entries.size() != 1)
    Fail("a frame is too large");
  if (decoded.ok() && decoded->concluded.empty() && decoded->entries.empty() && before > 0)
    Fail("a frame brings nothing");
  links_[trees_[head_.version()][child].link()].down.push_back(std::move(frame));
}

void LogModel::DeliverDown(uint32_t c) {
  const Child child = trees_[head_.version()][c];
  Link& link = links_[child.link()];
  if (link.down.empty()) return;
  const std::string bytes = std::move(link.down.front());
  link.down.pop_front();
  const auto frame = DecodeLogFrame(bytes);
  Expect(frame.status(), "a frame that comes");
  if (!frame.ok()) return;
  if (child.relay >= 0) return DeliverToRelay(child.relay, *frame);
  Apply(child.live.front(), *frame);
}

void LogModel::BeginRelay(int slot, Relay& relay, uint64_t version) {
  relay.below.clear();
  for (const Child& child : trees_[version]) {
    if (child.relay == slot) relay.below = child.live;
  }
  std::vector<LogRelayChild> children;
  for (const int i : relay.below) {
    const Incarnation& executor = *incarnations_[i];
    const LogNumber floor = executor.lost ? 0 : head_.floor(executor.executor);
    children.push_back({{{{executor.executor, executor.joined}}}, floor});
  }
  auto log = LogRelay::Make(version, std::move(children));
  Expect(log.status(), "a relay begins");
  if (!log.ok()) return;
  relay.log.emplace(std::move(*log));
  for (uint32_t c = 0; c < relay.below.size(); ++c) {
    Incarnation& executor = *incarnations_[relay.below[c]];
    if (version <= executor.parent_since || !executor.alive) continue;
    executor.parent = slot;
    executor.parent_since = version;
    executor.follower.Resend();
    Expect(relay.log->Attach(c, executor.follower.applied()), "an executor asks its relay");
  }
}

void LogModel::DeliverToRelay(int slot, const LogFrame& frame) {
  Relay& relay = relays_[slot];
  const uint64_t version = relay.log ? relay.log->version() : 0;
  if (frame.version < version) return;
  if (frame.version > version) BeginRelay(slot, relay, frame.version);
  if (!relay.log) return;
  Expect(relay.log->TakeFrame(frame), "a relay's frame");
  PassOn(slot, relay);
}

void LogModel::PassOn(int slot, Relay& relay) {
  for (uint32_t c = 0; c < relay.below.size(); ++c) {
    const Incarnation& executor = *incarnations_[relay.below[c]];
    while (executor.parent == slot && executor.alive && relay.log->outbox(c).HasNews()) {
      const std::string bytes = relay.log->Next(c);
      const auto frame = DecodeLogFrame(bytes);
      Expect(frame.status(), "a relay's frame to an executor");
      if (!frame.ok() || !failure_.empty()) return;
      Apply(relay.below[c], *frame);
    }
  }
}

void LogModel::Apply(int i, const LogFrame& frame) {
  Incarnation& executor = *incarnations_[i];
  if (!executor.alive) return;
  const auto fresh = executor.follower.Take(frame);
  Expect(fresh.status(), "an executor's frame");
  if (!fresh.ok()) return;
  for (const LogFrame::Received& entry : *fresh) {
    const LogNumber number = entry.header.number;
    const auto it = entries_.find(number);
    if (it == entries_.end() || !it->second.concerned.contains(i))
      return Fail(fmt::format("executor {} gets {}, which does not concern it", i, number));
    if (!executor.applied.empty() && executor.applied.back() >= number)
      return Fail(fmt::format("executor {} gets {} after {}", i, number, executor.applied.back()));
    if (entry.body.size() + kMaxEntryHeaderBytes != it->second.bytes) Fail("a body is cut");
    executor.applied.push_back(number);
  }
}

void LogModel::EndOne() {
  Incarnation& executor = *incarnations_[Pick(incarnations_.size())];
  if (!executor.alive) return;
  std::vector<LogNumber> running;
  for (const LogNumber number : executor.applied) {
    if (!executor.ended.contains(number)) running.push_back(number);
  }
  if (running.empty()) return;
  const LogNumber number = running[Pick(2) == 0 ? 0 : Pick(running.size())];
  executor.ended.insert(number);
  Expect(executor.follower.Ended(number, Pick(2) == 0), "an entry ends");
  if (Pick(2) == 0) ReportToRelays();
}

void LogModel::ReportToRelays() {
  for (auto& [slot, relay] : relays_) {
    for (uint32_t c = 0; relay.log && c < relay.below.size(); ++c) {
      Incarnation& executor = *incarnations_[relay.below[c]];
      if (executor.parent != slot || !executor.alive || executor.follower.version() == 0) continue;
      // Through the codec, as all that is said.
      const auto report = DecodeLogReport(EncodeLogReport(executor.follower.Next()));
      Expect(report.status(), "a report to a relay");
      if (report.ok()) Expect(relay.log->TakeReport(c, *report), "an honest report to a relay");
    }
  }
}

void LogModel::SendReport(uint32_t c) {
  const Child& child = trees_[head_.version()][c];
  Link& link = links_[child.link()];
  if (!link.up || (child.relay >= 0 && !relays_.contains(child.relay))) return;
  if (child.relay >= 0) {
    std::optional<LogRelay>& log = relays_[child.relay].log;
    if (!log) return;
    do link.reports.push_back(EncodeLogReport(log->Next()));
    while (log->HasNews());
    return;
  }
  LogFollower& follower = incarnations_[child.live.front()]->follower;
  if (follower.version() == 0) return;
  do link.reports.push_back(EncodeLogReport(follower.Next()));
  while (follower.more());
}

void LogModel::DeliverReport(uint32_t c) {
  Link& link = links_[trees_[head_.version()][c].link()];
  if (link.reports.empty()) return;
  const auto report = DecodeLogReport(link.reports.front());
  link.reports.pop_front();
  Expect(report.status(), "a report");
  if (!report.ok()) return;
  Expect(head_.Take(c, *report), "an honest report");
  Conclusions();
}

void LogModel::Cut(uint32_t c) {
  Link& link = links_[trees_[head_.version()][c].link()];
  link = Link();
  head_.Detach(c);
}

void LogModel::Connect(uint32_t c) {
  const Child& child = trees_[head_.version()][c];
  Link& link = links_[child.link()];
  if (link.up || (child.relay < 0 && !incarnations_[child.live.front()]->alive)) return;
  ++counts.replays;
  link.up = true;
  if (child.relay < 0) {
    incarnations_[child.live.front()]->parent = -1;
    incarnations_[child.live.front()]->parent_since = head_.version();
  }
  LogNumber applied = 0;
  if (child.relay < 0) {
    LogFollower& follower = incarnations_[child.live.front()]->follower;
    applied = follower.applied();
    follower.Resend();
  } else if (std::optional<LogRelay>& log = relays_[child.relay].log;
             log && log->version() == head_.version()) {
    applied = log->Ask();
  }
  Expect(head_.Attach(c, applied), "a link comes back");
}

bool LogModel::Concerns(const Child& child, LogNumber number) const {
  const Entry& entry = entries_.at(number);
  return std::ranges::any_of(child.live, [&](int i) { return entry.concerned.contains(i); });
}

void LogModel::Refused(uint32_t c, LogNumber first, LogNumber last, const char* what) {
  const LogReport lie{head_.version(), head_.outbox(c).sent(), {{first, last}}};
  if (head_.Take(c, lie).ok() && strict_)
    Fail(fmt::format("believed: {} ({} to {})", what, first, last));
}

void LogModel::Lie(uint32_t c) {
  const Child& child = trees_[head_.version()][c];
  const LogOutbox& outbox = head_.outbox(c);
  ++counts.lies;
  switch (Pick(4)) {
    case 0:
      return Refused(c, outbox.sent() + 1, outbox.sent() + 1 + Pick(3), "what was never sent");
    case 1:
      for (const auto& [number, entry] : head_.log().open()) {
        if (number <= outbox.sent() && !Concerns(child, number))
          return Refused(c, number, number, "what does not concern the child");
      }
      return;
    case 2:
      if (head_.Take(c, {head_.version(), outbox.sent() + 1, {}}).ok())
        Fail("believed: more came than was sent");
      return;
    default:
      if (head_.Take(c, {head_.version() + 1, outbox.applied(), {}}).ok())
        Fail("believed: a version that is to come");
  }
}

void LogModel::Conclusions() {
  for (const LogNumber number : head_.TakeConcluded()) {
    ++counts.concluded;
    const auto it = entries_.find(number);
    if (it == entries_.end()) return Fail(fmt::format("{} is concluded, unknown", number));
    if (++it->second.conclusions > 1) Fail(fmt::format("{} is concluded twice", number));
    for (const int i : it->second.concerned) {
      const Incarnation& executor = *incarnations_[i];
      if (!executor.lost && !executor.ended.contains(number))
        Fail(fmt::format("{} is concluded, but has not ended on executor {}", number, i));
    }
  }
}

void LogModel::CheckAll() {
  Expect(head_.CheckInvariants(), "the head");
  for (const auto& executor : incarnations_) {
    if (executor->alive) Expect(executor->follower.CheckInvariants(), "a follower");
  }
  for (const auto& [slot, relay] : relays_) {
    if (relay.log) Expect(relay.log->CheckInvariants(), "a relay");
  }
  size_t bytes = 0;
  for (const auto& [number, entry] : entries_) {
    if (entry.conclusions == 0) bytes += entry.bytes;
    if ((entry.conclusions == 0) != (head_.log().Find(number) != nullptr))
      Fail(fmt::format("entry {} is kept, or is not, as it should", number));
  }
  if (bytes != head_.log().bytes()) Fail("the log counts other bytes than there are");
}

void LogModel::Event() {
  const auto child = static_cast<uint32_t>(Pick(head_.children()));
  const uint64_t what = Pick(100);
  if (what < 22) return Append();
  if (what < 38) return SendDown(child);
  if (what < 54) return DeliverDown(child);
  if (what < 68) return EndOne();
  if (what < 76) return SendReport(child);
  if (what < 84) return DeliverReport(child);
  if (what < 90) return Connect(child);
  if (what < 93) return Cut(child);
  if (what < 95) return Reform();
  if (what < 96) return Kill();
  if (what < 97) return Append();
  Lie(child);
}

void LogModel::Finish() {
  for (const auto& [e, i] : latest_) {
    if (!incarnations_[i]->alive) return Reform(), Finish();
  }
  for (int round = 0; round < 4000 && failure_.empty(); ++round) {
    for (uint32_t c = 0; c < static_cast<uint32_t>(head_.children()); ++c) {
      Connect(c);
      SendDown(c);
      DeliverDown(c);
      SendReport(c);
      DeliverReport(c);
    }
    for (int i = 0; i < 10; ++i) EndOne();
    ReportToRelays();
    if (!head_.log().open().empty() || round % 100 != 99) continue;
    for (const auto& executor : incarnations_) {
      if (executor->alive && !executor->follower.kept().empty())
        return Fail("results are kept for ever");
    }
    break;
  }
  if (!head_.log().open().empty() && failure_.empty())
    Fail(fmt::format("{} entries do not end", head_.log().open().size()));
  for (const auto& [number, entry] : entries_) {
    for (const int i : entry.concerned) {
      if (!incarnations_[i]->lost && !std::ranges::binary_search(incarnations_[i]->applied, number))
        return Fail(fmt::format("{} did not come to executor {}", number, i));
    }
  }
}

std::string LogModel::Run(int events) {
  for (int i = 0; i < events && failure_.empty(); ++i) {
    Event();
    if (failure_.empty() && strict_) CheckAll();
  }
  if (failure_.empty()) Finish();
  if (failure_.empty() && strict_) CheckAll();
  return failure_;
}

}  // namespace fairway
