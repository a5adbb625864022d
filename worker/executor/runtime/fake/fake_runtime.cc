// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/fake/fake_runtime.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>

#include <fmt/format.h>

#include "worker/executor/runtime/launch_checks.h"

namespace fairway {
namespace {

using Callback = absl::AnyInvocable<void()>;

// The bytes of one shard, or their absence. Shared by a buffer and the launches that read or make
// it.
struct Cell {
  BufferSpec spec;
  int64_t size = 0;
  std::string memory_kind;
  bool consumed = false;
  std::optional<absl::Status> status;  // nullopt: not computed yet
  std::shared_ptr<Blob> bytes;
  std::vector<absl::AnyInvocable<void(absl::Status)>> waiters;
};
using CellPtr = std::shared_ptr<Cell>;

struct Execution {
  const FakeProgram* program = nullptr;
  std::shared_ptr<const FakeProgram> owner;
  std::vector<std::vector<CellPtr>> inputs;   // [device][argument]
  std::vector<std::vector<CellPtr>> outputs;  // [device][output]
  absl::AnyInvocable<void(absl::Status)> done;
};

class FakeExecutable final : public LoadedExecutable {
 public:
  explicit FakeExecutable(FakeProgram program)
      : program(std::make_shared<const FakeProgram>(std::move(program))) {
    for (const FakeProgram::Value& value : this->program->inputs) {
      parameters.push_back({value.dtype, value.shape, 0});
    }
  }
  bool separable() const override { return program->separable; }
  bool brief() const override { return program->brief; }
  const std::shared_ptr<const FakeProgram> program;
  std::vector<BufferSpec> parameters;
};

}  // namespace

struct FakeRuntime::State {
  mutable std::mutex mutex;
  RuntimeInfo info;
  bool manual = false;
  std::list<Execution> executions;  // in launch order
  absl::Status fail_next;
  std::vector<LaunchRecord> launches;
  std::vector<std::string> violations;
  std::map<int, uint64_t> last_gang;  // by device
  int live_buffers = 0;
  int64_t live_bytes = 0;

  void Allocated(const Cell& cell) { ++live_buffers, live_bytes += cell.size; }
  void Released(const Cell& cell) { --live_buffers, live_bytes -= cell.size; }

  // The functions below are called with the mutex held. They put callbacks that must run without it
  // into `after`.
  void Complete(Cell& cell, absl::Status status, std::shared_ptr<Blob> bytes,
                std::vector<Callback>& after);
  bool IsReadyToEnd(const Execution& execution) const;
  void End(Execution execution, std::vector<Callback>& after);
  // Ends the executions that may end; `told`: also one that the test asked for. Returns whether any
  // ended.
  bool Advance(bool told, std::vector<Callback>& after);
};

namespace {

using State = FakeRuntime::State;

void RunAll(std::vector<Callback>& after) {
  for (Callback& callback : after) std::move(callback)();
}

class FakeBuffer final : public DeviceBuffer {
 public:
  FakeBuffer(std::shared_ptr<State> state, CellPtr cell)
      : state_(std::move(state)), cell_(std::move(cell)) {}
  ~FakeBuffer() override {
    std::lock_guard lock(state_->mutex);
    if (!cell_->consumed) state_->Released(*cell_);
  }
  void OnReady(absl::AnyInvocable<void(absl::Status)> done) override {
    absl::Status status;
    {
      std::lock_guard lock(state_->mutex);
      if (!cell_->status.has_value()) {
        cell_->waiters.push_back(std::move(done));
        return;
      }
      status = *cell_->status;
    }
    std::move(done)(std::move(status));
  }
  const CellPtr& cell() const { return cell_; }

 private:
  const std::shared_ptr<State> state_;
  const CellPtr cell_;
};

CellPtr CellOf(DeviceBuffer* buffer) { return static_cast<FakeBuffer*>(buffer)->cell(); }

CellPtr MakeCell(DType dtype, const Shape& shape, int device, std::string_view memory_kind) {
  auto cell = std::make_shared<Cell>();
  cell->spec = {dtype, shape, device};
  cell->size = ByteSize(dtype, shape).value_or(0);
  cell->memory_kind = memory_kind;
  return cell;
}

template <typename T>
void AddInto(Blob& sum, const Blob& more) {
  for (size_t at = 0; at + sizeof(T) <= sum.size(); at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, sum.data() + at, sizeof(T));
    std::memcpy(&b, more.data() + at, sizeof(T));
    a = static_cast<T>(a + b);
    std::memcpy(sum.data() + at, &a, sizeof(T));
  }
}

// Computes output `o` on device `d`.
std::shared_ptr<Blob> Compute(const Execution& execution, size_t d, size_t o) {
  const FakeProgram& program = *execution.program;
  if (program.op == "identity" || program.op == "block") {
    return Blob::Copy(execution.inputs[d][o]->bytes->view());
  }
  std::vector<const Blob*> terms;
  if (program.op == "add") {
    for (const CellPtr& input : execution.inputs[d]) terms.push_back(input->bytes.get());
  } else {
    for (const auto& inputs : execution.inputs) terms.push_back(inputs[0]->bytes.get());
  }
  std::shared_ptr<Blob> sum = Blob::Copy(terms[0]->view());
  for (size_t i = 1; i < terms.size(); ++i) {
    if (program.outputs[0].dtype == DType::kF32) AddInto<float>(*sum, *terms[i]);
    if (program.outputs[0].dtype == DType::kS32) AddInto<uint32_t>(*sum, *terms[i]);
  }
  return sum;
}

}  // namespace

void FakeRuntime::State::Complete(Cell& cell, absl::Status status, std::shared_ptr<Blob> bytes,
                                  std::vector<Callback>& after) {
  cell.status = status;
  cell.bytes = std::move(bytes);
  for (auto& waiter : cell.waiters) {
    after.push_back(
        [waiter = std::move(waiter), status]() mutable { std::move(waiter)(std::move(status)); });
  }
  cell.waiters.clear();
}

bool FakeRuntime::State::IsReadyToEnd(const Execution& execution) const {
  for (const auto& inputs : execution.inputs) {
    for (const CellPtr& input : inputs) {
      if (!input->status.has_value()) return false;
    }
  }
  return true;
}

void FakeRuntime::State::End(Execution execution, std::vector<Callback>& after) {
  absl::Status status;
  for (const auto& inputs : execution.inputs) {
    for (const CellPtr& input : inputs) {
      if (status.ok() && !input->status->ok()) status = *input->status;
    }
  }
  if (status.ok()) status = std::exchange(fail_next, absl::OkStatus());
  if (status.ok() && execution.program->op == "fail") status = execution.program->error;
  for (size_t d = 0; d < execution.outputs.size(); ++d) {
    for (size_t o = 0; o < execution.outputs[d].size(); ++o) {
      Complete(*execution.outputs[d][o], status, status.ok() ? Compute(execution, d, o) : nullptr,
               after);
    }
  }
  after.push_back(
      [done = std::move(execution.done), status]() mutable { std::move(done)(status); });
}

bool FakeRuntime::State::Advance(bool told, std::vector<Callback>& after) {
  bool any = false;
  for (bool again = true; again;) {
    again = false;
    for (auto it = executions.begin(); it != executions.end(); ++it) {
      if (!IsReadyToEnd(*it)) continue;
      const bool by_itself = !manual && it->program->op != "block";
      if (!by_itself && !told) continue;
      if (!by_itself) told = false;
      Execution execution = std::move(*it);
      executions.erase(it);
      End(std::move(execution), after);
      any = again = true;
      break;
    }
  }
  return any;
}

FakeRuntime::FakeRuntime(int num_devices, bool manual, ArrivalRule gang_inputs)
    : state_(std::make_shared<State>()) {
  state_->manual = manual;
  RuntimeInfo& info = state_->info;
  info.name = "fake";
  info.platform_name = "cpu";
  info.platform_version = "fake";
  info.num_devices = num_devices;
  info.device_kind = "cpu";
  info.memory_kinds = {"device", "pinned_host"};
  info.gang_inputs = gang_inputs;
}

FakeRuntime::~FakeRuntime() = default;

const RuntimeInfo& FakeRuntime::info() const { return state_->info; }

absl::StatusOr<std::shared_ptr<LoadedExecutable>> FakeRuntime::Load(
    std::string_view code, const std::vector<int>& devices) {
  FAIRWAY_ASSIGN_OR_RETURN(FakeProgram program, FakeProgram::Parse(code));
  FAIRWAY_ASSIGN_OR_RETURN(program.devices, DevicesToLoad(info(), program.devices, devices));
  return std::make_shared<FakeExecutable>(std::move(program));
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> FakeRuntime::FromHost(std::shared_ptr<Blob> bytes,
                                                                    DType dtype, const Shape& shape,
                                                                    int device,
                                                                    std::string_view memory_kind) {
  FAIRWAY_RETURN_IF_ERROR(CheckPlace(info(), device, memory_kind));
  FAIRWAY_RETURN_IF_ERROR(CheckBytes(bytes.get(), dtype, shape));
  CellPtr cell = MakeCell(dtype, shape, device, memory_kind);
  cell->status = absl::OkStatus();
  cell->bytes = std::move(bytes);
  std::lock_guard lock(state_->mutex);
  state_->Allocated(*cell);
  return std::make_unique<FakeBuffer>(state_, std::move(cell));
}

void FakeRuntime::Read(DeviceBuffer& buffer,
                       absl::AnyInvocable<void(absl::StatusOr<HostView>)> done) {
  CellPtr cell = CellOf(&buffer);
  bool consumed;
  {
    std::lock_guard lock(state_->mutex);
    consumed = cell->consumed;
  }
  if (consumed) return std::move(done)(DonatedError(cell->spec));
  buffer.OnReady([cell, done = std::move(done)](absl::Status status) mutable {
    if (!status.ok()) return std::move(done)(std::move(status));
    std::move(done)(HostView{cell->bytes->view(), cell->bytes});
  });
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> FakeRuntime::CopyToDevice(
    DeviceBuffer& buffer, int device, std::string_view memory_kind) {
  FAIRWAY_RETURN_IF_ERROR(CheckPlace(info(), device, memory_kind));
  CellPtr source = CellOf(&buffer);
  CellPtr copy = MakeCell(source->spec.dtype, source->spec.shape, device, memory_kind);
  {
    std::lock_guard lock(state_->mutex);
    if (source->consumed) return DonatedError(source->spec);
    state_->Allocated(*copy);
  }
  auto result = std::make_unique<FakeBuffer>(state_, copy);
  buffer.OnReady([state = state_, source, copy](absl::Status status) {
    std::vector<Callback> after;
    {
      std::lock_guard lock(state->mutex);
      state->Complete(*copy, status, status.ok() ? Blob::Copy(source->bytes->view()) : nullptr,
                      after);
      state->Advance(false, after);
    }
    RunAll(after);
  });
  return result;
}

absl::StatusOr<FakeRuntime::Incoming> FakeRuntime::Expect(DType dtype, const Shape& shape,
                                                          int device) {
  FAIRWAY_RETURN_IF_ERROR(CheckPlace(info(), device, ""));
  CellPtr cell = MakeCell(dtype, shape, device, "");
  {
    std::lock_guard lock(state_->mutex);
    state_->Allocated(*cell);
  }
  Incoming incoming;
  incoming.buffer = std::make_unique<FakeBuffer>(state_, cell);
  incoming.fulfil = [state = state_, cell](absl::StatusOr<std::shared_ptr<Blob>> bytes) {
    absl::Status status = bytes.status();
    if (status.ok()) status = CheckBytes(bytes->get(), cell->spec.dtype, cell->spec.shape);
    std::vector<Callback> after;
    {
      std::lock_guard lock(state->mutex);
      state->Complete(*cell, status, status.ok() ? *std::move(bytes) : nullptr, after);
      state->Advance(false, after);
    }
    RunAll(after);
  };
  return incoming;
}

bool FakeRuntime::EndNext() {
  std::vector<Callback> after;
  bool any;
  {
    std::lock_guard lock(state_->mutex);
    any = state_->Advance(true, after);
  }
  RunAll(after);
  return any;
}

void FakeRuntime::EndAll() {
  while (EndNext()) {
  }
}

void FakeRuntime::FailNext(absl::Status error) {
  std::lock_guard lock(state_->mutex);
  state_->fail_next = std::move(error);
}

std::vector<FakeRuntime::LaunchRecord> FakeRuntime::launches() const {
  std::lock_guard lock(state_->mutex);
  return state_->launches;
}

int FakeRuntime::under_way() const {
  std::lock_guard lock(state_->mutex);
  return static_cast<int>(state_->executions.size());
}

std::vector<std::string> FakeRuntime::violations() const {
  std::lock_guard lock(state_->mutex);
  return state_->violations;
}

int FakeRuntime::live_buffers() const {
  std::lock_guard lock(state_->mutex);
  return state_->live_buffers;
}

int64_t FakeRuntime::live_bytes() const {
  std::lock_guard lock(state_->mutex);
  return state_->live_bytes;
}

namespace {

absl::Status CheckNotDonated(const LaunchRequest& request) {
  for (const auto& inputs : request.inputs) {
    for (size_t a = 0; a < inputs.size(); ++a) {
      const Cell& cell = *CellOf(inputs[a]);
      if (cell.consumed) {
        return InvalidArgument("argument {}: {}", a, Text(DonatedError(cell.spec)));
      }
    }
  }
  return absl::OkStatus();
}

// Checks the rules of gangs. Records and refuses a launch that breaks them.
absl::Status CheckGang(State& state, const LaunchRequest& request) {
  auto broken = [&](std::string text) {
    state.violations.push_back(text);
    return absl::FailedPreconditionError(text);
  };
  const bool may_wait =
      request.executable->separable() || state.info.gang_inputs == ArrivalRule::kExternal;
  for (size_t d = 0; d < request.inputs.size() && !may_wait; ++d) {
    for (size_t a = 0; a < request.inputs[d].size(); ++a) {
      const auto& status = CellOf(request.inputs[d][a])->status;
      if (status.has_value() && status->ok()) continue;
      return broken(fmt::format(
          "gang {}: argument {} on device {} {}", request.launch_id, a, request.devices[d],
          status.has_value() ? "has failed: " + Describe(*status) : "is not ready"));
    }
  }
  for (const int device : request.devices) {
    const uint64_t last = std::exchange(state.last_gang[device], request.launch_id);
    if (request.launch_id <= last)
      return broken(
          fmt::format("device {}: gang {} after gang {}", device, request.launch_id, last));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LaunchResult> FakeRuntime::Launch(const LaunchRequest& request,
                                                 absl::AnyInvocable<void(absl::Status)> done) {
  if (request.executable == nullptr) return InvalidArgument("no executable to launch");
  const auto& executable = static_cast<const FakeExecutable&>(*request.executable);
  const auto program = executable.program;
  std::vector<Callback> after;
  LaunchResult result;
  {
    std::lock_guard lock(state_->mutex);
    FAIRWAY_RETURN_IF_ERROR(CheckLaunch(
        request, state_->info, program->devices, executable.parameters,
        [](DeviceBuffer& buffer) -> const BufferSpec& { return CellOf(&buffer)->spec; }));
    FAIRWAY_RETURN_IF_ERROR(CheckNotDonated(request));
    if (request.devices.size() > 1) FAIRWAY_RETURN_IF_ERROR(CheckGang(*state_, request));
    state_->launches.push_back({request.launch_id, program->name, request.devices});
    Execution execution;
    execution.program = program.get();
    execution.owner = program;
    execution.done = std::move(done);
    for (size_t d = 0; d < request.devices.size(); ++d) {
      auto& inputs = execution.inputs.emplace_back();
      for (size_t a = 0; a < program->inputs.size(); ++a) {
        inputs.push_back(CellOf(request.inputs[d][a]));
        const auto& kept = request.non_donatable;
        if (!program->inputs[a].donated || inputs.back()->consumed) continue;
        if (std::find(kept.begin(), kept.end(), static_cast<int>(a)) != kept.end()) continue;
        inputs.back()->consumed = true;
        state_->Released(*inputs.back());
      }
      auto& outputs = execution.outputs.emplace_back();
      auto& buffers = result.outputs.emplace_back();
      for (const FakeProgram::Value& value : program->outputs) {
        outputs.push_back(MakeCell(value.dtype, value.shape, request.devices[d], ""));
        state_->Allocated(*outputs.back());
        buffers.push_back(std::make_unique<FakeBuffer>(state_, outputs.back()));
      }
    }
    state_->executions.push_back(std::move(execution));
    state_->Advance(false, after);
  }
  RunAll(after);
  return result;
}

}  // namespace fairway
