// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/result_cuts.h"

#include <algorithm>
#include <span>
#include <vector>

#include "worker/compiler/program_attributes.h"

namespace fairway {
namespace {

constexpr size_t kMostAxes = 8;  // axes of a mesh that are looked at

// Returns whether each count is a product of whole axes, using each axis at most once. `used`: a
// bit for each axis.
bool AreWholeAxes(std::span<const int64_t> counts, const std::vector<int64_t>& axes,
                  uint32_t used) {
  while (!counts.empty() && counts[0] == 1) counts = counts.subspan(1);
  if (counts.empty()) return true;
  std::vector<int64_t> rest(counts.begin(), counts.end());
  for (size_t i = 0; i < axes.size(); ++i) {
    if ((used >> i & 1) != 0 || axes[i] <= 1 || counts[0] % axes[i] != 0) continue;
    rest[0] = counts[0] / axes[i];
    if (AreWholeAxes(rest, axes, used | uint32_t{1} << i)) return true;
  }
  return false;
}

}  // namespace

std::map<size_t, size_t> ResultsCutByPartsOfAxes(const std::string& program,
                                                 const v1::ExecutableMetadata& metadata) {
  std::map<size_t, size_t> out;
  if (metadata.num_devices() <= 1) return out;
  absl::StatusOr<mlir::Module> module = mlir::Module::Read(program);
  if (!module.ok()) return out;
  const auto meshes = mlir::Attributes(*module).MeshSizes();
  for (int i = 0; i < metadata.outputs_size(); ++i) {
    const v1::ValueSpec& value = metadata.outputs(i);
    std::vector<int64_t> counts;
    for (int d = 0; d < value.shard_dims_size(); ++d) {
      const int64_t extent = value.shard_dims(d);
      counts.push_back(extent > 0 ? value.global_dims(d) / extent : 1);
    }
    const bool named = std::ranges::any_of(meshes, [&](const std::vector<int64_t>& axes) {
      return axes.size() > kMostAxes || AreWholeAxes(counts, axes, 0);
    });
    if (!named && !meshes.empty()) out[i] = counts.size();
  }
  return out;
}

}  // namespace fairway
