// SPDX-License-Identifier: Apache-2.0
#include "scheduler/gang_turns.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/planted.h"

namespace fairway {

GangTurns::SetId GangTurns::Use(const std::vector<DeviceId>& devices) {
  // Most gangs have the devices of the one before them, which may be many.
  static_assert(std::has_unique_object_representations_v<DeviceId>);
  const bool as_last = last_ && sets_[*last_].key->first.size() == devices.size() &&
                       std::memcmp(sets_[*last_].key->first.data(), devices.data(),
                                   devices.size() * sizeof(DeviceId)) == 0;
  if (as_last) {
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
    set.devices.clear();
    for (const DeviceId device : devices) {
      const auto [place, unseen] =
          places_.try_emplace(device, static_cast<uint32_t>(in_flight_.size()));
      if (unseen) in_flight_.Grow(in_flight_.size() + 1);
      set.devices.push_back(place->second);
    }
    std::vector<uint32_t> places = set.devices;
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
  return key->second;
}

void GangTurns::Release(SetId id) {
  if (--sets_[id].users > 0) return;
  unused_.push_back(id);
  if (unused_.size() <= kKept) return;
  const bool all = used_sets() == 0;
  const auto end = all ? unused_.end() : unused_.begin() + 1;
  for (auto it = unused_.begin(); it != end; ++it) {
    if (last_ == *it) last_.reset();
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
  std::vector<char>& taken = marked_;  // devices of lines with tickets
  taken.assign(in_flight_.size(), 0);
  steps_ += in_flight_.size();
  const auto take = [&](const Line& line) {
    steps_ += sets_[line.set].devices.size();
    for (const uint32_t device : sets_[line.set].devices) taken[device] = 1;
  };
  for (const uint64_t ticket : session.tickets) take(tickets_.at(ticket));
  size_t looked = 0;
  for (auto it = session.others.begin(); it != session.others.end() && looked < kLooked; ++looked) {
    const Line line = it->second;
    const std::vector<uint32_t>& devices = sets_[line.set].devices;
    ++steps_;
    if (std::any_of(devices.begin(), devices.end(), [&](uint32_t d) { return taken[d] != 0; })) {
      ++it;
      continue;
    }
    take(line);
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

bool GangTurns::Full(int gangs) const { return gangs >= most_ && !Planted(Bug::kTooManyGangs); }

bool GangTurns::HasRoom(SetId set) const {
  const auto& rows = sets_[set].rows;
  return std::all_of(rows.begin(), rows.end(), [&](const auto& row) {
    return in_flight_.AllOf(row.first, row.second, [&](int gangs) { return !Full(gangs); });
  });
}

void GangTurns::Count(SetId set, int more) {
  for (const auto& [first, count] : sets_[set].rows)
    in_flight_.Change(first, count, [more](int& gangs) { gangs += more; });
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
  std::vector<char>& wanted = marked_;  // devices that a lower ticket waits for
  wanted.assign(in_flight_.size(), 0);
  steps_ += in_flight_.size();
  for (const auto& [ticket, set] : heads_) {
    const std::vector<uint32_t>& devices = sets_[set].devices;
    steps_ += devices.size();
    if (std::any_of(devices.begin(), devices.end(),
                    [&](uint32_t d) { return wanted[d] != 0 || Full(in_flight_[d]); })) {
      for (const uint32_t device : devices) wanted[device] = 1;
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
