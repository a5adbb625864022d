// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/executable.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/host.h"
#include "fairway/v1/compiler.pb.h"
#include "worker/executor/runtime/pjrt/compile_options.h"

namespace fairway::pjrt {
namespace {

Shape ShardShape(const v1::ValueSpec& spec) {
  return Shape{{spec.shard_dims().begin(), spec.shard_dims().end()}};
}

absl::StatusOr<DType> ElementType(const v1::ValueSpec& spec) {
  if (auto dtype = DTypeFromNumber(spec.dtype())) return *dtype;
  return InvalidArgument("code with an unknown element type {}", spec.dtype());
}

absl::StatusOr<DimensionOrder> OrderOf(const v1::ValueSpec& spec) {
  const int rank = spec.shard_dims_size();
  if (spec.minor_to_major_size() != rank) {
    if (spec.minor_to_major().empty()) return DimensionOrder();
    return InvalidArgument("code with a layout of rank {} for a value of rank {}",
                           spec.minor_to_major_size(), rank);
  }
  std::vector<bool> seen(rank, false);
  bool default_order = true;
  for (int i = 0; i < rank; ++i) {
    const int64_t dimension = spec.minor_to_major(i);
    if (dimension < 0 || dimension >= rank || seen[dimension]) {
      return InvalidArgument("code with dimension {} in a layout of rank {}", dimension, rank);
    }
    seen[dimension] = true;
    default_order = default_order && dimension == rank - 1 - i;
  }
  if (default_order) return DimensionOrder();
  return DimensionOrder(spec.minor_to_major().begin(), spec.minor_to_major().end());
}

}  // namespace

absl::StatusOr<std::shared_ptr<Executable>> Executable::Load(const Client& client,
                                                             std::string_view code,
                                                             const std::vector<int>& devices) {
  v1::PjrtCode parsed;
  if (!parsed.ParseFromArray(code.data(), static_cast<int>(code.size())) ||
      parsed.native().empty()) {
    return InvalidArgument("{} bytes that are no code of the pjrt compiler", code.size());
  }
  if (parsed.plugin() != client.identity()) {
    return InvalidArgument("code of another plugin: it was made by \"{}\", this is \"{}\"",
                           parsed.plugin(), client.identity());
  }
  std::shared_ptr<Executable> loaded(new Executable());
  loaded->name_ = parsed.metadata().name();
  // A program that calls clients is neither separable nor brief: a client may take long, and must
  // not hold up a thread that others need.
  loaded->calls_back_ = parsed.calls_back();
  loaded->separable_ = parsed.separable() && !loaded->calls_back_;
  loaded->brief_ = parsed.brief() && !loaded->calls_back_;
  loaded->meets_briefly_ = parsed.meets_briefly() && !loaded->calls_back_;
  v1::CompileOptions options = parsed.options();
  const bool replace = !devices.empty() && !options.portable();
  if (replace && parsed.metadata().names_devices() &&
      !std::ranges::equal(devices, options.devices())) {
    return InvalidArgument("{} names the devices that it was compiled for, {}: compile it for {}",
                           loaded->name_, fmt::join(options.devices(), ", "),
                           fmt::join(devices, ", "));
  }
  if (replace) options.mutable_devices()->Assign(devices.begin(), devices.end());
  FAIRWAY_ASSIGN_OR_RETURN(loaded->devices_, AssignedDevices(options, client.num_devices()));
  for (int device : devices) {
    if (options.portable() && (device < 0 || device >= client.num_devices())) {
      return InvalidArgument("no device {} (there are {})", device, client.num_devices());
    }
  }
  std::string override_options;
  if (replace) {
    FAIRWAY_ASSIGN_OR_RETURN(override_options, EncodeCompileOptions(options, client));
  }
  for (const v1::ValueSpec& spec : parsed.metadata().parameters()) {
    FAIRWAY_ASSIGN_OR_RETURN(DType dtype, ElementType(spec));
    FAIRWAY_ASSIGN_OR_RETURN(DimensionOrder order, OrderOf(spec));
    loaded->parameters_.push_back({dtype, ShardShape(spec), 0});
    loaded->passing_.push_back({std::move(order), spec.donated()});
  }
  for (const v1::ValueSpec& spec : parsed.metadata().outputs()) {
    FAIRWAY_ASSIGN_OR_RETURN(DType dtype, ElementType(spec));
    FAIRWAY_ASSIGN_OR_RETURN(DimensionOrder order, OrderOf(spec));
    loaded->outputs_.push_back({dtype, ShardShape(spec), std::move(order), spec.memory_kind()});
  }
  auto program = client.Load(parsed.native(), override_options);
  if (!program.ok()) {
    const MemoryMappings mappings = CountMemoryMappings();
    if (mappings.most > 0 && mappings.used > mappings.most / 10 * 9) {
      return Error(absl::StatusCode::kResourceExhausted,
                   "loading {}: the code that is loaded takes {} of the {} memory mappings that "
                   "the kernel gives the executor. Free compiled functions "
                   "(jax.clear_caches), or raise vm.max_map_count there. The plugin said: {}",
                   loaded->name_, mappings.used, mappings.most, Text(program.status()));
    }
    return InvalidArgument("loading {}: {}", loaded->name_, Text(program.status()));
  }
  loaded->program_ = *std::move(program);
  // The plugin writes all its outputs into arrays of our size, so the numbers must agree.
  FAIRWAY_ASSIGN_OR_RETURN(const auto compiled,
                           Compiled::Of(client.api(), loaded->program_->raw(), nullptr));
  FAIRWAY_ASSIGN_OR_RETURN(auto outputs, compiled->Outputs());
  if (outputs.size() != loaded->outputs_.size()) {
    return InvalidArgument("loading {}: {} outputs in its metadata, {} in its code", loaded->name_,
                           loaded->outputs_.size(), outputs.size());
  }
  return loaded;
}

}  // namespace fairway::pjrt
