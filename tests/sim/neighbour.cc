// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/neighbour.h"

#include <algorithm>

#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/sessions.h"
#include "tests/sim/controller.h"
#include "tests/sim/hog.h"
#include "tests/sim/world.h"

namespace fairway::sim {
namespace {

constexpr int64_t kNeighbourElements = 4;

}  // namespace

Neighbour::Neighbour(World& world) : world_(world) {
  left_ = static_cast<int>(world_.random.Between(5, 25));
}

void Neighbour::StepIn(int64_t time) {
  world_.queue.After(time, [this] {
    asked_at_ = world_.queue.now();
    world_.ToController([this] { Step(); });
  });
}

void Neighbour::Open() {
  Cluster& cluster = world_.controller->cluster();
  const auto opened = cluster.sessions().Open("neighbour");
  if (!opened.ok()) return;
  cluster.sessions().SetSink(*opened, world_.controller.get());
  devices_.clear();
  std::vector<DeviceId> places;
  IslandId island;
  for (const VirtualDevice& device : cluster.sessions().Devices(*opened)) {
    if (device.island != world_.config.reserved || Hog::Has(device)) continue;
    devices_.push_back(device.id);
    places.push_back(device.device);
    island = device.island_id;
  }
  if (devices_.empty()) return cluster.sessions().Close(*opened);
  session_ = *opened;
  const ExecutableId id(world_.next_code++);
  code_ = &world_.codes[id];
  code_->salt = world_.random.Next();
  code_->duration = world_.random.Between(1, world_.config.duration);
  ExecutableSpec& spec = code_->spec;
  spec.id = id;
  spec.name = "neighbour";
  spec.island = island;
  spec.devices = places;
  ValueType type;
  type.dtype = DType::kU64;
  type.global = type.shard = Shape{{kNeighbourElements}};
  spec.parameters = spec.outputs = {type};
  spec.code = std::make_shared<const std::string>("code");
  cluster.executables().Define(spec);
  const auto bound = cluster.executables().Bind(session_, 0, id, devices_);
  if (Fine(bound.status(), "bind")) executable_ = *bound;
}

bool Neighbour::Fine(const absl::Status& status, const char* what) {
  if (!status.ok())
    world_.Broken("liveness", "the neighbour's {} fails: {}", what, Describe(status));
  return status.ok();
}

void Neighbour::Step() {
  if (world_.controller == nullptr) {
    left_ = 0;
    return;
  }
  if (!session_) {
    Open();
    world_.controller->Settle();
    return StepIn(session_ ? 1 : 50000);
  }
  if (left_-- > 0) Ask();
}

void Neighbour::Ask() {
  Cluster& cluster = world_.controller->cluster();
  if (!arrays_.empty())
    Fine(cluster.arrays().Destruct(session_, std::exchange(arrays_, {})), "destruct");
  const uint64_t value = world_.random.Next() | 1;
  const ArraySpec spec{DType::kU64, Shape{{kNeighbourElements}}, Sharding::Replicated(devices_)};
  const auto put =
      cluster.arrays().Put(session_, 0, spec, std::vector<int32_t>(devices_.size(), 0));
  if (!Fine(put.status(), "put")) return;
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(BytesOf(value, 8 * kNeighbourElements)));
  ExecuteOptions options;
  options.watch = next_token_++;
  open_.insert(*options.watch);
  const auto run = cluster.executables().Execute(session_, executable_, {put->handle}, options, {});
  if (!Fine(run.status(), "execute")) return;
  arrays_ = {put->handle, run->handles[0]};
  value_ = code_->Output({std::vector<uint64_t>(devices_.size(), value)}, 0, 0);
  open_.insert(next_token_);
  cluster.arrays().Fetch(session_, next_token_++, run->handles[0]);
  world_.controller->Settle();
}

int64_t Neighbour::Bound() const {
  const Config& config = world_.config;
  // Both ways for bytes, code, launch and result, and the device's own time.
  const int64_t way = 8 * config.link_delay + 8 * config.data_delay + 6 * config.duration + 5000;
  const auto sessions = static_cast<int64_t>(world_.owners.size());
  const auto others = sessions + static_cast<int64_t>(world_.machines.size()) + 1;
  // A turn, and the work of others in the loop meanwhile.
  const int64_t turn =
      config.turn_delay + others * config.unit_time * static_cast<int64_t>(world_.MostUnits());
  return way + 6 * turn * (sessions + 2);
}

void Neighbour::OnAnswer(uint64_t token, bool fetch, absl::StatusOr<BytesRef> result) {
  if (open_.erase(token) == 0)
    return world_.Broken("G3", "the neighbour's token {} is answered, but nobody waits", token);
  if (!Fine(result.status(), fetch ? "fetch" : "run")) return;
  if (fetch && ValueOf(**result) != value_)
    world_.Broken("G3", "the neighbour gets {:x}, expected {:x}", ValueOf(**result), value_);
  const int64_t took = world_.queue.now() - asked_at_, bound = Bound();
  if (took > bound)
    world_.Broken("liveness", "the neighbour is answered after {} us, {} are allowed", took, bound);
  world_.Count("answer to the neighbour");
  if (open_.empty()) StepIn(world_.random.Between(1, world_.config.think));
}

void Neighbour::End() {
  if (session_) world_.controller->cluster().sessions().Close(std::exchange(session_, SessionId()));
  world_.controller->Settle();
}

void Neighbour::ReportWaiting() {
  for (const uint64_t token : open_)
    world_.Broken("liveness", "the neighbour's token {} is not answered", token);
}

}  // namespace fairway::sim
