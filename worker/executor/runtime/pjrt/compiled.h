// SPDX-License-Identifier: Apache-2.0
// The metadata of compiled code, loaded or not.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_COMPILED_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_COMPILED_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/dtype.h"
#include "core/shape.h"

struct PJRT_Api;
struct PJRT_Executable;
struct PJRT_LoadedExecutable;

namespace fairway::pjrt {

// Compiled code that is not loaded anywhere. Thread-safe.
class Compiled {
 public:
  // Takes `raw` over. Keeps `owner`, the client or topology that the code needs, as long.
  Compiled(const PJRT_Api* api, PJRT_Executable* raw, std::shared_ptr<const void> owner)
      : api_(api), raw_(raw), owner_(std::move(owner)) {}
  // Makes the Compiled of loaded code, which `owner` keeps.
  static absl::StatusOr<std::unique_ptr<Compiled>> Of(const PJRT_Api* api,
                                                      PJRT_LoadedExecutable* loaded,
                                                      std::shared_ptr<const void> owner);
  ~Compiled();
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  // The calls below block briefly. Each can return the plugin's error.
  absl::StatusOr<std::string> Serialize() const;
  absl::StatusOr<std::string> Fingerprint() const;
  // Returns a serialized HloModuleProto (proto/xla/hlo_subset.proto).
  absl::StatusOr<std::string> HloModule() const;
  // Returns the outputs of one device, in order.
  absl::StatusOr<std::vector<std::pair<DType, Shape>>> Outputs() const;
  absl::StatusOr<std::map<std::string, double>> Cost() const;
  struct MemoryUse {
    int64_t generated_code = 0, argument = 0, output = 0, alias = 0, temp = 0, peak = 0;
  };
  absl::StatusOr<MemoryUse> Memory() const;

 private:
  const PJRT_Api* const api_;
  PJRT_Executable* const raw_;
  const std::shared_ptr<const void> owner_;
};

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_COMPILED_H_
