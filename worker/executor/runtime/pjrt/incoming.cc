// SPDX-License-Identifier: Apache-2.0
// PjrtRuntime: buffers whose bytes come later, and copies on one device, which are made from such
// buffers.
#include "base/log.h"
#include "pjrt_c_api.h"
#include "worker/executor/runtime/pjrt/buffer.h"
#include "worker/executor/runtime/pjrt/call.h"
#include "worker/executor/runtime/pjrt/client.h"
#include "worker/executor/runtime/pjrt/completions.h"
#include "worker/executor/runtime/pjrt/health.h"
#include "worker/executor/runtime/pjrt/pjrt_runtime.h"

namespace fairway {
namespace {

using pjrt::Buffer;
using pjrt::Call;
using pjrt::Client;
using pjrt::Completions;
using pjrt::Padded;
using pjrt::RawBuffer;

// The sending end of a buffer that waits for its bytes. Used once.
class Transfer : public std::enable_shared_from_this<Transfer> {
 public:
  Transfer(std::shared_ptr<const Client> client, std::shared_ptr<Completions> completions,
           std::shared_ptr<pjrt::Health> health, int device,
           PJRT_AsyncHostToDeviceTransferManager* manager, int64_t size)
      : client_(std::move(client)),
        completions_(std::move(completions)),
        health_(std::move(health)),
        device_(device),
        manager_(manager),
        size_(size) {}
  ~Transfer() {
    if (!used_) Fail(Error(absl::StatusCode::kCancelled, "the bytes of a buffer were given up"));
    pjrt::DestroyEvent(api(), ready_);
    Padded<PJRT_AsyncHostToDeviceTransferManager_Destroy_Args> args;
    args->transfer_manager = manager_;
    (void)Call(api(), api()->PJRT_AsyncHostToDeviceTransferManager_Destroy, args);
  }

  absl::StatusOr<std::shared_ptr<RawBuffer>> Retrieve() {
    Padded<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args> args;
    args->transfer_manager = manager_;
    FAIRWAY_RETURN_IF_ERROR(
        Call(api(), api()->PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, args));
    auto raw = std::make_shared<RawBuffer>(client_, args->buffer_out);
    // Asks for the event now: later the buffer may have been donated, and the event would say that
    // instead.
    Padded<PJRT_Buffer_ReadyEvent_Args> event;
    event->buffer = raw->raw();
    FAIRWAY_RETURN_IF_ERROR(Call(api(), api()->PJRT_Buffer_ReadyEvent, event));
    ready_ = event->event;
    return raw;
  }

  const std::shared_ptr<Outcome>& outcome() const { return outcome_; }

  void Fulfil(absl::StatusOr<HostView> view) {
    used_ = true;
    if (!view.ok()) return Fail(std::move(view).status());
    if (view->bytes.size() != static_cast<size_t>(size_)) {
      return Fail(InvalidArgument("{} bytes came for a buffer of {}", view->bytes.size(), size_));
    }
    Padded<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args> args;
    args->transfer_manager = manager_;
    args->data = view->bytes.data();
    args->transfer_size = size_;
    args->is_last_transfer = true;
    absl::Status status =
        Call(api(), api()->PJRT_AsyncHostToDeviceTransferManager_TransferData, args);
    if (!status.ok()) {
      health_->Suspect(device_, status);
      return Fail(std::move(status));
    }
    // The callback keeps this object too: destroying the manager waits for its transfers.
    pjrt::HandOver(completions_, api(), args->done_with_h2d_transfer,
                   [self = shared_from_this(), owner = std::move(view->owner)](absl::Status) {});
    pjrt::HandOver(completions_, api(), std::exchange(ready_, nullptr),
                   [outcome = outcome_, health = health_, device = device_](absl::Status s) {
                     if (!s.ok()) health->Suspect(device, s);
                     outcome->Set(std::move(s));
                   });
  }

 private:
  const PJRT_Api* api() const { return client_->api(); }

  void Fail(absl::Status status) {
    used_ = true;
    // Set before the plugin's: a reader that sees the plugin's error looks here for the first
    // cause.
    outcome_->Set(status);
    const std::string text = Text(status);
    Padded<PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args> args;
    args->transfer_manager = manager_;
    args->error_code = static_cast<PJRT_Error_Code>(status.code());
    args->error_message = text.data();
    args->error_message_size = text.size();
    absl::Status set =
        Call(api(), api()->PJRT_AsyncHostToDeviceTransferManager_SetBufferError, args);
    if (!set.ok()) spdlog::warn("passing an error to a buffer: {}", Describe(set));
  }

  const std::shared_ptr<const Client> client_;
  const std::shared_ptr<Completions> completions_;
  const std::shared_ptr<pjrt::Health> health_;
  const int device_;
  PJRT_AsyncHostToDeviceTransferManager* const manager_;
  const int64_t size_;
  const std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
  PJRT_Event* ready_ = nullptr;
  bool used_ = false;
};

}  // namespace

absl::StatusOr<PjrtRuntime::IncomingView> PjrtRuntime::ExpectView(DType dtype, const Shape& shape,
                                                                  int device,
                                                                  std::string_view memory_kind) {
  FAIRWAY_RETURN_IF_ERROR(CheckPlace(device));
  FAIRWAY_ASSIGN_OR_RETURN(PJRT_Memory * memory, client_->memory(device, memory_kind));
  const std::optional<int32_t> type = PjrtTypeOf(dtype);
  if (!type.has_value()) return InvalidArgument("{} has no bytes on a device", Name(dtype));
  if (PackedBits(dtype) > 0) {
    // The transfer manager takes packed bytes.
    return Error(absl::StatusCode::kUnimplemented, "a buffer of {} whose bytes come later",
                 Name(dtype));
  }
  FAIRWAY_ASSIGN_OR_RETURN(int64_t size, ByteSize(dtype, shape));
  PJRT_ShapeSpec shape_spec{};
  shape_spec.struct_size = PJRT_ShapeSpec_STRUCT_SIZE;
  shape_spec.dims = shape.dims.data();
  shape_spec.num_dims = shape.dims.size();
  shape_spec.element_type = static_cast<PJRT_Buffer_Type>(*type);
  Padded<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args> args;
  args->client = client_->raw();
  args->shape_specs = &shape_spec;
  args->num_shape_specs = 1;
  args->memory = memory;
  FAIRWAY_RETURN_IF_ERROR(Watched(
      device,
      Call(client_->api(), client_->api()->PJRT_Client_CreateBuffersForAsyncHostToDevice, args)));
  auto transfer = std::make_shared<Transfer>(client_, completions_, health_, device,
                                             args->transfer_manager, size);
  FAIRWAY_ASSIGN_OR_RETURN(std::shared_ptr<RawBuffer> raw, transfer->Retrieve());
  IncomingView incoming;
  incoming.buffer =
      std::make_unique<Buffer>(Buffer::Spec{{dtype, shape, device}, std::string(memory_kind), {}},
                               std::move(raw), transfer->outcome());
  incoming.fulfil = [transfer = std::move(transfer)](absl::StatusOr<HostView> view) {
    transfer->Fulfil(std::move(view));
  };
  return incoming;
}

absl::StatusOr<PjrtRuntime::Incoming> PjrtRuntime::Expect(DType dtype, const Shape& shape,
                                                          int device,
                                                          std::string_view memory_kind) {
  FAIRWAY_ASSIGN_OR_RETURN(IncomingView incoming, ExpectView(dtype, shape, device, memory_kind));
  return Incoming{
      std::move(incoming.buffer),
      [fulfil = std::move(incoming.fulfil)](absl::StatusOr<std::shared_ptr<Blob>> bytes) mutable {
        if (!bytes.ok()) return std::move(fulfil)(std::move(bytes).status());
        const std::string_view view = (*bytes)->view();
        std::move(fulfil)(HostView{view, *std::move(bytes)});
      }};
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> PjrtRuntime::Duplicate(DeviceBuffer& buffer) {
  const Buffer::Spec& spec = static_cast<Buffer&>(buffer).spec();
  FAIRWAY_RETURN_IF_ERROR(static_cast<Buffer&>(buffer).Pin().status());
  if (!spec.dense()) return DuplicateByBounce(buffer);
  FAIRWAY_ASSIGN_OR_RETURN(IncomingView copy,
                           ExpectView(spec.dtype, spec.shape, spec.device, spec.memory_kind));
  Read(buffer, std::move(copy.fulfil));
  return std::move(copy.buffer);
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> PjrtRuntime::DuplicateByBounce(DeviceBuffer& buffer) {
  const Buffer::Spec& spec = static_cast<Buffer&>(buffer).spec();
  const std::string& own = spec.memory_kind.empty() ? info_.memory_kinds[0] : spec.memory_kind;
  for (const std::string& kind : info_.memory_kinds) {
    if (kind == own) continue;
    FAIRWAY_ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> there,
                             CopyToDevice(buffer, spec.device, kind));
    return CopyToDevice(*there, spec.device, spec.memory_kind);
  }
  return Error(absl::StatusCode::kUnimplemented, "a copy of {} on its own device",
               ToString(spec.dtype, spec.shape));
}

}  // namespace fairway
