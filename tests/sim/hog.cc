// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/hog.h"

#include <utility>
#include <vector>

#include "controller/cluster/arrays.h"
#include "controller/cluster/executables.h"
#include "controller/cluster/sessions.h"
#include "tests/sim/controller.h"
#include "tests/sim/world.h"

namespace fairway::sim {
namespace {

constexpr uint64_t kGangs = 8;           // more than config.cluster.max_gangs_per_device
constexpr int64_t kLong = 20 * kSecond;  // of each

}  // namespace

void Hog::TryIn(int64_t time) {
  world_.queue.After(time, [this] {
    world_.ToController([this] {
      if (world_.controller == nullptr || Launch()) {
        begun_ = true;
      } else {
        TryIn(50000);
      }
    });
  });
}

bool Hog::Launch() {
  Cluster& cluster = world_.controller->cluster();
  const auto opened = cluster.sessions().Open("hog");
  if (!opened.ok()) return false;
  cluster.sessions().SetSink(*opened, world_.controller.get());
  const ExecutableId id(world_.next_code++);
  Code code;
  ExecutableSpec& spec = code.spec;
  std::vector<int32_t> devices;
  for (const VirtualDevice& device : cluster.sessions().Devices(*opened)) {
    if (device.island != world_.config.reserved || !Has(device)) continue;
    devices.push_back(device.id);
    spec.devices.push_back(device.device);
    spec.island = device.island_id;
  }
  if (devices.size() < kDevices) {
    cluster.sessions().Close(*opened);
    return false;
  }
  session_ = *opened;
  code.salt = world_.random.Next();
  code.duration = kLong;
  ValueType type;
  type.dtype = DType::kU64;
  type.global = type.shard = Shape{{1}};
  spec.id = id;
  spec.name = "hog";
  spec.parameters = spec.outputs = {type};
  spec.code = std::make_shared<const std::string>("code");
  world_.codes[id] = code;
  cluster.executables().Define(spec);
  const auto bound = cluster.executables().Bind(session_, 0, id, devices);
  const ArraySpec array{DType::kU64, Shape{{1}}, Sharding::Replicated(devices)};
  const auto put = cluster.arrays().Put(session_, 0, array, std::vector<int32_t>(kDevices, 0));
  if (!bound.ok() || !put.ok()) {
    world_.Broken("sim", "the hog cannot begin");
    return true;
  }
  cluster.arrays().ProvideUpload(put->upload, 0, BytesRef(BytesOf(7, 8)));
  for (uint64_t token = 1; token <= kGangs; ++token) {
    ExecuteOptions options;
    options.watch = token;
    const auto run = cluster.executables().Execute(session_, *bound, {put->handle}, options, {});
    if (run.ok()) open_.insert(token);
  }
  world_.controller->Settle();
  return true;
}

void Hog::OnAnswer(uint64_t token, bool, absl::StatusOr<BytesRef> result) {
  open_.erase(token);
  if (!result.ok()) world_.Broken("liveness", "a gang of the hog: {}", Describe(result.status()));
  world_.Count("gang of the hog");
}

void Hog::End() {
  if (session_) world_.controller->cluster().sessions().Close(std::exchange(session_, SessionId()));
  world_.controller->Settle();
}

void Hog::ReportWaiting() {
  for (const uint64_t token : open_)
    world_.Broken("liveness", "gang {} of the hog has not ended", token);
}

}  // namespace fairway::sim
