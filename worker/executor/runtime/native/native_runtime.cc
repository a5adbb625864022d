// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/native/native_runtime.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace fairway {
namespace {

class NativeBuffer final : public DeviceBuffer {
 public:
  explicit NativeBuffer(NativeCellPtr cell) : cell_(std::move(cell)) {}
  void OnReady(absl::AnyInvocable<void(absl::Status)> done) override {
    cell_->outcome->OnDone(std::move(done));
  }
  const NativeCellPtr& cell() const { return cell_; }

 private:
  const NativeCellPtr cell_;
};

const NativeCellPtr& CellOf(DeviceBuffer& buffer) {
  return static_cast<NativeBuffer&>(buffer).cell();
}

class NativeExecutable final : public LoadedExecutable {
 public:
  NativeExecutable(NativeProgram program, std::vector<int> devices,
                   std::shared_ptr<Exchange> exchange = nullptr)
      : NativeExecutable(std::make_shared<const NativeProgram>(std::move(program)),
                         std::move(devices), std::move(exchange)) {
    for (int p = 0; p < this->program->num_parameters; ++p) {
      parameters.push_back({this->program->values[p].dtype, this->program->values[p].shape, 0});
    }
  }
  NativeExecutable(std::shared_ptr<const NativeBlock> block, std::vector<int> devices,
                   std::vector<BufferSpec> parameters)
      : NativeExecutable(block->calls[0].program, std::move(devices), block->calls[0].exchange) {
    this->block = std::move(block);
    this->parameters = std::move(parameters);
  }
  // If an executor runs the gangs alone, one thread runs all devices of each; if several run them,
  // they wait for each other.
  bool separable() const override { return exchange == nullptr; }
  // Host runs a gang within Launch, and sim computes there when it ends. So what earlier gangs make
  // is known when a later one comes.
  bool follows() const override { return true; }

  const std::shared_ptr<const NativeProgram> program;  // of a block: the first one
  const std::vector<int> devices;                      // empty: any one
  const std::shared_ptr<Exchange> exchange;  // to other executors; nullptr: it runs here alone
  std::vector<BufferSpec> parameters;

  std::shared_ptr<const NativeBlock> block;  // nullptr: it is no block

 private:
  NativeExecutable(std::shared_ptr<const NativeProgram> program, std::vector<int> devices,
                   std::shared_ptr<Exchange> exchange)
      : program(std::move(program)), devices(std::move(devices)), exchange(std::move(exchange)) {}
};

absl::StatusOr<v1::NativeCode> Parsed(std::string_view code) {
  v1::NativeCode proto;
  if (code.empty() || !proto.ParseFromArray(code.data(), static_cast<int>(code.size())))
    return InvalidArgument("{} bytes that are no code of native kernels", code.size());
  return proto;
}

// A gang that waits for an input would hold up all later ones. One whose input has failed ends with
// that cause, and does not begin; of a block, the calls that read it.
absl::Status CheckGangReady(const LaunchRequest& request, const NativeProgram& program) {
  for (size_t d = 0; d < request.inputs.size(); ++d) {
    for (size_t a = 0; a < request.inputs[d].size(); ++a) {
      const NativeCellPtr& cell = CellOf(*request.inputs[d][a]);
      const Outcome& known = cell->due != nullptr ? cell->due->known : *cell->outcome;
      if (known.Peek().has_value()) continue;
      return Error(absl::StatusCode::kFailedPrecondition,
                   "gang {} of {}: argument {} on device {} is not ready", request.launch_id,
                   program.name, a, request.devices[d]);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNotDonated(const LaunchRequest& request) {
  for (const auto& inputs : request.inputs) {
    for (size_t a = 0; a < inputs.size(); ++a) {
      const NativeCellPtr& cell = CellOf(*inputs[a]);
      if (cell->consumed()) {
        return InvalidArgument("argument {}: {}", a, Text(DonatedError(cell->spec)));
      }
    }
  }
  return absl::OkStatus();
}

// Notes the inputs and consumes those that are donated.
void TakeInputs(const LaunchRequest& request, NativeLaunch& launch) {
  const auto& kept = request.non_donatable;
  for (const auto& inputs : request.inputs) {
    auto& cells = launch.inputs.emplace_back();
    auto& taken = launch.taken.emplace_back();
    for (size_t a = 0; a < inputs.size(); ++a) {
      cells.push_back(CellOf(*inputs[a]));
      taken.push_back(launch.block == nullptr && launch.program->donated[a] &&
                      std::find(kept.begin(), kept.end(), static_cast<int>(a)) == kept.end());
      if (taken.back()) cells.back()->Consume();
    }
  }
}

const NativeProgram::Value& TypeOf(const NativeProgram& program, size_t output) {
  return program.values[program.results[output].value];
}

LaunchResult MakeOutputs(NativeLaunch& launch, size_t kept) {
  LaunchResult result;
  const NativeBlock* const block = launch.block.get();
  if (block != nullptr) {
    launch.outcomes.resize(block->calls.size());
    for (const NativeBlock::Result& output : block->results) {
      std::shared_ptr<Outcome>& outcome = launch.outcomes[output.call];
      if (outcome == nullptr) outcome = std::make_shared<Outcome>();
    }
  }
  for (const int device : launch.devices) {
    auto& cells = launch.outputs.emplace_back();
    auto& buffers = result.outputs.emplace_back();
    const auto add = [&](const NativeProgram::Value& type, const std::shared_ptr<Outcome>& of) {
      cells.push_back(std::make_shared<NativeCell>(BufferSpec{type.dtype, type.shape, device}, kept,
                                                   of, launch.due));
      buffers.push_back(std::make_unique<NativeBuffer>(cells.back()));
    };
    if (block != nullptr) {
      for (const NativeBlock::Result& output : block->results) {
        add(TypeOf(*block->calls[output.call].program, output.output),
            launch.outcomes[output.call]);
      }
    } else {
      for (size_t o = 0; o < launch.program->results.size(); ++o)
        add(TypeOf(*launch.program, o), launch.outcome);
    }
  }
  return result;
}

// Checks a LinkRequest, and makes the block.
class Linker {
 public:
  absl::Status Add(const LinkRequest::Call& call) {
    const auto* const code = static_cast<const NativeExecutable*>(call.executable.get());
    const size_t number = block_->calls.size();
    if (code == nullptr || code->block != nullptr || code->devices != First(code).devices ||
        (code->exchange == nullptr) != (First(code).exchange == nullptr))
      return InvalidArgument("call {} is not of code for the devices of call 0", number);
    const NativeProgram& program = *code->program;
    if (call.inputs.size() != code->parameters.size() ||
        static_cast<size_t>(call.outputs) != program.results.size())
      return InvalidArgument("call {} has {} inputs and {} outputs, '{}' takes {} and makes {}",
                             number, call.inputs.size(), call.outputs, program.name,
                             code->parameters.size(), program.results.size());
    for (size_t a = 0; a < call.inputs.size(); ++a)
      FAIRWAY_RETURN_IF_ERROR(CheckInput(number, a, call.inputs[a], code->parameters[a]));
    const auto first = static_cast<int32_t>(types_.size());
    for (size_t o = 0; o < program.results.size(); ++o) {
      const NativeProgram::Value& type = TypeOf(program, o);
      types_.push_back(BufferSpec{type.dtype, type.shape, 0});
      made_by_.emplace_back(number, o);
    }
    for (const int32_t value : call.ends) {
      if (!IsMade(value))
        return InvalidArgument("no call made value {} until call {}", value, number);
    }
    block_->calls.push_back({code->program, code->exchange, call.inputs, first, call.ends, {}});
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<LoadedExecutable>> Link(const LinkRequest& request) {
    if (request.calls.empty() || request.arguments < 0)
      return InvalidArgument("{} calls with {} arguments", request.calls.size(), request.arguments);
    block_->arguments = request.arguments;
    types_.resize(request.arguments);
    for (const LinkRequest::Call& call : request.calls) FAIRWAY_RETURN_IF_ERROR(Add(call));
    for (const int32_t value : request.results) {
      if (!IsMade(value)) return InvalidArgument("no call makes value {}, a result", value);
      const auto [call, output] = made_by_[value - request.arguments];
      block_->calls[call].results.push_back(block_->results.size());
      block_->results.push_back({value, call, output});
    }
    for (int32_t a = 0; a < request.arguments; ++a) {
      if (!types_[a].has_value()) return InvalidArgument("no call reads argument {}", a);
      parameters_.push_back(*types_[a]);
    }
    block_->values = static_cast<int32_t>(types_.size());
    return std::make_shared<NativeExecutable>(std::move(block_), first_->devices,
                                              std::move(parameters_));
  }

 private:
  const NativeExecutable& First(const NativeExecutable* code) {
    if (first_ == nullptr) first_ = code;
    return *first_;
  }
  bool IsMade(int32_t value) const {
    return value >= block_->arguments && static_cast<size_t>(value) < types_.size();
  }
  // An argument of the block has the type with which it is read first.
  absl::Status CheckInput(size_t call, size_t a, int32_t value, const BufferSpec& parameter) {
    if (value < 0 || static_cast<size_t>(value) >= types_.size())
      return InvalidArgument("call {}, input {}: there is no value {} yet", call, a, value);
    std::optional<BufferSpec>& type = types_[value];
    if (!type.has_value()) type = parameter;
    if (type->dtype == parameter.dtype && type->shape == parameter.shape) return absl::OkStatus();
    return InvalidArgument("call {}, input {}: value {} is {}, the program takes {}", call, a,
                           value, ToString(type->dtype, type->shape),
                           ToString(parameter.dtype, parameter.shape));
  }

  std::shared_ptr<NativeBlock> block_ = std::make_shared<NativeBlock>();
  const NativeExecutable* first_ = nullptr;
  std::vector<std::optional<BufferSpec>> types_;    // by value; nullopt: an argument not read yet
  std::vector<std::pair<size_t, size_t>> made_by_;  // call and output, by value without arguments
  std::vector<BufferSpec> parameters_;
};

}  // namespace

NativeRuntime::NativeRuntime(std::string name, std::string version, int num_devices,
                             int64_t device_memory, size_t kept)
    : kept_(kept) {
  info_.name = std::move(name);
  info_.platform_name = "cpu";
  info_.platform_version = std::move(version);
  info_.num_devices = num_devices;
  info_.device_kind = "cpu";
  info_.memory_kinds = {"device"};
  info_.device_memory = device_memory;
  info_.gang_inputs = ArrivalRule::kReady;
}

absl::StatusOr<std::shared_ptr<LoadedExecutable>> NativeRuntime::Load(
    std::string_view code, const std::vector<int>& devices) {
  FAIRWAY_ASSIGN_OR_RETURN(const v1::NativeCode proto, Parsed(code));
  FAIRWAY_ASSIGN_OR_RETURN(
      std::vector<int> loaded,
      DevicesToLoad(info_, {proto.devices().begin(), proto.devices().end()}, devices));
  const int count = std::max(proto.devices_size(), 1);
  FAIRWAY_ASSIGN_OR_RETURN(NativeProgram program, NativeProgram::Make(proto.program(), count));
  return std::make_shared<NativeExecutable>(std::move(program), std::move(loaded));
}

absl::StatusOr<std::shared_ptr<LoadedExecutable>> NativeRuntime::LoadShare(
    std::string_view code, const std::vector<int>& devices, std::shared_ptr<Exchange> exchange) {
  FAIRWAY_ASSIGN_OR_RETURN(const v1::NativeCode proto, Parsed(code));
  const int count = std::max(proto.devices_size(), 1);
  if (devices.empty() || static_cast<size_t>(count) <= devices.size())
    return InvalidArgument("{} of the {} devices of a program for several executors",
                           devices.size(), count);
  FAIRWAY_ASSIGN_OR_RETURN(std::vector<int> loaded, DevicesToLoad(info_, devices, devices));
  FAIRWAY_ASSIGN_OR_RETURN(NativeProgram program, NativeProgram::Make(proto.program(), count));
  return std::make_shared<NativeExecutable>(std::move(program), std::move(loaded),
                                            std::move(exchange));
}

absl::StatusOr<std::shared_ptr<LoadedExecutable>> NativeRuntime::LinkNative(
    const LinkRequest& request) const {
  return Linker().Link(request);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> NativeRuntime::FromHost(
    std::shared_ptr<Blob> bytes, DType dtype, const Shape& shape, int device,
    std::string_view memory_kind) {
  FAIRWAY_RETURN_IF_ERROR(CheckPlace(info_, device, memory_kind));
  FAIRWAY_RETURN_IF_ERROR(CheckBytes(bytes.get(), dtype, shape));
  auto cell = std::make_shared<NativeCell>(BufferSpec{dtype, shape, device}, kept_,
                                           Outcome::Of(absl::OkStatus()));
  cell->Fill(std::move(bytes));
  return std::make_unique<NativeBuffer>(std::move(cell));
}

void NativeRuntime::Read(DeviceBuffer& buffer,
                         absl::AnyInvocable<void(absl::StatusOr<HostView>)> done) {
  const NativeCellPtr cell = CellOf(buffer);
  if (cell->consumed()) return std::move(done)(DonatedError(cell->spec));
  buffer.OnReady([cell, done = std::move(done)](absl::Status status) mutable {
    if (!status.ok()) return std::move(done)(std::move(status));
    std::move(done)(cell->View());
  });
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> NativeRuntime::CopyToDevice(
    DeviceBuffer& buffer, int device, std::string_view memory_kind) {
  FAIRWAY_RETURN_IF_ERROR(CheckPlace(info_, device, memory_kind));
  const NativeCellPtr source = CellOf(buffer);
  if (source->consumed()) return DonatedError(source->spec);
  auto copy =
      std::make_shared<NativeCell>(BufferSpec{source->spec.dtype, source->spec.shape, device},
                                   kept_, std::make_shared<Outcome>());
  buffer.OnReady([source, copy](absl::Status status) {
    if (status.ok()) status = copy->FillFrom(*source);
    copy->outcome->Set(std::move(status));
  });
  return std::make_unique<NativeBuffer>(std::move(copy));
}

absl::StatusOr<NativeRuntime::Incoming> NativeRuntime::Expect(DType dtype, const Shape& shape,
                                                              int device) {
  FAIRWAY_RETURN_IF_ERROR(CheckPlace(info_, device, ""));
  auto cell = std::make_shared<NativeCell>(BufferSpec{dtype, shape, device}, kept_,
                                           std::make_shared<Outcome>());
  Incoming incoming;
  incoming.buffer = std::make_unique<NativeBuffer>(cell);
  incoming.fulfil = [cell](absl::StatusOr<std::shared_ptr<Blob>> bytes) {
    absl::Status status = bytes.status();
    if (status.ok()) status = CheckBytes(bytes->get(), cell->spec.dtype, cell->spec.shape);
    if (status.ok()) cell->Fill(*std::move(bytes));
    cell->outcome->Set(std::move(status));
  };
  return incoming;
}

absl::StatusOr<LaunchResult> NativeRuntime::Begin(const LaunchRequest& request,
                                                  absl::AnyInvocable<void(absl::Status)> done,
                                                  NativeLaunch& launch) const {
  if (request.executable == nullptr) return InvalidArgument("no executable to launch");
  const auto& executable = static_cast<const NativeExecutable&>(*request.executable);
  FAIRWAY_RETURN_IF_ERROR(
      CheckLaunch(request, info_, executable.devices, executable.parameters,
                  [](DeviceBuffer& buffer) -> const BufferSpec& { return CellOf(buffer)->spec; }));
  FAIRWAY_RETURN_IF_ERROR(CheckNotDonated(request));
  if (!executable.separable()) {
    FAIRWAY_RETURN_IF_ERROR(CheckGangReady(request, *executable.program));
  }
  launch.program = executable.program;
  launch.block = executable.block;
  launch.devices = request.devices;
  launch.exchange = executable.exchange;
  launch.launch_id = request.launch_id;
  launch.done = std::move(done);
  TakeInputs(request, launch);
  return MakeOutputs(launch, kept_);
}

}  // namespace fairway
