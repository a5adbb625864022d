// SPDX-License-Identifier: Apache-2.0
#include "scheduler/gang_turns.h"

#include <algorithm>

#include "base/planted.h"

namespace fairway {

GangTurns::SetId GangTurns::Use(const SharedVector<DeviceId>& devices) {
  if (last_ && last_devices_.Shares(devices)) {
    if (sets_[*last_].users++ == 0) std::erase(unused_, *last_);
    return *last_;
  }
  const auto [key, fresh] = numbers_of_.try_emplace(devices);
  if (fresh) {
    if (free_sets_.empty()) {
      free_sets_.push_back(static_cast<SetId>(sets_.size()));
      sets_.emplace_back();
    }
    key->second = free_sets_.back();
    free_sets_.pop_back();
    Set& set = sets_[key->second];
    set.key = key;
    std::vector<uint32_t> places;
    places.reserve(devices.size());
    for (const DeviceId device : devices) {
      const auto [place, unseen] =
          places_.try_emplace(device, static_cast<uint32_t>(in_flight_.size()));
      if (unseen) in_flight_.Grow(in_flight_.size() + 1);
      places.push_back(place->second);
    }
    std::sort(places.begin(), places.end());
    set.rows.clear();
    for (const uint32_t place : places) {
      if (!set.rows.empty() && set.rows.back().first + set.rows.back().second == place) {
        ++set.rows.back().second;
      } else {
        set.rows.emplace_back(place, 1);
      }
    }
  } else if (sets_[key->second].users == 0) {
    std::erase(unused_, key->second);
  }
  ++sets_[key->second].users;
  last_ = key->second;
  last_devices_ = devices;
  return key->second;
}

void GangTurns::Release(SetId id) {
  if (--sets_[id].users > 0) return;
  unused_.push_back(id);
  if (unused_.size() <= kKept) return;
  const bool all = used_sets() == 0;
  const auto end = all ? unused_.end() : unused_.begin() + 1;
  for (auto it = unused_.begin(); it != end; ++it) {
    if (last_ == *it) {
      last_.reset();
      last_devices_ = {};
    }
    numbers_of_.erase(sets_[*it].key);
    free_sets_.push_back(*it);
  }
  unused_.erase(unused_.begin(), end);
  if (!all) return;
  places_.clear();  // devices that have gone are not kept for ever
  in_flight_.clear();
}

void GangTurns::Add(NodeId node, SessionId session, SetId set) {
  const Line line{session, set};
  if (waiting_.empty() && !only_) {
    only_ = {node, line};
    stuck_ = false;
    return;
  }
  if (only_ && only_->node == node) return;
  LineUp();
  Enter(node, line);
}

void GangTurns::LineUp() {
  if (!only_) return;
  const Only first = *std::exchange(only_, std::nullopt);
  Enter(first.node, first.line);
}

void GangTurns::Enter(NodeId node, const Line& line) {
  Waiting& waiting = waiting_[line];
  const NodeId lowest = waiting.nodes.empty() ? NodeId() : *waiting.nodes.begin();
  if (!waiting.nodes.insert(node).second || waiting.ticket != 0) return;
  if (lowest && lowest < node) return;
  Session& of = sessions_[line.session];
  if (lowest) of.others.erase({lowest, line});
  of.others.insert({node, line});
  changed_.insert(line.session);
  stuck_ = false;
}

void GangTurns::Remove(NodeId node, SessionId session, SetId set) {
  if (only_ && only_->node == node) only_.reset();
  const auto it = waiting_.find({session, set});
  if (it == waiting_.end()) return;
  const Line line = it->first;
  Waiting& waiting = it->second;
  const NodeId lowest = *waiting.nodes.begin();
  if (waiting.nodes.erase(node) == 0) return;
  const bool over = waiting.nodes.empty();
  const auto of = sessions_.find(session);
  if (waiting.ticket == 0 && node == lowest) {
    of->second.others.erase({lowest, line});
    if (!over) of->second.others.insert({*waiting.nodes.begin(), line});
  } else if (waiting.ticket != 0 && over) {
    EndTicket(line, waiting);
  }
  if (!over) return;
  waiting_.erase(it);
  if (of->second.tickets.empty() && of->second.others.empty()) sessions_.erase(of);
}

void GangTurns::EndTicket(const Line& line, Waiting& waiting) {
  RemoveTicket(waiting.ticket, line.set);
  Session& session = sessions_.at(line.session);
  session.tickets.erase(waiting.ticket);
  waiting.ticket = 0;
  if (!waiting.nodes.empty()) session.others.insert({*waiting.nodes.begin(), line});
  changed_.insert(line.session);
  stuck_ = false;
}

void GangTurns::GiveTickets(Session& session) {
  UnmarkAll();  // marks devices of lines with tickets
  for (const uint64_t ticket : session.tickets) Mark(tickets_.at(ticket).set);
  size_t looked = 0;
  for (auto it = session.others.begin(); it != session.others.end() && looked < kLooked; ++looked) {
    const Line line = it->second;
    if (IsMarked(line.set)) {
      ++it;
      continue;
    }
    Mark(line.set);
    it = session.others.erase(it);
    waiting_.at(line).ticket = ++last_ticket_;
    session.tickets.insert(last_ticket_);
    AddTicket(last_ticket_, line);
  }
}

void GangTurns::AddTicket(uint64_t ticket, const Line& line) {
  tickets_.emplace(ticket, line);
  std::set<uint64_t>& all = sets_[line.set].tickets;
  all.insert(ticket);
  if (all.size() == 1) heads_.emplace(ticket, line.set);  // it is the highest that was given
}

void GangTurns::RemoveTicket(uint64_t ticket, SetId set) {
  tickets_.erase(ticket);
  std::set<uint64_t>& all = sets_[set].tickets;
  all.erase(ticket);
  if (heads_.erase(ticket) > 0 && !all.empty()) heads_.emplace(*all.begin(), set);
}

bool GangTurns::Full(const Device& device) const {
  return device.full && !Planted(Bug::kTooManyGangs);
}

bool GangTurns::HasRoom(SetId set) {
  const auto& rows = sets_[set].rows;
  return std::all_of(rows.begin(), rows.end(), [&](const auto& row) {
    return in_flight_.AllOf(row.first, row.second, [&](const Device& device) {
      ++steps_;
      return !Full(device);
    });
  });
}

void GangTurns::Count(SetId set, int more) {
  for (const auto& [first, count] : sets_[set].rows)
    steps_ += in_flight_.Change(first, count, [&](Device& device) {
      device.gangs += more;
      device.full = device.gangs >= most_ || (device.full && device.gangs > enough_);
    });
}

void GangTurns::UnmarkAll() {
  marked_.clear();
  marked_.Grow(in_flight_.size());
  ++steps_;
}

void GangTurns::Mark(SetId set) {
  for (const auto& [first, count] : sets_[set].rows)
    steps_ += marked_.Change(first, count, [](bool& marked) { marked = true; });
}

bool GangTurns::IsMarked(SetId set) {
  const auto& rows = sets_[set].rows;
  return !std::all_of(rows.begin(), rows.end(), [&](const auto& row) {
    return marked_.AllOf(row.first, row.second, [&](bool marked) {
      ++steps_;
      return !marked;
    });
  });
}

std::optional<NodeId> GangTurns::Next() {
  if (stuck_) return std::nullopt;
  if (only_ && HasRoom(only_->line.set)) {
    const Only gang = *std::exchange(only_, std::nullopt);
    Count(gang.line.set, 1);
    return gang.node;
  }
  LineUp();
  for (const SessionId session : std::exchange(changed_, {})) {
    const auto it = sessions_.find(session);
    if (it != sessions_.end()) GiveTickets(it->second);
  }
  UnmarkAll();  // marks devices that a lower ticket waits for
  for (const auto& [ticket, set] : heads_) {
    if (IsMarked(set) || !HasRoom(set)) {
      Mark(set);
      continue;
    }
    Count(set, 1);
    const Line granted = tickets_.at(ticket);
    const auto it = waiting_.find(granted);
    const NodeId node = *it->second.nodes.begin();
    it->second.nodes.erase(it->second.nodes.begin());
    const bool over = it->second.nodes.empty();
    EndTicket(granted, it->second);
    if (over) waiting_.erase(it);
    const auto session = sessions_.find(granted.session);
    if (session->second.tickets.empty() && session->second.others.empty()) sessions_.erase(session);
    return node;
  }
  stuck_ = true;
  return std::nullopt;
}

void GangTurns::Ended(SetId set) {
  Count(set, -1);
  stuck_ = false;
}

}  // namespace fairway
