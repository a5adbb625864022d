// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/hostile.h"

#include "controller/cluster/arrays.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/sessions.h"
#include "controller/sessions/caps.h"
#include "graph/lowering.h"
#include "tests/sim/controller.h"
#include "tests/sim/world.h"

namespace fairway::sim {
namespace {

constexpr int64_t kElements = 24;  // of each of its arrays
constexpr size_t kMostArrays = 6000;
constexpr size_t kMostScarceNodes = 200;  // the door's cap where records are scarce
constexpr size_t kMostOfScarce = 12000;   // more than its share where records are scarce

ArraySpec Tiled(const std::vector<int32_t>& devices) {
  std::vector<int64_t> tiles(devices.size());
  for (size_t i = 0; i < tiles.size(); ++i) tiles[i] = static_cast<int64_t>(i);
  return {DType::kU64, Shape{{kElements}},
          Sharding::Tiled(devices, {static_cast<int64_t>(devices.size())}, tiles).value()};
}

}  // namespace

Hostile::Hostile(World& world, int number) : world_(world), number_(number) {
  left_ = world_.config.operations;
}

void Hostile::StepIn(int64_t time) {
  world_.queue.After(time, [this] { world_.ToController([this] { Step(); }); });
}

void Hostile::Open() {
  Cluster& cluster = world_.controller->cluster();
  const auto opened = cluster.sessions().Open(fmt::format("hostile{}", number_));
  if (!opened.ok()) return;
  cluster.sessions().SetSink(*opened, world_.controller.get());
  usable_.clear();
  for (const VirtualDevice& device : cluster.sessions().Devices(*opened)) {
    if (device.island != world_.config.reserved) usable_.push_back(device.id);
  }
  session_ = *opened;
  devices_ = cluster.sessions().Devices(*opened);
  if (usable_.empty()) Close();
}

void Hostile::Close() {
  arrays_.clear();
  programs_.clear();
  open_.clear();
  world_.controller->cluster().sessions().Close(std::exchange(session_, SessionId()));
}

void Hostile::End() {
  if (session_) Close();
  world_.controller->Settle();
}

void Hostile::ReportWaiting() {
  for (const auto& [token, what] : open_)
    world_.Broken("G3", "hostile s{}: {} (token {}) is not answered", session_, what, token);
}

uint64_t Hostile::Token(std::string what) {
  open_[next_token_] = std::move(what);
  return next_token_++;
}

void Hostile::Answered(uint64_t token) {
  if (open_.erase(token) == 0)
    world_.Broken("G3", "hostile s{}: token {} is answered, but nobody waits", session_, token);
}

void Hostile::OnAnswer(uint64_t token, bool, absl::StatusOr<BytesRef>) { Answered(token); }

Cluster::Done Hostile::Keeps(std::string what) {
  return [this, token = Token(std::move(what))](const absl::StatusOr<std::vector<uint64_t>>& made) {
    Answered(token);
    if (made.ok()) arrays_.insert(arrays_.end(), made->begin(), made->end());
    if (made.ok()) return world_.Count("hostile request of many arrays");
    const bool full = made.status().code() == absl::StatusCode::kResourceExhausted;
    world_.Count(full ? "hostile request beyond its share" : "hostile request refused");
  };
}

Cluster::Ended Hostile::Ends(std::string what) {
  return [this, token = Token(std::move(what))](const absl::Status&) { Answered(token); };
}

void Hostile::Step() {
  Random& r = world_.random;
  if (left_ <= 0 || world_.controller == nullptr) {
    done_ = true;
    return;
  }
  if (!session_) Open();
  if (!session_) return StepIn(20000);
  // What a front door does while unfinished work holds too much.
  SessionCaps caps;
  if (world_.config.scarce_records) caps.max_queued_nodes = kMostScarceNodes;
  if (!caps.MayRead(world_.controller->cluster().sessions().BacklogOf(session_),
                    PendingCompilations())) {
    world_.Count("hostile session is not read");
    return StepIn(r.Between(1000, 20000));
  }
  if (world_.controller->cluster().sessions().Busy(session_)) return StepIn(r.Between(1, 50));
  --left_;
  const bool scarce = world_.config.scarce_records;
  const bool over = deleted_ || arrays_.size() > (scarce ? kMostOfScarce : kMostArrays);
  switch (over ? 0 : r.Below(arrays_.empty() ? 2 : 14)) {
    case 0:
      Destruct(over || r.Percent(10));
      break;
    case 1:
      Put();
      break;
    case 2:
    case 3:
    case 4:
      Copy();
      break;
    case 5:
    case 6:
    case 7:
      Reshard();
      break;
    case 8:
      Watch();
      break;
    case 9:
      Errors();
      break;
    case 10:
      Delete();
      break;
    default:
      RunProgram();
      break;
  }
  if (session_ && r.Percent(3)) Close();
  world_.controller->Settle();
  StepIn(r.Between(1, 100));
}

std::vector<int32_t> Hostile::Some(int64_t most) {
  std::vector<int32_t> ids = usable_;
  world_.random.Shuffle(ids);
  if (static_cast<int64_t>(ids.size()) > most) ids.resize(static_cast<size_t>(most));
  return ids;
}

std::vector<uint64_t> Hostile::Handles(int64_t count) {
  std::vector<uint64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(world_.random.Pick(arrays_));
  return out;
}

void Hostile::Put() {
  const ArraySpec spec = Tiled(Some(world_.random.Between(1, 6)));
  std::vector<int32_t> blobs;
  for (int i = 0; i < spec.sharding.num_shards(); ++i) blobs.push_back(i);
  Cluster& cluster = world_.controller->cluster();
  const auto put = cluster.arrays().Put(session_, 0, spec, blobs);
  if (!put.ok()) return;
  arrays_.push_back(put->handle);
  const auto provide = [this, spec, blobs, upload = put->upload] {
    for (const int32_t blob : blobs) {
      const Shape shard = spec.sharding.ShardShape(spec.shape, blob).value();
      const BytesRef bytes = BytesOf(7, ByteSize(spec.dtype, shard).value());
      world_.controller->cluster().arrays().ProvideUpload(upload, blob, bytes);
    }
    world_.controller->Settle();
  };
  if (!world_.random.Percent(10)) return provide();
  world_.queue.After(world_.random.Between(1, 1000000),
                     [this, provide] { world_.ToController(provide); });
}

void Hostile::Copy() {
  Random& r = world_.random;
  const bool alias = r.Percent(50);
  // Copies one array many times: all must lie on the same devices.
  const int64_t most = !alias ? 120 : world_.config.scarce_records ? 5000 : 800;
  const std::vector<uint64_t> in(r.Between(20, most), r.Pick(arrays_));
  world_.controller->cluster().arrays().Copy(
      session_, in, std::nullopt, std::nullopt,
      alias ? CopySemantics::kReuseInput : CopySemantics::kAlwaysCopy, {}, Keeps("copy"));
}

void Hostile::Reshard() {
  Random& r = world_.random;
  const ArraySpec spec = Tiled(Some(r.Between(1, 6)));
  const std::vector<uint64_t> in = Handles(r.Between(10, 100));
  world_.controller->cluster().arrays().Reshard(
      session_, in, {in.size(), [spec](size_t, const ArraySpec&) { return spec; }},
      r.Percent(30) ? CopySemantics::kAlwaysCopy : CopySemantics::kReuseInput, {},
      Keeps("reshard"));
}

void Hostile::Watch() {
  const uint64_t token = Token("watch");
  world_.controller->cluster().arrays().Watch(session_, token,
                                              Handles(world_.random.Between(100, 1000)));
}

void Hostile::Errors() {
  std::vector<uint64_t> handles;
  for (int64_t i = world_.random.Between(50, 500); i > 0; --i)
    handles.push_back(1 + 1000000 * session_.value + next_token_++);
  world_.controller->cluster().arrays().MakeErrors(session_, handles,
                                                   absl::UnknownError("hostile"));
  arrays_.insert(arrays_.end(), handles.begin(), handles.end());
}

void Hostile::Destruct(bool all) {
  deleted_ = false;
  world_.random.Shuffle(arrays_);
  const size_t keep = all ? 0 : arrays_.size() / 2;
  std::vector<uint64_t> gone(arrays_.begin() + static_cast<int64_t>(keep), arrays_.end());
  arrays_.resize(keep);
  world_.controller->cluster().arrays().Destruct(session_, std::move(gone), Ends("destruct"));
}

void Hostile::Delete() {
  deleted_ = true;
  std::vector<uint64_t> handles = Handles(world_.random.Between(1, 200));
  world_.controller->cluster().arrays().Delete(session_, std::move(handles), Ends("delete"));
}

// Transfers from one slice to the other and back, so each round is steps of its own.
uint64_t Hostile::BindProgram(const std::vector<int32_t>& devices) {
  Program program;
  program.name = "ping";
  program.slices = {{"a", 1}, {"b", 1}};
  const ArraySpec type = Tiled({0});
  program.graphs.resize(2);
  program.graphs[1].nodes = {{"", "", ArgumentNode{{0, type}, false}},
                             {"", "", TransferNode{{0, 0}, {1, type}}},
                             {"", "", TransferNode{{1, 0}, {0, type}}}};
  program.graphs[1].results = {{2, 0}};
  program.graphs[0].nodes = {{"", "", ArgumentNode{{0, type}, false}},
                             {"", "", LoopNode{1, world_.random.Between(20, 150), {{0, 0}}}}};
  program.graphs[0].results = {{1, 0}};
  ProgramBinding binding;
  binding.places = {0, 1};
  const auto types = CheckProgram(program);
  if (!types.ok()) return world_.Broken("API", "hostile program: {}", Describe(types.status())), 0;
  auto plan = Lower(program, *types, binding);
  if (!plan.ok()) return world_.Broken("API", "hostile lowering: {}", Describe(plan.status())), 0;
  const auto bound = world_.controller->cluster().programs().Bind(
      session_, 0, {program.name, *std::move(plan), {{devices[0]}, {devices[1]}}});
  return bound.ok() ? *bound : 0;
}

void Hostile::RunProgram() {
  Random& r = world_.random;
  if (usable_.size() < 2) return;
  if (programs_.size() < 3) {
    const uint64_t bound = BindProgram(Some(2));
    if (bound != 0) programs_.push_back(bound);
  }
  if (programs_.empty()) return;
  ExecuteOptions options;
  options.watch = Token("program");
  const auto run = world_.controller->cluster().programs().Run(session_, r.Pick(programs_),
                                                               {r.Pick(arrays_)}, options, {});
  if (run.ok()) {
    world_.Count("hostile program");
    arrays_.insert(arrays_.end(), run->handles.begin(), run->handles.end());
  } else {
    open_.erase(*options.watch);
  }
}

}  // namespace fairway::sim
