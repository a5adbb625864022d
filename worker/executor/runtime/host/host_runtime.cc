// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/host/host_runtime.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "async/blocking_pool.h"
#include "worker/executor/runtime/host/execution.h"
#include "worker/executor/runtime/host/native_program.h"
#include "worker/executor/runtime/launch_checks.h"
#include "worker/executor/runtime/outcome.h"

namespace fairway {

// Where launches run whose inputs came late. Thread-safe.
class HostRuntime::Threads {
 public:
  explicit Threads(int count) : pool_(std::make_unique<BlockingPool>("host", count)) {}

  // On a thread of the pool; on the caller's once the runtime is gone.
  void Run(absl::AnyInvocable<void()> work) {
    {
      std::lock_guard lock(mutex_);
      if (pool_ != nullptr) return pool_->Run(std::move(work));
    }
    std::move(work)();
  }
  // Runs what is queued.
  void Close() {
    std::unique_lock lock(mutex_);
    std::unique_ptr<BlockingPool> pool = std::move(pool_);
    lock.unlock();
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<BlockingPool> pool_;
};

namespace {

// The bytes of one shard, shared by a buffer and the launches that read or make it.
class Cell {
 public:
  Cell(BufferSpec spec, std::shared_ptr<Outcome> outcome, Bytes bytes = nullptr)
      : spec(std::move(spec)), outcome(std::move(outcome)), bytes_(std::move(bytes)) {}

  const BufferSpec spec;
  const std::shared_ptr<Outcome> outcome;  // set after the bytes

  void Fill(Bytes bytes) {
    std::lock_guard lock(mutex_);
    bytes_ = std::move(bytes);
  }
  Bytes bytes() const {
    std::lock_guard lock(mutex_);
    return bytes_;
  }
  // Gives the bytes up for good; they may come later (Taken).
  void Consume() {
    std::lock_guard lock(mutex_);
    consumed_ = true;
  }
  bool consumed() const {
    std::lock_guard lock(mutex_);
    return consumed_;
  }
  // For the launch that consumed it, once they are there.
  Bytes Take() {
    std::lock_guard lock(mutex_);
    return std::exchange(bytes_, nullptr);
  }

 private:
  mutable std::mutex mutex_;
  bool consumed_ = false;
  Bytes bytes_;
};
using CellPtr = std::shared_ptr<Cell>;

class HostBuffer final : public DeviceBuffer {
 public:
  explicit HostBuffer(CellPtr cell) : cell_(std::move(cell)) {}
  void OnReady(absl::AnyInvocable<void(absl::Status)> done) override {
    cell_->outcome->OnDone(std::move(done));
  }
  const CellPtr& cell() const { return cell_; }

 private:
  const CellPtr cell_;
};

const CellPtr& CellOf(DeviceBuffer& buffer) { return static_cast<HostBuffer&>(buffer).cell(); }

class HostExecutable final : public LoadedExecutable {
 public:
  HostExecutable(NativeProgram program, std::vector<int> devices,
                 std::shared_ptr<Exchange> exchange = nullptr)
      : program(std::make_shared<const NativeProgram>(std::move(program))),
        devices(std::move(devices)),
        exchange(std::move(exchange)) {
    for (int p = 0; p < this->program->num_parameters; ++p) {
      parameters.push_back({this->program->values[p].dtype, this->program->values[p].shape, 0});
    }
  }
  const std::shared_ptr<const NativeProgram> program;
  const std::vector<int> devices;            // empty: any one
  const std::shared_ptr<Exchange> exchange;  // with other executors; nullptr: it runs here alone
  std::vector<BufferSpec> parameters;
};

// One launch, from its checks to its end.
struct Run {
  std::shared_ptr<const NativeProgram> program;
  std::vector<std::vector<CellPtr>> inputs;   // [device][argument]
  std::vector<std::vector<bool>> taken;       // whether this launch consumed it
  std::vector<std::vector<CellPtr>> outputs;  // [device][output]
  std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();  // of all outputs
  absl::AnyInvocable<void(absl::Status)> done;
  std::atomic<size_t> missing{0};
  std::shared_ptr<Exchange> exchange;
  uint64_t launch_id = 0;

  // The first input, in order, that failed.
  absl::Status FirstCause() const {
    for (const auto& cells : inputs) {
      for (const CellPtr& cell : cells) {
        const auto status = cell->outcome->Peek();
        if (status.has_value() && !status->ok()) return *status;
      }
    }
    return absl::OkStatus();
  }

  std::vector<std::vector<Bytes>> Arguments() {
    std::vector<std::vector<Bytes>> arguments(inputs.size());
    for (size_t d = 0; d < inputs.size(); ++d) {
      // A donated block that is also another argument is in both places, so nobody writes into it.
      for (const CellPtr& cell : inputs[d]) arguments[d].push_back(cell->bytes());
      for (size_t a = 0; a < inputs[d].size(); ++a) {
        if (taken[d][a]) inputs[d][a]->Take();
      }
    }
    return arguments;
  }

  // With all inputs there.
  void Execute() {
    absl::Status status = FirstCause();
    if (status.ok()) {
      auto results = RunNative(*program, Arguments(), exchange.get(), launch_id);
      status = results.status();
      for (size_t d = 0; status.ok() && d < outputs.size(); ++d) {
        for (size_t o = 0; o < outputs[d].size(); ++o) {
          outputs[d][o]->Fill(std::move((*results)[d][o]));
        }
      }
    }
    inputs.clear();
    if (exchange != nullptr) exchange->End(launch_id, status);
    outcome->Set(status);
    std::move(done)(std::move(status));
  }
};

bool AllThere(const Run& run) {
  for (const auto& cells : run.inputs) {
    for (const CellPtr& cell : cells) {
      if (!cell->outcome->Peek().has_value()) return false;
    }
  }
  return true;
}

// Runs it now, or when its last input has come.
void Start(const std::shared_ptr<HostRuntime::Threads>& threads, std::shared_ptr<Run> run) {
  if (AllThere(*run)) return run->Execute();
  std::vector<std::shared_ptr<Outcome>> awaited;
  for (const auto& cells : run->inputs) {
    for (const CellPtr& cell : cells) awaited.push_back(cell->outcome);
  }
  run->missing = awaited.size();
  for (const auto& input : awaited) {
    input->OnDone([threads, run](const absl::Status&) {
      if (--run->missing == 0) threads->Run([run] { run->Execute(); });
    });
  }
}

// A gang that waits for an input would hold up all later ones.
absl::Status CheckGangReady(const LaunchRequest& request, const NativeProgram& program) {
  for (size_t d = 0; d < request.inputs.size(); ++d) {
    for (size_t a = 0; a < request.inputs[d].size(); ++a) {
      const auto known = CellOf(*request.inputs[d][a])->outcome->Peek();
      if (known.has_value() && known->ok()) continue;
      return Error(absl::StatusCode::kFailedPrecondition,
                   "gang {} of {}: argument {} on device {} {}", request.launch_id, program.name, a,
                   request.devices[d],
                   known.has_value() ? "has failed: " + Describe(*known) : "is not ready");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNotDonated(const LaunchRequest& request) {
  for (const auto& inputs : request.inputs) {
    for (size_t a = 0; a < inputs.size(); ++a) {
      const CellPtr& cell = CellOf(*inputs[a]);
      if (cell->consumed()) {
        return InvalidArgument("argument {}: {}", a, Text(DonatedError(cell->spec)));
      }
    }
  }
  return absl::OkStatus();
}

// Notes the inputs and consumes those that are donated.
void TakeInputs(const LaunchRequest& request, const NativeProgram& program, Run& run) {
  const auto& kept = request.non_donatable;
  for (const auto& inputs : request.inputs) {
    auto& cells = run.inputs.emplace_back();
    auto& taken = run.taken.emplace_back();
    for (size_t a = 0; a < inputs.size(); ++a) {
      cells.push_back(CellOf(*inputs[a]));
      taken.push_back(program.donated[a] &&
                      std::find(kept.begin(), kept.end(), static_cast<int>(a)) == kept.end());
      if (taken.back()) cells.back()->Consume();
    }
  }
}

LaunchResult MakeOutputs(const LaunchRequest& request, Run& run) {
  LaunchResult result;
  for (int device : request.devices) {
    auto& cells = run.outputs.emplace_back();
    auto& buffers = result.outputs.emplace_back();
    for (const NativeProgram::Result& output : run.program->results) {
      const NativeProgram::Value& type = run.program->values[output.value];
      cells.push_back(
          std::make_shared<Cell>(BufferSpec{type.dtype, type.shape, device}, run.outcome));
      buffers.push_back(std::make_unique<HostBuffer>(cells.back()));
    }
  }
  return result;
}

}  // namespace

HostRuntime::HostRuntime(int num_devices) : threads_(std::make_shared<Threads>(num_devices)) {
  info_.name = "host";
  info_.platform_name = "cpu";
  info_.platform_version = "native kernels";
  info_.num_devices = num_devices;
  info_.device_kind = "cpu";
  info_.memory_kinds = {"device"};
  info_.gang_inputs = ArrivalRule::kReady;
}

HostRuntime::~HostRuntime() { threads_->Close(); }

absl::StatusOr<std::shared_ptr<LoadedExecutable>> HostRuntime::Load(
    std::string_view code, const std::vector<int>& devices) {
  v1::NativeCode proto;
  if (code.empty() || !proto.ParseFromArray(code.data(), static_cast<int>(code.size()))) {
    return InvalidArgument("{} bytes that are no code of native kernels", code.size());
  }
  FAIRWAY_ASSIGN_OR_RETURN(
      std::vector<int> loaded,
      DevicesToLoad(info_, {proto.devices().begin(), proto.devices().end()}, devices));
  const int count = std::max(proto.devices_size(), 1);
  FAIRWAY_ASSIGN_OR_RETURN(NativeProgram program, NativeProgram::Make(proto.program(), count));
  return std::make_shared<HostExecutable>(std::move(program), std::move(loaded));
}

absl::StatusOr<std::shared_ptr<LoadedExecutable>> HostRuntime::LoadShare(
    std::string_view code, const std::vector<int>& devices, std::shared_ptr<Exchange> exchange) {
  v1::NativeCode proto;
  if (code.empty() || !proto.ParseFromArray(code.data(), static_cast<int>(code.size())))
    return InvalidArgument("{} bytes that are no code of native kernels", code.size());
  const int count = std::max(proto.devices_size(), 1);
  if (devices.empty() || static_cast<size_t>(count) <= devices.size())
    return InvalidArgument("{} of the {} devices of a program for several executors",
                           devices.size(), count);
  FAIRWAY_ASSIGN_OR_RETURN(std::vector<int> loaded, DevicesToLoad(info_, devices, devices));
  FAIRWAY_ASSIGN_OR_RETURN(NativeProgram program, NativeProgram::Make(proto.program(), count));
  return std::make_shared<HostExecutable>(std::move(program), std::move(loaded),
                                          std::move(exchange));
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> HostRuntime::FromHost(std::shared_ptr<Blob> bytes,
                                                                    DType dtype, const Shape& shape,
                                                                    int device,
                                                                    std::string_view memory_kind) {
  FAIRWAY_RETURN_IF_ERROR(CheckPlace(info_, device, memory_kind));
  FAIRWAY_RETURN_IF_ERROR(CheckBytes(bytes.get(), dtype, shape));
  return std::make_unique<HostBuffer>(std::make_shared<Cell>(
      BufferSpec{dtype, shape, device}, Outcome::Of(absl::OkStatus()), std::move(bytes)));
}

void HostRuntime::Read(DeviceBuffer& buffer,
                       absl::AnyInvocable<void(absl::StatusOr<HostView>)> done) {
  const CellPtr cell = CellOf(buffer);
  if (cell->consumed()) return std::move(done)(DonatedError(cell->spec));
  buffer.OnReady([cell, done = std::move(done)](absl::Status status) mutable {
    if (!status.ok()) return std::move(done)(std::move(status));
    Bytes bytes = cell->bytes();
    if (bytes == nullptr) return std::move(done)(DonatedError(cell->spec));
    const std::string_view view = bytes->view();
    std::move(done)(HostView{view, std::move(bytes)});
  });
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> HostRuntime::CopyToDevice(
    DeviceBuffer& buffer, int device, std::string_view memory_kind) {
  FAIRWAY_RETURN_IF_ERROR(CheckPlace(info_, device, memory_kind));
  const CellPtr source = CellOf(buffer);
  if (source->consumed()) return DonatedError(source->spec);
  auto copy = std::make_shared<Cell>(BufferSpec{source->spec.dtype, source->spec.shape, device},
                                     std::make_shared<Outcome>());
  Read(buffer, [copy](absl::StatusOr<HostView> view) {
    absl::Status status = view.status();
    if (status.ok()) {
      Bytes bytes = Blob::Copy(view->bytes);
      if (bytes == nullptr) {
        status = Error(absl::StatusCode::kResourceExhausted, "no memory for a copy of {}",
                       ToString(copy->spec.dtype, copy->spec.shape));
      }
      copy->Fill(std::move(bytes));
    }
    copy->outcome->Set(std::move(status));
  });
  return std::make_unique<HostBuffer>(std::move(copy));
}

absl::StatusOr<HostRuntime::Incoming> HostRuntime::Expect(DType dtype, const Shape& shape,
                                                          int device) {
  FAIRWAY_RETURN_IF_ERROR(CheckPlace(info_, device, ""));
  auto cell = std::make_shared<Cell>(BufferSpec{dtype, shape, device}, std::make_shared<Outcome>());
  Incoming incoming;
  incoming.buffer = std::make_unique<HostBuffer>(cell);
  incoming.fulfil = [cell](absl::StatusOr<std::shared_ptr<Blob>> bytes) {
    absl::Status status = bytes.status();
    if (status.ok()) status = CheckBytes(bytes->get(), cell->spec.dtype, cell->spec.shape);
    if (status.ok()) cell->Fill(*std::move(bytes));
    cell->outcome->Set(std::move(status));
  };
  return incoming;
}

absl::StatusOr<LaunchResult> HostRuntime::Launch(const LaunchRequest& request,
                                                 absl::AnyInvocable<void(absl::Status)> done) {
  if (request.executable == nullptr) return InvalidArgument("no executable to launch");
  const auto& executable = static_cast<const HostExecutable&>(*request.executable);
  FAIRWAY_RETURN_IF_ERROR(
      CheckLaunch(request, info_, executable.devices, executable.parameters,
                  [](DeviceBuffer& buffer) -> const BufferSpec& { return CellOf(buffer)->spec; }));
  FAIRWAY_RETURN_IF_ERROR(CheckNotDonated(request));
  if (request.devices.size() > 1 || executable.exchange != nullptr) {
    FAIRWAY_RETURN_IF_ERROR(CheckGangReady(request, *executable.program));
  }
  auto run = std::make_shared<Run>();
  run->program = executable.program;
  run->exchange = executable.exchange;
  run->launch_id = request.launch_id;
  run->done = std::move(done);
  TakeInputs(request, *executable.program, *run);
  LaunchResult result = MakeOutputs(request, *run);
  Start(threads_, std::move(run));
  return result;
}

}  // namespace fairway
