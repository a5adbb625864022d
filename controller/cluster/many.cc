// SPDX-License-Identifier: Apache-2.0
// The turns of requests on many arrays, and the requests that make none: delete, destruct, watch.
#include "controller/cluster/many.h"

#include <algorithm>
#include <memory>

#include <fmt/ranges.h>

#include "base/planted.h"
#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"

namespace fairway {
namespace {

// Items done between two looks at the unit count.
constexpr int kAtOnce = 16;
constexpr uint64_t kUnitsAtOnce = 32;

}  // namespace

bool Cluster::Requests::ManyRequest::GoOn(Session& session) {
  const uint64_t until = s.units + std::min(kUnitsAtOnce, s.options.turn_units);
  for (int i = 0; i < kAtOnce && s.units < until; ++i) {
    if (refused_) {
      s.Charge(1);
      if (GiveUp()) return true;
      continue;
    }
    while (phase_ < phases_ && item_ == Items(phase_)) {
      ++phase_;
      item_ = 0;
    }
    if (phase_ == phases_) return true;
    bool again = false;
    if (absl::Status done = Do(session, phase_, item_, again); !done.ok()) {
      refused_ = true;
      result = std::move(done);
    }
    if (!again) ++item_;
  }
  if (Planted(Bug::kSkipItem) && !refused_ && item_ < Items(phase_)) ++item_;
  return false;
}

absl::Status Cluster::Requests::AddHandle(Session& session, ResultHandles& handles) const {
  s.Charge(1);
  FAIRWAY_RETURN_IF_ERROR(s.CheckRoom(session, handles.size() + 1));
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t handle, s.NewHandle(session, handles.next_asked()));
  return handles.Add(handle);
}

void Cluster::Requests::BeginEnding(SessionId id, std::unique_ptr<LongRequest> request,
                                    Cluster::Ended ended, Cluster::Each each) {
  const absl::StatusOr<Session*> session = s.FindSession(id);
  if (!session.ok()) return;
  Begin(
      **session, std::move(request),
      [ended = std::move(ended)](const auto& result) { ended(result.status()); }, std::move(each));
}

// ---- delete

class Cluster::Requests::DeleteRequest final : public ManyRequest {
 public:
  DeleteRequest(State& state, std::vector<uint64_t> handles)
      : ManyRequest(state, 1), handles_(std::move(handles)) {}

 private:
  size_t Items(int) const override { return handles_.size(); }
  absl::Status Do(Session& session, int, size_t item, bool&) override {
    const absl::StatusOr<Array*> array = Find(session, handles_[item]);
    if (!array.ok()) {
      if (result.ok()) result = array.status();
      return absl::OkStatus();
    }
    (*array)->deleted = (*array)->shards.empty();
    s.views.MarkDeleted((*array)->shards);
    return absl::OkStatus();
  }
  const std::vector<uint64_t> handles_;
};

absl::Status Cluster::Arrays::Delete(SessionId id, const std::vector<uint64_t>& handles) {
  const Operation operation(*state_);
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, state_->FindSession(id));
  Requests::DeleteRequest request(*state_, handles);
  return state_->requests.AtOnce(*session, request).status();
}

void Cluster::Arrays::Delete(SessionId id, std::vector<uint64_t> handles, Ended ended) {
  const Operation operation(*state_);
  state_->requests.BeginEnding(
      id, std::make_unique<Requests::DeleteRequest>(*state_, std::move(handles)), std::move(ended),
      nullptr);
}

// ---- destruct

class Cluster::Requests::DestructRequest final : public ManyRequest {
 public:
  DestructRequest(State& state, std::vector<uint64_t>&& handles)
      : ManyRequest(state, 1), owned_(std::move(handles)), handles_(owned_) {}
  // `handles` must outlive it.
  DestructRequest(State& state, const std::vector<uint64_t>& handles)
      : ManyRequest(state, 1), handles_(handles) {}

 private:
  size_t Items(int) const override { return handles_.size(); }
  absl::Status Do(Session& session, int, size_t item, bool&) override {
    const uint64_t handle = handles_[item];
    s.Charge(1);
    if (each != nullptr) each(handle);
    if (!session.arrays.contains(handle)) {
      if (++missing_ <= kNamed) unknown_.push_back(handle);
    } else {
      const Array given = session.arrays.Take(handle);
      if (!Planted(Bug::kDestructKeepsView)) s.views.Drop(given);
    }
    if (missing_ > 0 && item + 1 == handles_.size())
      result = Error(absl::StatusCode::kNotFound, "no such arrays to give up: {}{}",
                     fmt::join(unknown_, ", "),
                     missing_ > kNamed ? fmt::format(" and {} more", missing_ - kNamed) : "");
    return absl::OkStatus();
  }

  static constexpr size_t kNamed = 10;  // the error names no more: a client may send millions
  const std::vector<uint64_t> owned_;
  const std::vector<uint64_t>& handles_;
  std::vector<uint64_t> unknown_;
  size_t missing_ = 0;
};

absl::Status Cluster::Arrays::Destruct(SessionId id, const std::vector<uint64_t>& handles) {
  const Operation operation(*state_);
  FAIRWAY_ASSIGN_OR_RETURN(Session * session, state_->FindSession(id));
  Requests::DestructRequest request(*state_, handles);
  return state_->requests.AtOnce(*session, request).status();
}

void Cluster::Arrays::Destruct(SessionId id, std::vector<uint64_t> handles, Ended ended,
                               Each each) {
  const Operation operation(*state_);
  state_->requests.BeginEnding(
      id, std::make_unique<Requests::DestructRequest>(*state_, std::move(handles)),
      std::move(ended), std::move(each));
}

// ---- release

class Cluster::Requests::ReleaseRequest final : public ManyRequest {
 public:
  ReleaseRequest(State& state, std::vector<uint64_t> handles)
      : ManyRequest(state, 1), handles_(std::move(handles)) {}

 private:
  size_t Items(int) const override { return handles_.size(); }
  absl::Status Do(Session& session, int, size_t item, bool&) override {
    const uint64_t handle = handles_[item];
    s.Charge(1);
    if (each != nullptr) each(handle);
    absl::Status released;
    if (session.programs.contains(handle)) {
      released = s.programs.ReleaseProgram(session, handle);
    } else if (session.executables.erase(handle) == 0) {
      released =
          Error(absl::StatusCode::kNotFound, "there is no executable {} in this session", handle);
    }
    if (result.ok() && !released.ok()) result = std::move(released);
    return absl::OkStatus();
  }

  const std::vector<uint64_t> handles_;
};

void Cluster::Executables::Release(SessionId id, std::vector<uint64_t> handles, Ended ended,
                                   Each each) {
  const Operation operation(*state_);
  state_->requests.BeginEnding(
      id, std::make_unique<Requests::ReleaseRequest>(*state_, std::move(handles)), std::move(ended),
      std::move(each));
}

// ---- watch

class Cluster::Requests::WatchRequest final : public ManyRequest {
 public:
  // `watch` stays open until all arrays are registered.
  WatchRequest(State& state, uint64_t watch, std::vector<uint64_t> handles)
      : ManyRequest(state, 1), watch_(watch), handles_(std::move(handles)) {}

 private:
  // One more item ends the registering.
  size_t Items(int) const override { return handles_.size() + 1; }
  absl::Status Do(Session& session, int, size_t item, bool&) override {
    if (item == handles_.size()) {
      s.watches.Ended(session.id, watch_, SIZE_MAX, absl::OkStatus(), NodeId());
      return absl::OkStatus();
    }
    if (missing_ || (Planted(Bug::kWatchFirst) && item > 0)) return absl::OkStatus();
    const uint64_t handle = handles_[item];
    absl::StatusOr<Array*> array = Find(session, handle);
    if (absl::Status room = s.CheckWatchRoom(session); !room.ok()) array = std::move(room);
    PendingWatch& watch = session.watches.at(watch_);
    if (!array.ok()) {  // later arrays would not change the result, or there is no room for more
      missing_ = true;
      ++watch.open;
      s.watches.Ended(session.id, watch_, item, array.status(), NodeId());
      return absl::OkStatus();
    }
    absl::Status status = (*array)->error;
    if (status.ok()) status = s.views.CheckUsable(**array, handle);
    if (!status.ok()) {
      ++watch.open;
      s.watches.Ended(session.id, watch_, item, status, NodeId());
      return absl::OkStatus();
    }
    s.ChargeShards((*array)->shards.size());
    for (const GroupId group_id : GroupsOf((*array)->shards)) {
      Group* group = s.FindGroup(group_id);
      if (group->state == GroupState::kReady) continue;
      // The first position at which it is named decides which failure counts.
      if (!group->watchers.empty() && group->watchers.back().watch == watch_) continue;
      ++watch.open;
      if (group->state == GroupState::kFailed) {
        s.watches.Ended(session.id, watch_, item, group->error, group->cause);
      } else {
        group->watchers.push_back({watch_, item});
        watch.bytes += PendingWatch::kWatcher;
        session.watch_records.Add(PendingWatch::kWatcher);
      }
    }
    return absl::OkStatus();
  }

  const uint64_t watch_;
  const std::vector<uint64_t> handles_;
  bool missing_ = false;
};

void Cluster::Arrays::Watch(SessionId id, uint64_t token, std::vector<uint64_t> handles) {
  const Operation operation(*state_);
  const absl::StatusOr<Session*> session = state_->FindSession(id);
  if (!session.ok()) return;
  state_->requests.Begin(**session, state_->requests.NewWatch(**session, token, std::move(handles)),
                         nullptr);
}

std::unique_ptr<LongRequest> Cluster::Requests::NewWatch(Session& session, uint64_t token,
                                                         std::vector<uint64_t> handles) {
  return std::make_unique<WatchRequest>(s, s.watches.Add(session, token), std::move(handles));
}

// ---- errors

class Cluster::Requests::ErrorsRequest final : public ManyRequest {
 public:
  ErrorsRequest(State& state, std::vector<uint64_t> handles, absl::Status error)
      : ManyRequest(state, 1), handles_(std::move(handles)), error_(std::move(error)) {}

 private:
  size_t Items(int) const override { return handles_.size(); }
  absl::Status Do(Session& session, int, size_t item, bool&) override {
    const uint64_t handle = handles_[item];
    s.Charge(1);
    if (handle == 0 || !s.NewHandle(session, handle).ok()) return absl::OkStatus();
    Array array{ArraySpec(), {}, error_};
    array.unknown = true;
    session.arrays.emplace(handle, std::move(array));
    return absl::OkStatus();
  }

  const std::vector<uint64_t> handles_;
  const absl::Status error_;
};

void Cluster::Arrays::MakeErrors(SessionId id, std::vector<uint64_t> handles, absl::Status error) {
  const Operation operation(*state_);
  const absl::StatusOr<Session*> session = state_->FindSession(id);
  if (!session.ok()) return;
  state_->requests.Begin(**session,
                         std::make_unique<Requests::ErrorsRequest>(*state_, std::move(handles),
                                                                   Bounded(std::move(error))),
                         nullptr);
}

absl::Status Cluster::Arrays::CheckKnown(SessionId session, uint64_t handle) const {
  const absl::StatusOr<Array*> array = state_->FindArray(session, handle);
  return array.ok() && (*array)->unknown ? (*array)->error : absl::OkStatus();
}

}  // namespace fairway
