// SPDX-License-Identifier: Apache-2.0
// What the conformance suite needs of a runtime under test beside the seam itself.
#ifndef FAIRWAY_TESTS_CONFORMANCE_RUNTIME_BACKEND_H_
#define FAIRWAY_TESTS_CONFORMANCE_RUNTIME_BACKEND_H_

#include <chrono>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/v1/executable.pb.h"
#include "worker/compiler/compiler.h"
#include "worker/executor/runtime/runtime.h"

namespace fairway::conformance {

// The programs of the suite; each backend has its own text of them.
enum class Program {
  kAdd,           // f32[4], f32[4] -> f32[4]
  kDonatingAdd,   // the same; argument 0 is taken over
  kPsum,          // f32[1] per device -> f32[1] or f32[]: the sum, on each device
  kDonatingPsum,  // f32[1] per device -> f32[1], the sum; taken over
  kWait,          // f32[4] -> f32[4], after kWaitTime (kNoDeclaredTimes)
  kStableHlo,     // kAdd, as MLIR (kNoCompiler)
};
inline constexpr std::chrono::milliseconds kWaitTime{2};

// Why a case does not run on a runtime: all the reasons that there are.
enum class Reason {
  kNoCompiler,
  kNoComputation,
  kNoDeclaredTimes,
  kOneExecutor,
  kNoThreads,
};
// For the table in docs/testing.md: "no compiler".
std::string_view ReasonText(Reason reason);

// A runtime and what makes programs for it. One exists at a time.
class RuntimeBackend {
 public:
  virtual ~RuntimeBackend() = default;
  virtual Runtime& runtime() = 0;
  virtual absl::StatusOr<CompileResult> Compile(Program program,
                                                const v1::CompileOptions& options) = 0;
  // A buffer whose bytes come later.
  struct Incoming {
    std::unique_ptr<DeviceBuffer> buffer;
    absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<Blob>>)> fulfil;
  };
  virtual absl::StatusOr<Incoming> Expect(DType dtype, const Shape& shape, int device) = 0;
  // Gives the runtime up, before what came of it.
  virtual void CloseRuntime() = 0;
};

struct BackendUnderTest {
  std::string name;
  std::unique_ptr<RuntimeBackend> (*open)(
      int num_devices);  // nullptr: cannot be had; the test fails
  // Cases that do not run, and why.
  std::map<std::string, Reason> off;
  bool computes = true;    // else the results of programs are zeros
  bool has_brief = false;  // kAdd may be launched by an event loop; else Launch may wait
};

// For GoogleTest's messages.
inline void PrintTo(const BackendUnderTest& backend, std::ostream* out) { *out << backend.name; }

// All runtimes, with the table of what is off.
const std::vector<BackendUnderTest>& Backends();

}  // namespace fairway::conformance

#endif  // FAIRWAY_TESTS_CONFORMANCE_RUNTIME_BACKEND_H_
