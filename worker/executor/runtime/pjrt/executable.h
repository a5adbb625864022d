// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_EXECUTABLE_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_EXECUTABLE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/executor/runtime/pjrt/buffer.h"
#include "worker/executor/runtime/pjrt/client.h"
#include "worker/executor/runtime/runtime.h"

namespace fairway::pjrt {

// A program loaded for its devices, with the signature of its parameters, which PJRT does not give.
class Executable final : public LoadedExecutable {
 public:
  // How the program takes an argument.
  struct Passing {
    DimensionOrder order;
    bool donated = false;
  };
  struct Output {
    DType dtype = DType::kInvalid;
    Shape shape;
    DimensionOrder order;
    std::string memory_kind;
  };

  // `code`: a serialized v1::PjrtCode. `devices` empty: those compiled in. INVALID_ARGUMENT: not
  // such code, code of another plugin, or devices that do not fit. Code that names its devices fits
  // no others.
  static absl::StatusOr<std::shared_ptr<Executable>> Load(const Client& client,
                                                          std::string_view code,
                                                          const std::vector<int>& devices);

  const Program& program() const { return *program_; }
  const std::string& name() const { return name_; }
  // Empty: portable; the launch chooses one device.
  const std::vector<int>& devices() const { return devices_; }
  // The parameters on one device.
  const std::vector<BufferSpec>& parameters() const { return parameters_; }
  const std::vector<Passing>& passing() const { return passing_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  bool separable() const override { return separable_; }
  bool brief() const override { return brief_; }
  // Has collectives, and an execution whose inputs are computed is brief but for these, on the
  // thread that calls Execute for a device.
  bool meets_briefly() const { return meets_briefly_; }
  bool calls_back() const { return calls_back_; }

 private:
  Executable() = default;
  std::unique_ptr<Program> program_;
  std::string name_;
  std::vector<int> devices_;
  std::vector<BufferSpec> parameters_;
  std::vector<Passing> passing_;
  std::vector<Output> outputs_;
  bool separable_ = false;
  bool brief_ = false;
  bool meets_briefly_ = false;
  bool calls_back_ = false;
};

}  // namespace fairway::pjrt

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_PJRT_EXECUTABLE_H_
