// SPDX-License-Identifier: Apache-2.0
// A compiled program.
#ifndef FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_EXECUTABLE_H_
#define FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_EXECUTABLE_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fairway/array.h"
#include "fairway/export.h"

namespace fairway::client {

struct ExecutableState;

// Options of one call.
struct CallOptions {
  // arguments that must not be taken over, although the program would do so
  std::vector<int> non_donatable;
};

// The memory that a program needs on each device, in bytes, according to its compiler.
struct ProgramMemory {
  int64_t code = 0;
  int64_t arguments = 0;
  int64_t results = 0;
  int64_t temporary = 0;
};

// A handle, like Array: dropping the last copy gives the code up.
class Executable {
 public:
  Executable() = default;  // no executable

  FAIRWAY_API const std::string& name() const;
  // The arguments and the results of Call.
  FAIRWAY_API const std::vector<ArraySpec>& parameters() const;
  FAIRWAY_API const std::vector<ArraySpec>& results() const;
  // For each parameter: true if the program takes the argument over. Such an array counts as
  // deleted after the call.
  FAIRWAY_API const std::vector<bool>& donated() const;
  FAIRWAY_API const ProgramMemory& memory() const;
  // "flops", "bytes accessed", ...: the compiler's estimates.
  FAIRWAY_API const std::map<std::string, double>& cost() const;

  // Runs the program once, on the devices that it was compiled for. Returns at once; the cluster
  // decides when it runs. Errors, also those of wrong arguments, are in the results. Call waits
  // only while the controller has not taken more than 64 MiB, or 50,000, of earlier requests.
  FAIRWAY_API std::vector<Array> Call(std::span<const Array> arguments,
                                      const CallOptions& options = {}) const;
  std::vector<Array> Call(std::initializer_list<Array> arguments,
                          const CallOptions& options = {}) const {
    return Call(std::span<const Array>(arguments.begin(), arguments.size()), options);
  }

 private:
  friend class Access;
  explicit Executable(std::shared_ptr<ExecutableState> state) : state_(std::move(state)) {}
  std::shared_ptr<ExecutableState> state_;
};

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_EXECUTABLE_H_
