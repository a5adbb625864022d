// SPDX-License-Identifier: Apache-2.0
// The conformance suite's needs of a runtime under test, beside the runtime's own interface.
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
  kDonatingAdd,   // the same; it takes argument 0 over
  kPsum,          // f32[1] per device -> f32[1] or f32[]: the sum, on each device
  kDonatingPsum,  // f32[1] per device -> f32[1], the sum; it takes its argument over
  kWait,          // f32[4] -> f32[4], after kWaitTime (kNoDeclaredTimes)
  kStableHlo,     // kAdd, as MLIR (kNoCompiler)
};
inline constexpr std::chrono::milliseconds kWaitTime{2};

// The reasons why a case may not run on a runtime.
enum class Reason {
  kNoCompiler,
  kNoComputation,
  kNoDeclaredTimes,
  kOneExecutor,
  kNoThreads,
  kNoBlocks,
};
// The text in the table of docs/testing.md: "no compiler".
std::string_view ReasonText(Reason reason);

// A runtime and its compiler of programs. One exists at a time.
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
  // Closes the runtime, before its buffers and executables are gone.
  virtual void CloseRuntime() = 0;
};

struct BackendUnderTest {
  std::string name;
  std::unique_ptr<RuntimeBackend> (*open)(
      int num_devices);  // nullptr: cannot be had; the test fails
  // The cases that do not run, and why.
  std::map<std::string, Reason> off;
  bool computes = true;    // false: the results of programs are zeros
  bool has_brief = false;  // an event loop may launch kAdd; otherwise Launch may wait
};

// Formats the parameter for GoogleTest's messages.
inline void PrintTo(const BackendUnderTest& backend, std::ostream* out) { *out << backend.name; }

// All runtimes, with the cases that each leaves out.
const std::vector<BackendUnderTest>& Backends();

}  // namespace fairway::conformance

#endif  // FAIRWAY_TESTS_CONFORMANCE_RUNTIME_BACKEND_H_
