// SPDX-License-Identifier: Apache-2.0
// Finds the GPUs of a worker, and takes its share of each, so that the workers of a host do not
// take more of a GPU than there is.
//
// A plugin's client takes its share of a GPU's memory when it is created. If two clients together
// take too much, one or the other fails, at any time. So each worker takes its share here first.
#ifndef FAIRWAY_WORKER_GPUS_H_
#define FAIRWAY_WORKER_GPUS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace fairway {

// The part of a GPU's memory that clients may have together. Contexts, code, cuBLAS and NCCL use
// memory outside it.
inline constexpr double kMostOfGpu = 0.9;

// A GPU of this host.
struct Gpu {
  int64_t index = 0;  // CUDA's number, which the plugin's visible_devices uses
  std::string name;   // its UUID; "0" if no driver gives one
};

// "0,2" or "GPU-4c5e...,GPU-90ab...": indexes and UUIDs, in any mixture. INVALID_ARGUMENT: empty,
// neither of the two, or one twice.
absl::StatusOr<std::vector<std::string>> SplitGpus(std::string_view text);

// Asks the driver (the library `driver`, "libcuda.so.1") which GPUs these are. Creates no context.
// Blocks as long as the driver starts. Without a driver, indexes are used as they are. NOT_FOUND:
// no GPU has that name; the text lists those that exist. UNAVAILABLE: a UUID, and no driver to ask.
absl::StatusOr<std::vector<Gpu>> FindGpus(const std::vector<std::string>& names,
                                          const std::string& driver);

// A share of each of some GPUs, held as locks on files of a directory. Every worker that uses the
// directory sees them, and they end with the process. Movable; destroying it gives the shares back.
class GpuShares {
 public:
  // Takes `fraction` (in thousandths of its memory) of each GPU. RESOURCE_EXHAUSTED: others have
  // too much of one. UNAVAILABLE: a file cannot be opened or locked.
  static absl::StatusOr<GpuShares> Take(const std::string& directory, const std::vector<Gpu>& gpus,
                                        double fraction);
  GpuShares(GpuShares&& other) noexcept : files_(std::move(other.files_)) { other.files_.clear(); }
  GpuShares& operator=(GpuShares&&) = delete;
  ~GpuShares();

 private:
  GpuShares() = default;
  std::vector<int> files_;
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_GPUS_H_
