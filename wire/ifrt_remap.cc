// SPDX-License-Identifier: Apache-2.0
#include "wire/ifrt_remap.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "wire/ifrt_sharding.h"

namespace fairway {
namespace {

using Proto = xla::ifrt::RemapPlanProto;

constexpr RemapPlan::From kNone{-1, -1};

// A plan under construction: the shards already taken, and those still to fill.
class Builder {
 public:
  explicit Builder(RemapPlan plan) : plan_(std::move(plan)) {
    for (const ArraySpec& in : plan_.inputs) used_.emplace_back(in.sharding.num_shards(), false);
    for (const ArraySpec& out : plan_.outputs)
      plan_.shards.emplace_back(out.sharding.num_shards(), kNone);
  }

  absl::Status CheckPair(int32_t in, int32_t out) const {
    FAIRWAY_RETURN_IF_ERROR(CheckOut(out));
    if (in < 0 || static_cast<size_t>(in) >= plan_.inputs.size())
      return InvalidArgument("remap: it takes shards of input {} of {}", in, plan_.inputs.size());
    if (plan_.inputs[in].dtype != plan_.outputs[out].dtype)
      return InvalidArgument("remap: input {} is {}, output {} is {}", in,
                             Name(plan_.inputs[in].dtype), out, Name(plan_.outputs[out].dtype));
    return absl::OkStatus();
  }

  absl::Status CheckOut(int32_t out) const {
    if (out < 0 || static_cast<size_t>(out) >= plan_.outputs.size())
      return InvalidArgument("remap: it makes output {} of {}", out, plan_.outputs.size());
    return absl::OkStatus();
  }

  // Takes a shard. CheckPair has passed.
  absl::Status Take(int32_t in, int64_t in_shard, int32_t out, int64_t out_shard) {
    std::vector<bool>& used = used_[in];
    std::vector<RemapPlan::From>& to = plan_.shards[out];
    if (in_shard < 0 || in_shard >= static_cast<int64_t>(used.size()))
      return InvalidArgument("remap: shard {} of input {}, which has {}", in_shard, in,
                             used.size());
    if (out_shard < 0 || out_shard >= static_cast<int64_t>(to.size()))
      return InvalidArgument("remap: shard {} of output {}, which has {}", out_shard, out,
                             to.size());
    if (used[in_shard])
      return InvalidArgument("remap: shard {} of input {} is used twice", in_shard, in);
    if (to[out_shard] != kNone)
      return InvalidArgument("remap: shard {} of output {} is given twice", out_shard, out);
    used[in_shard] = true;
    to[out_shard] = {in, static_cast<int32_t>(in_shard)};
    return absl::OkStatus();
  }

  absl::StatusOr<RemapPlan> Finish() && {
    for (size_t out = 0; out < plan_.shards.size(); ++out) {
      const auto& shards = plan_.shards[out];
      const auto missing = std::find(shards.begin(), shards.end(), kNone);
      if (missing != shards.end())
        return InvalidArgument("remap: nothing is given for shard {} of output {}",
                               missing - shards.begin(), out);
    }
    return std::move(plan_);
  }

  // Takes the shard of `in` on this device as that of `out`. CheckPair has passed.
  absl::Status TakeOn(int32_t device, int32_t in, int32_t out) {
    const Places& have = PlacesOf(plan_.inputs[in], input_places_[in]);
    const Places& want = PlacesOf(plan_.outputs[out], output_places_[out]);
    const auto from = have.find(device);
    const auto to = want.find(device);
    if (from == have.end() || to == want.end())
      return InvalidArgument("remap: device {} is none of input {} or none of output {}", device,
                             in, out);
    return Take(in, from->second, out, to->second);
  }

 private:
  using Places = std::unordered_map<int32_t, int64_t>;  // device -> shard

  // Filled at first use; no sharding is empty.
  static const Places& PlacesOf(const ArraySpec& spec, Places& places) {
    if (places.empty()) {
      for (const int32_t device : spec.sharding.devices())
        places.emplace(device, static_cast<int64_t>(places.size()));
    }
    return places;
  }

  RemapPlan plan_;
  std::map<int32_t, Places> input_places_, output_places_;
  std::vector<std::vector<bool>> used_;
};

// Every step takes a free shard, so the device lists bound the number of steps.
absl::Status AddMapping(const Proto::MappingProto& mapping, Builder& builder) {
  const int32_t in = mapping.in_array();
  const int32_t out = mapping.out_array();
  FAIRWAY_RETURN_IF_ERROR(builder.CheckPair(in, out));
  const int count = mapping.from_start_size();
  if (mapping.from_end_size() != count || mapping.from_step_size() != count ||
      mapping.to_start_size() != count || mapping.to_end_size() != count ||
      mapping.to_step_size() != count)
    return InvalidArgument("remap: its lists of intervals have different lengths");
  for (int i = 0; i < count; ++i) {
    if (mapping.from_step(i) < 1 || mapping.to_step(i) < 1)
      return InvalidArgument("remap: an interval by steps of {} to one by steps of {}",
                             mapping.from_step(i), mapping.to_step(i));
    int64_t from = mapping.from_start(i);
    int64_t to = mapping.to_start(i);
    while (from < mapping.from_end(i) && to < mapping.to_end(i)) {
      FAIRWAY_RETURN_IF_ERROR(builder.Take(in, from, out, to));
      // An overflow counts as beyond the end.
      if (__builtin_add_overflow(from, mapping.from_step(i), &from)) from = INT64_MAX;
      if (__builtin_add_overflow(to, mapping.to_step(i), &to)) to = INT64_MAX;
    }
    if (from < mapping.from_end(i) || to < mapping.to_end(i))
      return InvalidArgument("remap: an interval of input {} is not as long as that of output {}",
                             in, out);
  }
  return absl::OkStatus();
}

absl::Status AddDevices(const Proto::InputDevicesForOutput& devices, Builder& builder) {
  const int32_t out = devices.out_array();
  FAIRWAY_RETURN_IF_ERROR(builder.CheckOut(out));
  for (const Proto::InputDevices& input : devices.input_devices()) {
    const int32_t in = input.in_array();
    FAIRWAY_RETURN_IF_ERROR(builder.CheckPair(in, out));
    for (const int32_t device : input.device_list().device_ids())
      FAIRWAY_RETURN_IF_ERROR(builder.TakeOn(device, in, out));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RemapPlan> RemapPlanFromProto(const Proto& proto) {
  RemapPlan specs;
  for (const auto& spec : proto.input_specs()) {
    FAIRWAY_ASSIGN_OR_RETURN(specs.inputs.emplace_back(), ArraySpecFromProto(spec));
  }
  for (const auto& spec : proto.output_specs()) {
    FAIRWAY_ASSIGN_OR_RETURN(specs.outputs.emplace_back(), ArraySpecFromProto(spec));
  }
  if (specs.inputs.empty()) return InvalidArgument("remap: it has no input");
  Builder builder(std::move(specs));
  for (const auto& mapping : proto.mappings())
    FAIRWAY_RETURN_IF_ERROR(AddMapping(mapping, builder));
  if (proto.mappings().empty()) {
    for (const auto& devices : proto.input_devices_for_output())
      FAIRWAY_RETURN_IF_ERROR(AddDevices(devices, builder));
  }
  return std::move(builder).Finish();
}

}  // namespace fairway
