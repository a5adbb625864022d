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

struct CallOptions {
  std::vector<int> non_donatable;  // arguments to leave alone though the program would take them
};

// What a program needs on each device, in bytes, as its compiler says.
struct ProgramMemory {
  int64_t code = 0;
  int64_t arguments = 0;
  int64_t results = 0;
  int64_t temporary = 0;
};

// A handle, as Array is: the last copy gives the code up.
class Executable {
 public:
  Executable() = default;  // none

  FAIRWAY_API const std::string& name() const;
  // What Call takes and makes.
  FAIRWAY_API const std::vector<ArraySpec>& parameters() const;
  FAIRWAY_API const std::vector<ArraySpec>& results() const;
  // Of the parameters: the program takes the argument over; it is as deleted after the call.
  FAIRWAY_API const std::vector<bool>& donated() const;
  FAIRWAY_API const ProgramMemory& memory() const;
  // "flops", "bytes accessed", ...: what the compiler estimates.
  FAIRWAY_API const std::map<std::string, double>& cost() const;

  // Runs it once, on the devices that it was compiled for, and returns at once; what runs when is
  // the cluster's business. Errors, also those of wrong arguments, are in the results. Waits only
  // while more than 64 MiB or 50,000 of requests have not been taken by the controller.
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
