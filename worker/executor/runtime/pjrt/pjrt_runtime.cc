// SPDX-License-Identifier: Apache-2.0
// PjrtRuntime: bytes in, out and across. Launching is in launch.cc.
#include "worker/executor/runtime/pjrt/pjrt_runtime.h"

#include <numeric>

#include "base/host.h"
#include "base/log.h"
#include "pjrt_c_api.h"
#include "worker/executor/runtime/pjrt/buffer.h"
#include "worker/executor/runtime/pjrt/call.h"
#include "worker/executor/runtime/pjrt/client.h"
#include "worker/executor/runtime/pjrt/completions.h"
#include "worker/executor/runtime/pjrt/device_threads.h"
#include "worker/executor/runtime/pjrt/executable.h"
#include "worker/executor/runtime/pjrt/ffi.h"
#include "worker/executor/runtime/pjrt/health.h"
#include "worker/executor/runtime/pjrt/relayout.h"
#include "worker/executor/runtime/pjrt/slots.h"

namespace fairway {

using pjrt::Await;
using pjrt::Buffer;
using pjrt::Call;
using pjrt::Client;
using pjrt::Completions;
using pjrt::Padded;
using pjrt::RawBuffer;
using pjrt::Slots;
using pjrt::WhenReady;

namespace {

// The thread that has the bytes reorders smaller values itself.
constexpr int64_t kCopyAtOnce = 256 << 10;

// Returns an outcome that follows the buffer's own ready event.
std::shared_ptr<Outcome> Follow(const std::shared_ptr<Completions>& completions,
                                const RawBuffer& raw) {
  const PJRT_Api* api = raw.client().api();
  Padded<PJRT_Buffer_ReadyEvent_Args> args;
  args->buffer = raw.raw();
  absl::Status status = Call(api, api->PJRT_Buffer_ReadyEvent, args);
  if (!status.ok()) return Outcome::Of(std::move(status));
  auto outcome = std::make_shared<Outcome>();
  pjrt::HandOver(completions, api, args->event,
                 [outcome](absl::Status s) { outcome->Set(std::move(s)); });
  return outcome;
}

absl::StatusOr<HostView> ViewInPlace(std::shared_ptr<RawBuffer> raw, int64_t size) {
  FAIRWAY_ASSIGN_OR_RETURN(char* address, raw->Address());
  return HostView{std::string_view(address, static_cast<size_t>(size)), std::move(raw)};
}

// Returns the bytes of `blob`, whose dimensions lie in spec.order, in major to minor order.
absl::StatusOr<HostView> MajorToMinor(const Buffer::Spec& spec, std::shared_ptr<Blob> blob) {
  if (spec.order.empty()) return HostView{blob->view(), blob};
  std::shared_ptr<Blob> out = Blob::Make(blob->size());
  if (out == nullptr) {
    return Error(absl::StatusCode::kResourceExhausted, "no host memory for {} bytes", blob->size());
  }
  pjrt::CopyElements(blob->data(), spec.order, out->data(), {}, spec.shape.dims,
                     BytesPerElement(spec.dtype));
  return HostView{out->view(), out};
}

// Reads through PJRT_Buffer_ToHostBuffer: one byte per sub-byte element. Asks for the order that
// the device has, because the CPU plugin always returns that one.
void CopyOut(const std::shared_ptr<Completions>& completions,
             const std::shared_ptr<Completions>& copies, std::shared_ptr<RawBuffer> raw,
             Buffer::Spec spec, int64_t size,
             absl::AnyInvocable<void(absl::StatusOr<HostView>)> done) {
  std::shared_ptr<Blob> blob = Blob::Make(static_cast<size_t>(size));
  if (blob == nullptr) {
    std::move(done)(
        Error(absl::StatusCode::kResourceExhausted, "no host memory for {} bytes", size));
    return;
  }
  const PJRT_Api* api = raw->client().api();
  std::vector<int64_t> minor_to_major = spec.order;
  if (minor_to_major.empty()) {
    minor_to_major.resize(spec.shape.rank());
    std::iota(minor_to_major.rbegin(), minor_to_major.rend(), 0);
  }
  PJRT_Buffer_MemoryLayout layout{};
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  Padded<PJRT_Buffer_ToHostBuffer_Args> args;
  args->src = raw->raw();
  args->host_layout = &layout;
  args->dst = blob->data();
  args->dst_size = blob->size();
  absl::Status status = Call(api, api->PJRT_Buffer_ToHostBuffer, args);
  if (!status.ok()) {
    std::move(done)(std::move(status));
    return;
  }
  const bool at_once = spec.dense() || size <= kCopyAtOnce;
  auto finish = [raw = std::move(raw), blob, spec = std::move(spec),
                 done = std::move(done)](absl::Status s) mutable {
    if (!s.ok()) return std::move(done)(std::move(s));
    std::move(done)(MajorToMinor(spec, std::move(blob)));
  };
  if (at_once) return pjrt::HandOver(completions, api, args->event, std::move(finish));
  pjrt::HandOver(
      completions, api, args->event, [copies, finish = std::move(finish)](absl::Status s) mutable {
        copies->Post(
            [finish = std::move(finish), s = std::move(s)]() mutable { finish(std::move(s)); });
      });
}

}  // namespace

PjrtRuntime::PjrtRuntime(std::shared_ptr<Client> client)
    : client_(std::move(client)),
      completions_(std::make_shared<Completions>()),
      copies_(std::make_shared<Completions>()),
      slots_(std::make_shared<Slots>(client_->num_devices(),
                                     client_->is_cpu() ? Slots::kGangsOnCpu : Slots::kGangs)),
      threads_(std::make_unique<pjrt::DeviceThreads>(client_->num_devices())),
      health_(std::make_shared<pjrt::Health>(client_, copies_)) {
  info_.name = "pjrt";
  info_.platform_name = client_->platform_name();
  info_.platform_version = client_->platform_version();
  info_.num_devices = client_->num_devices();
  info_.device_kind = client_->device_kind();
  info_.memory_kinds = client_->memory_kinds();
  info_.device_memory = client_->is_cpu() ? HostMemory() : client_->device_memory();
  info_.gang_inputs = client_->is_cpu() ? ArrivalRule::kReady : ArrivalRule::kExternal;
  info_.memory_waits = !client_->is_cpu();  // XLA's pool tries for 10 s
  info_.has_compiler = true;
  info_.target_config = client_->compile_target().config();
  info_.host_machine = client_->compile_target().host_machine();
  info_.stablehlo_current = client_->plugin().stablehlo_current;
  info_.stablehlo_minimum = client_->plugin().stablehlo_minimum;
}

PjrtRuntime::~PjrtRuntime() {
  // In this order, because completions post copies.
  if (completions_->WaitIdle(std::chrono::seconds(10)) &&
      copies_->WaitIdle(std::chrono::seconds(10))) {
    return;
  }
  spdlog::warn(
      "PJRT work is still under way; its client and threads are kept until the process ends");
  // Keeps the client for ever: a later callback would destroy it on a thread of the plugin, which
  // cannot wait for itself.
  new std::shared_ptr<Client>(client_);
  new std::shared_ptr<Completions>(completions_);
  new std::shared_ptr<Completions>(copies_);
}

absl::StatusOr<std::unique_ptr<Runtime>> MakePjrtRuntime(const PjrtConfig& config) {
  FAIRWAY_ASSIGN_OR_RETURN(std::shared_ptr<Client> client, Client::Create(config));
  pjrt::LogCustomCalls(*client);
  return MakePjrtRuntime(std::move(client));
}

std::unique_ptr<PjrtRuntime> MakePjrtRuntime(std::shared_ptr<Client> client) {
  return std::unique_ptr<PjrtRuntime>(new PjrtRuntime(std::move(client)));
}

void PjrtRuntime::WhenLost(absl::AnyInvocable<void(absl::Status)> lost) {
  health_->WhenLost(std::move(lost));
}

absl::Status PjrtRuntime::Watched(int device, absl::Status status) const {
  if (!status.ok()) health_->Suspect(device, status);
  return status;
}

absl::Status PjrtRuntime::CheckPlace(int device) const {
  if (device >= 0 && device < info_.num_devices) return absl::OkStatus();
  return InvalidArgument("no device {} (there are {})", device, info_.num_devices);
}

absl::StatusOr<std::shared_ptr<LoadedExecutable>> PjrtRuntime::Load(
    std::string_view code, const std::vector<int>& devices) {
  auto loaded = pjrt::Executable::Load(*client_, code, devices);
  // Code that cannot be loaded is INVALID_ARGUMENT, whatever code the plugin gave.
  if (!loaded.ok()) {
    health_->Suspect(devices.empty() ? 0 : devices[0],
                     Error(absl::StatusCode::kInternal, "{}", Text(loaded.status())));
  }
  return loaded;
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> PjrtRuntime::FromHost(std::shared_ptr<Blob> bytes,
                                                                    DType dtype, const Shape& shape,
                                                                    int device,
                                                                    std::string_view memory_kind) {
  FAIRWAY_RETURN_IF_ERROR(CheckPlace(device));
  FAIRWAY_ASSIGN_OR_RETURN(PJRT_Memory * memory, client_->memory(device, memory_kind));
  const std::optional<int32_t> type = PjrtTypeOf(dtype);
  if (!type.has_value()) return InvalidArgument("{} has no bytes on a device", Name(dtype));
  FAIRWAY_ASSIGN_OR_RETURN(int64_t size, ByteSize(dtype, shape));
  if (bytes == nullptr || bytes->size() != static_cast<size_t>(size)) {
    return InvalidArgument("{} takes {} bytes, got {}", ToString(dtype, shape), size,
                           bytes == nullptr ? 0 : bytes->size());
  }
  const PJRT_Api* api = client_->api();
  Padded<PJRT_Client_BufferFromHostBuffer_Args> args;
  args->client = client_->raw();
  args->data = bytes->data();
  args->type = static_cast<PJRT_Buffer_Type>(*type);
  args->dims = shape.dims.data();
  args->num_dims = shape.dims.size();
  args->host_buffer_semantics = PJRT_HostBufferSemantics_kMutableZeroCopy;
  args->device = client_->device(device);
  args->memory = memory;
  FAIRWAY_RETURN_IF_ERROR(Watched(device, Call(api, api->PJRT_Client_BufferFromHostBuffer, args)));
  auto raw = std::make_shared<RawBuffer>(client_, args->buffer);
  const char* block = bytes->data();
  // Holds the block until the buffer is gone, or the output that took it over.
  WhenReady(api, args->done_with_host_buffer,
            [bytes = std::move(bytes)](absl::Status) mutable { bytes.reset(); });

  Buffer::Spec spec{{dtype, shape, device}, std::string(memory_kind), {}};
  if (client_->is_cpu() && spec.dense() && size > 0) {
    auto address = raw->Address();
    if (address.ok() && *address != block) {
      ++forced_copies_;
      spdlog::warn("the plugin copied {} bytes ({} on device {}) instead of using them in place",
                   size, ToString(dtype, shape), device);
    }
  }
  std::shared_ptr<Outcome> outcome = Follow(completions_, *raw);
  outcome->OnDone([health = health_, device](const absl::Status& status) {
    if (!status.ok()) health->Suspect(device, status);
  });
  return std::make_unique<Buffer>(std::move(spec), std::move(raw), std::move(outcome));
}

void PjrtRuntime::Read(DeviceBuffer& buffer,
                       absl::AnyInvocable<void(absl::StatusOr<HostView>)> done) {
  auto& source = static_cast<Buffer&>(buffer);
  auto pinned = source.Pin();
  if (!pinned.ok()) return std::move(done)(std::move(pinned).status());
  auto size = ByteSize(source.spec().dtype, source.spec().shape);
  if (!size.ok()) return std::move(done)(std::move(size).status());
  if (!client_->is_cpu() && *pinned != nullptr) {
    // The stream orders the copy after the program that computes the bytes.
    return CopyOut(completions_, copies_, *std::move(pinned), source.spec(), *size,
                   [origin = source.outcome(), health = health_, device = source.spec().device,
                    done = std::move(done)](absl::StatusOr<HostView> view) mutable {
                     if (view.ok()) return std::move(done)(std::move(view));
                     // The plugin loses the code of the source's error.
                     origin->OnDone([why = view.status(), health = std::move(health), device,
                                     done = std::move(done)](absl::Status first) mutable {
                       if (first.ok()) health->Suspect(device, why);
                       std::move(done)(first.ok() ? why : first);
                     });
                   });
  }
  const bool in_place = source.spec().dense();
  source.outcome()->OnDone([completions = completions_, copies = copies_, raw = *std::move(pinned),
                            size = *size, spec = source.spec(), in_place,
                            done = std::move(done)](absl::Status status) mutable {
    if (!status.ok()) return std::move(done)(std::move(status));
    if (in_place) return std::move(done)(ViewInPlace(std::move(raw), size));
    CopyOut(completions, copies, std::move(raw), std::move(spec), size, std::move(done));
  });
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> PjrtRuntime::CopyToDevice(
    DeviceBuffer& buffer, int device, std::string_view memory_kind) {
  auto& source = static_cast<Buffer&>(buffer);
  FAIRWAY_RETURN_IF_ERROR(CheckPlace(device));
  FAIRWAY_ASSIGN_OR_RETURN(PJRT_Memory * to, client_->memory(device, memory_kind));
  FAIRWAY_ASSIGN_OR_RETURN(PJRT_Memory * from,
                           client_->memory(source.spec().device, source.spec().memory_kind));
  if (to == from) return Duplicate(buffer);
  FAIRWAY_ASSIGN_OR_RETURN(std::shared_ptr<RawBuffer> pinned, source.Pin());
  Buffer::Spec spec = source.spec();
  spec.device = device;
  spec.memory_kind = memory_kind;
  const auto known = source.outcome()->Peek();
  if (pinned == nullptr || (known.has_value() && !known->ok())) {
    return std::make_unique<Buffer>(std::move(spec), nullptr, source.outcome());
  }
  const PJRT_Api* api = client_->api();
  Padded<PJRT_Buffer_CopyToMemory_Args> args;
  args->buffer = pinned->raw();
  args->dst_memory = to;
  FAIRWAY_RETURN_IF_ERROR(Watched(device, Call(api, api->PJRT_Buffer_CopyToMemory, args)));
  auto raw = std::make_shared<RawBuffer>(client_, args->dst_buffer);
  // Keeps the code of the source's error, which the plugin loses.
  auto outcome = std::make_shared<Outcome>();
  Follow(completions_, *raw)
      ->OnDone([outcome, origin = source.outcome(), pinned, health = health_,
                device](absl::Status status) {
        if (status.ok()) return outcome->Set(std::move(status));
        origin->OnDone([outcome, status, health, device](absl::Status first) {
          if (first.ok()) health->Suspect(device, status);
          outcome->Set(first.ok() ? status : std::move(first));
        });
      });
  return std::make_unique<Buffer>(std::move(spec), std::move(raw), std::move(outcome));
}

}  // namespace fairway
