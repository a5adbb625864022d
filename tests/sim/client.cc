// SPDX-License-Identifier: Apache-2.0
// A client's life, and checks of the answers that it gets; operations.cc has its operations.
#include "tests/sim/client.h"

#include <algorithm>

#include "controller/cluster/arrays.h"
#include "controller/cluster/sessions.h"
#include "tests/sim/controller.h"
#include "tests/sim/machine.h"
#include "tests/sim/world.h"

namespace fairway::sim {

Client::Client(World& world, int number) : world_(world), number_(number) {}

void Client::Begin() {
  left_ = world_.config.operations;
  Next();
}

void Client::Next() { StepIn(world_.random.Between(1, world_.config.think)); }

void Client::StepIn(int64_t time) {
  world_.queue.After(time, [this] { world_.ToController([this] { Step(); }); });
}

void Client::Open() {
  if (world_.controller == nullptr) return;
  const auto opened =
      world_.controller->cluster().sessions().Open(fmt::format("tenant{}", number_));
  world_.controller->Settle();
  if (!opened.ok()) {
    if (opened.status().code() != absl::StatusCode::kUnavailable)
      world_.Broken("G3", "a session cannot be opened: {}", Describe(opened.status()));
    if (!world_.cordoned.empty() && Text(opened.status()).find("cordoned") != std::string::npos)
      world_.Count("all islands are cordoned");
    return;
  }
  session_ = *opened;
  world_.controller->cluster().sessions().SetSink(session_, world_.controller.get());
  devices_ = world_.controller->cluster().sessions().Devices(session_);
  usable_.clear();
  for (const VirtualDevice& device : devices_) {
    if (world_.cordoned.contains(device.island))
      world_.Broken("API", "s{} sees island {}, which is cordoned", session_, device.island);
    if (device.island != world_.config.reserved) usable_.push_back(device.id);
  }
  if (usable_.empty()) return Close();
  next_handle_ = 1 + 100000 * session_.value;  // so that sessions' handles differ, for rule T1
  lost_ = 0;
  world_.Trace("client {} opens session {}, {} devices", number_, session_, devices_.size());
}

void Client::Close() {
  world_.Trace("s{} closes with {} arrays, {} requests", session_, arrays_.size(),
               requests_.size());
  world_.Count(requests_.empty() ? "close" : "close with requests open");
  const SessionId closing = session_;
  session_ = SessionId();
  arrays_.clear();
  executables_.clear();
  programs_.clear();
  binding_.clear();
  requests_.clear();
  unanswered_.clear();
  if (world_.controller->cluster().sessions().Busy(closing))
    world_.Count("close in the middle of a request");
  world_.controller->cluster().sessions().Close(closing);
  world_.controller->Settle();
}

void Client::ControllerLost() {
  session_ = SessionId();
  arrays_.clear();
  executables_.clear();
  programs_.clear();
  binding_.clear();
  requests_.clear();
  unanswered_.clear();
}

void Client::Step() {
  if (world_.controller == nullptr || !session_) {
    if (world_.controller != nullptr) Open();
    StepIn(session_ ? 1 : 50000);
    return;
  }
  Random& r = world_.random;
  // Front doors wait while the session is busy. An operation that comes all the same waits in the
  // core.
  if (world_.controller->cluster().sessions().Busy(session_) && r.Percent(75)) {
    world_.Count("waits for a busy session");
    StepIn(r.Between(1, 200));
    return;
  }
  if (left_-- <= 0) {
    done_ = true;
    return;
  }
  struct Choice {
    int weight;
    void (Client::*run)();
  };
  static constexpr Choice kChoices[] = {{22, &Client::DoPut},
                                        {26, &Client::DoExecute},
                                        {16, &Client::DoCopy},
                                        {10, &Client::DoProgram},
                                        {5, &Client::DoAssemble},
                                        {5, &Client::DoDisassemble},
                                        {4, &Client::DoReplicatedShard},
                                        {2, &Client::DoMakeError},
                                        {4, &Client::DoDelete},
                                        {14, &Client::DoDestruct},
                                        {4, &Client::DoLook},
                                        {10, &Client::DoWatch},
                                        {10, &Client::DoFetch},
                                        {4, &Client::DoWrong},
                                        {5, &Client::DoRemap},
                                        {14, &Client::DoReshard},
                                        {4, &Client::DoBitcast}};
  int total = 0;
  for (const Choice& choice : kChoices) total += choice.weight;
  int64_t pick = r.Below(total);
  for (const Choice& choice : kChoices) {
    if ((pick -= choice.weight) >= 0) continue;
    Operate(choice.run);
    break;
  }
  if (session_ && r.Percent(1)) Close();
  Next();
}

void Client::Operate(void (Client::*run)()) {
  operating_ = true;
  (this->*run)();
  operating_ = false;
  while (!early_.empty()) {
    const Early early = std::move(early_.front());
    early_.pop_front();
    Answered(early.token, early.fetch, early.result);
  }
}

void Client::OnAnswer(uint64_t token, bool fetch, absl::StatusOr<BytesRef> result) {
  if (operating_) {
    early_.push_back({token, fetch, std::move(result)});
    return;
  }
  Answered(token, fetch, result);
  if (done_ || !session_ || !world_.random.Percent(12)) return;
  world_.Count("operation from an answer");
  static constexpr void (Client::*kFollow[])() = {
      &Client::DoPut,   &Client::DoExecute,  &Client::DoCopy,  &Client::DoDelete,
      &Client::DoWatch, &Client::DoDestruct, &Client::DoFetch, &Client::DoReadAll};
  Operate(kFollow[world_.random.Below(std::size(kFollow))]);
  if (world_.random.Percent(waiting() ? 20 : 4)) Close();
}

void Client::ReadAll() {
  if (!session_) return;
  Operate(&Client::DoReadAll);
}

void Client::DoReadAll() {
  for (const auto& [handle, array] : arrays_) {
    const bool fetch =
        array.spec.sharding.fully_replicated() || array.spec.sharding.num_shards() == 1;
    Ask(fetch, {handle}, "the last look");
  }
  world_.controller->Settle();
}

void Client::End() {
  if (!session_) return;
  std::vector<uint64_t> handles;
  for (const auto& [handle, array] : arrays_) handles.push_back(handle);
  world_.random.Shuffle(handles);
  if (world_.random.Percent(50)) {
    for (const uint64_t handle : handles) {
      Expect(world_.controller->cluster().arrays().Destruct(session_, {handle}), "", "destruct");
      world_.controller->Settle();
    }
    arrays_.clear();
  }
  Close();
}

void Client::ReportWaiting() {
  for (const auto& [token, request] : requests_)
    world_.Broken("G3", "s{}: {} (token {}) is not answered", session_, request.what, token);
  for (const auto& [token, what] : unanswered_)
    world_.Broken("G3", "s{}: {} (token {}) is not answered", session_, what, token);
}

// ---- what is known of losses

uint64_t Client::BitsOf(DeviceId device) const {
  return uint64_t{1} << world_.IndexOf(world_.controller->MachineOf(device));
}

void Client::ExecutorLost(const Machine& machine) {
  const uint64_t bit = uint64_t{1} << world_.IndexOf(&machine);
  lost_ |= bit;
  for (const auto& [handle, array] : arrays_) {
    for (const ModelShard& shard : array.shards) {
      if ((shard.group->places & bit) != 0 && shard.group->known_ready && !shard.group->stored)
        shard.group->surely_failed = true;
    }
  }
}

void Client::IslandGivenUp(const std::string& island) {
  for (const auto& machine : world_.machines) {
    if (machine->island() == island) lost_ |= uint64_t{1} << world_.IndexOf(machine.get());
  }
}

// ---- answers

bool Client::MayBeFine(const Request::Item& item) const {
  return item.never.empty() && !item.gone &&
         std::all_of(item.groups.begin(), item.groups.end(),
                     [](const auto& group) { return sim::MayBeFine(group->failures); });
}

bool Client::Explains(const ModelGroup& group, const absl::Status& status) const {
  const std::string text = Describe(status);
  for (const Failure& failure : group.failures) {
    if (text.find(failure.text) != std::string::npos) return true;
  }
  const auto says = [&](const char* why) { return text.find(why) != std::string::npos; };
  if (says("the connection was cut")) return (group.machines & world_.cut) != 0;
  if (says("a device gave out")) return (group.machines & world_.alone) != 0;
  if (says("the runtime has no memory left")) return (group.machines & world_.full) != 0;
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return world_.config.memory != 0 && !group.stored;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnavailable:
      return (group.machines & lost_) != 0 && !group.stored;
    default:
      return false;
  }
}

bool Client::Explains(const Request::Item& item, const absl::Status& status) const {
  if (!item.never.empty()) return Describe(status).find(item.never) != std::string::npos;
  // If several parts of an array have failed, the answer is the lowest node's error.
  ModelGroup whole;
  whole.failures = Inherit(item.groups, world_.config.memory != 0);
  whole.stored = true;
  for (const auto& group : item.groups) {
    if (!group->stored) whole.machines |= group->machines;
    whole.stored = whole.stored && group->stored;
  }
  return Explains(whole, status);
}

void Client::Answered(uint64_t token, bool fetch, const absl::StatusOr<BytesRef>& result) {
  const auto it = requests_.find(token);
  world_.Trace("s{} token {}: {}", session_, token, Describe(result.status()));
  if (it == requests_.end() || it->second.fetch != fetch) {
    world_.Broken("G3", "s{}: token {} is answered, but nobody waits for it: {}", session_, token,
                  Describe(result.status()));
    return;
  }
  const Request request = std::move(it->second);
  requests_.erase(it);
  if (result.ok()) {
    world_.Count(fetch ? "fetched" : "watched");
    for (const Request::Item& item : request.items) {
      if (!MayBeFine(item))
        world_.Broken("G3", "s{}: {} (token {}) is fine, but must fail: {}", session_, request.what,
                      token,
                      !item.never.empty() ? item.never
                      : item.gone         ? "it was lost"
                                          : "its own failure");
      for (const auto& group : item.groups) group->known_ready = true;
    }
    if (fetch && ValueOf(**result) != request.value)
      world_.Broken("G3", "s{}: {} (token {}) gives {:x}, expected {:x}", session_, request.what,
                    token, ValueOf(**result), request.value);
    return;
  }
  world_.Count(fmt::format("failed: {}", absl::StatusCodeToString(result.status().code())));
  if (Text(result.status()).find("is drained") != std::string::npos)
    world_.Count("work fails on a drained island");
  for (const Request::Item& item : request.items) {
    if (Explains(item, result.status())) {
      if (!fetch && request.items.size() == 1 && item.groups.size() == 1 && item.never.empty())
        item.groups[0]->surely_failed = true;
      return;
    }
    if (!MayBeFine(item)) break;  // the answer must be the first failure
  }
  const Request::Item* first = &request.items[0];
  std::string expected = "OK";
  for (const Request::Item& item : request.items) {
    if (MayBeFine(item)) continue;
    first = &item;
    expected = !item.never.empty() ? item.never : "a failure of its own";
    for (const auto& group : first->groups) {
      for (const Failure& failure : group->failures) expected = failure.text;
    }
    break;
  }
  const bool lost = result.status().code() == absl::StatusCode::kDataLoss ||
                    result.status().code() == absl::StatusCode::kUnavailable;
  world_.Broken(lost ? "F1" : "G3", "s{}: {} (token {}) fails with {}; expected {}", session_,
                request.what, token, Describe(result.status()), expected);
}

Cluster::Done Client::Expects(std::string want, std::string what, size_t results) {
  const uint64_t token = next_token_++;
  unanswered_[token] = what;
  return [this, token, want = std::move(want), what = std::move(what),
          results](const absl::StatusOr<std::vector<uint64_t>>& made) {
    if (unanswered_.erase(token) == 0)
      world_.Broken("G3", "s{}: {} (token {}) is answered again", session_, what, token);
    if (Expect(made.status(), want, what) && made->size() != results)
      world_.Broken("API", "s{}: {} gives {} arrays, expected {}", session_, what, made->size(),
                    results);
  };
}

Cluster::Ended Client::Expects(std::string want, std::string what) {
  return [done = Expects(std::move(want), std::move(what), 0)](const absl::Status& ended) {
    ended.ok() ? done(std::vector<uint64_t>()) : done(ended);
  };
}

void Client::Began() {
  if (!world_.controller->cluster().sessions().Busy(session_)) return;
  world_.Count("request of several turns");
  if (!world_.random.Percent(20)) return;
  world_.queue.After(world_.random.Between(0, world_.random.Percent(30) ? 200 : 4000),
                     [this, session = session_] {
                       world_.ToController([this, session] {
                         if (world_.controller != nullptr && session_ == session) Close();
                       });
                     });
}

bool Client::Expect(const absl::Status& got, std::string_view want, std::string_view what) {
  const bool fine =
      want.empty() ? got.ok() : !got.ok() && Describe(got).find(want) != std::string::npos;
  if (!fine)
    world_.Broken(want.find("NOT_FOUND") != std::string_view::npos ? "T1" : "API",
                  "s{}: {} gives {}; expected {}", session_, what, Describe(got),
                  want.empty() ? "OK" : want);
  return got.ok();
}

}  // namespace fairway::sim
