// SPDX-License-Identifier: Apache-2.0
#include "fairway/executable.h"

#include <utility>

#include "client/cpp/access.h"

namespace fairway::client {
namespace {

const ExecutableState& StateOf(const std::shared_ptr<ExecutableState>& state) {
  static const ExecutableState none;
  return state == nullptr ? none : *state;
}

}  // namespace

const std::string& Executable::name() const { return StateOf(state_).name; }
const std::vector<ArraySpec>& Executable::parameters() const { return StateOf(state_).parameters; }
const std::vector<ArraySpec>& Executable::results() const { return StateOf(state_).results; }
const std::vector<bool>& Executable::donated() const { return StateOf(state_).donated; }
const ProgramMemory& Executable::memory() const { return StateOf(state_).memory; }
const std::map<std::string, double>& Executable::cost() const { return StateOf(state_).cost; }

std::vector<Array> Executable::Call(std::span<const Array> arguments,
                                    const CallOptions& options) const {
  std::vector<Array> out;
  if (state_ == nullptr) return out;
  Status status;
  for (const Array& argument : arguments) {
    status = Access::CheckUse(argument, state_->connection.get());
    if (!status.ok()) break;
  }
  const size_t count = state_->shared_results.size();
  const uint64_t first = state_->connection->NewHandles(count);
  if (status.ok()) {
    status = state_->connection->Send([&](v1::Request& request) {
      v1::Call* call = request.mutable_call();
      call->set_executable(state_->handle);
      for (const Array& argument : arguments) call->add_arguments(Access::Of(argument)->handle);
      for (size_t i = 0; i < count; ++i) call->add_results(first + i);
      for (const int argument : options.non_donatable) call->add_non_donatable(argument);
    });
  }
  out.reserve(count);
  for (size_t i = 0; i < count; ++i)
    out.push_back(NewArray(state_->connection, first + i, state_->shared_results[i], status));
  return out;
}

}  // namespace fairway::client
