// SPDX-License-Identifier: Apache-2.0
#include "worker/ffi/custom_calls.h"

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <absl/container/inlined_vector.h>

#include "base/log.h"
#include "worker/ffi/host_calls.h"
#include "worker/ffi/kernels.h"
#include "worker/ffi/lapack.h"
#include "xla/ffi/api/c_api.h"

#define FAIRWAY_STRING_(x) #x
#define FAIRWAY_STRING(x) FAIRWAY_STRING_(x)

namespace fairway::ffi {
namespace {

struct Kernel {
  std::string_view name;
  absl::Status (*check)(const Call& call);
  void (*run)(const Call& call);
};

#define FAIRWAY_REAL(base, K)                                                \
  Kernel{"lapack_s" base "_ffi", &K<float>::Check, &K<float>::Run}, Kernel { \
    "lapack_d" base "_ffi", &K<double>::Check, &K<double>::Run               \
  }
#define FAIRWAY_COMPLEX(base, K)                                         \
  Kernel{"lapack_c" base "_ffi", &K<C64>::Check, &K<C64>::Run}, Kernel { \
    "lapack_z" base "_ffi", &K<C128>::Check, &K<C128>::Run               \
  }
#define FAIRWAY_ALL(base, K) FAIRWAY_REAL(base, K), FAIRWAY_COMPLEX(base, K)

constexpr Kernel kKernels[] = {
    FAIRWAY_ALL("trsm", Trsm),
    FAIRWAY_ALL("getrf", Getrf),
    FAIRWAY_ALL("geqrf", Geqrf),
    FAIRWAY_ALL("geqp3", Geqp3),
    FAIRWAY_REAL("orgqr", Orgqr),
    FAIRWAY_COMPLEX("ungqr", Orgqr),
    FAIRWAY_REAL("ormqr", Ormqr),
    FAIRWAY_COMPLEX("unmqr", Ormqr),
    FAIRWAY_ALL("potrf", Potrf),
    FAIRWAY_ALL("gesdd", Gesdd),
    FAIRWAY_ALL("gesvd", Gesvd),
    FAIRWAY_REAL("syevd", Syevd),
    FAIRWAY_COMPLEX("heevd", Syevd),
    FAIRWAY_ALL("geev", Geev),
    FAIRWAY_REAL("sytrd", Sytrd),
    FAIRWAY_COMPLEX("hetrd", Sytrd),
    FAIRWAY_ALL("gees", Gees),
    FAIRWAY_ALL("gehrd", Gehrd),
    FAIRWAY_ALL("gtsv", Gtsv),
    Kernel{"tridiagonal_solve_perturbed_ffi", &TridiagonalPerturbed::Check,
           &TridiagonalPerturbed::Run},
    Kernel{"cpu_csr_sparse_dense_ffi", &CsrDense::Check, &CsrDense::Run},
    Kernel{"dce_sink", &DceSink::Check, &DceSink::Run},
    Kernel{"fairway_own_part", &OwnPart::Check, &OwnPart::Run},
    Kernel{kCallbackTarget, &Callback::Check, &Callback::Run},
    // The name of a Python callback. Under any other name Shardy drops the sharding of a call that
    // is for one of several devices.
    Kernel{"xla_ffi_python_cpu_callback", &Callback::Check, &Callback::Run},
    Kernel{"fairway_go_on", &GoOn::Check, &GoOn::Run},
};
constexpr size_t kCount = std::size(kKernels);

// The numbers are those of xla.PrimitiveType.
DType FromFfi(XLA_FFI_DataType type) {
  return DTypeFromPrimitiveType(static_cast<int32_t>(type)).value_or(DType::kInvalid);
}

void Destroy(const XLA_FFI_CallFrame& frame, XLA_FFI_Error* error) {
  XLA_FFI_Error_Destroy_Args destroy = {};
  destroy.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  destroy.error = error;
  frame.api->XLA_FFI_Error_Destroy(&destroy);
}

int64_t Device(const XLA_FFI_CallFrame& frame) {
  if (frame.api == nullptr || frame.ctx == nullptr) return -1;
  XLA_FFI_DeviceOrdinal_Get_Args args = {};
  args.struct_size = XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE;
  args.ctx = frame.ctx;
  if (XLA_FFI_Error* error = frame.api->XLA_FFI_DeviceOrdinal_Get(&args)) {
    Destroy(frame, error);
    return -1;
  }
  return args.device_ordinal;
}

int64_t Run(const XLA_FFI_CallFrame& frame) {
  if (frame.api == nullptr || frame.ctx == nullptr) return 0;
  XLA_FFI_RunId_Get_Args args = {};
  args.struct_size = XLA_FFI_RunId_Get_Args_STRUCT_SIZE;
  args.ctx = frame.ctx;
  if (XLA_FFI_Error* error = frame.api->XLA_FFI_RunId_Get(&args)) {
    Destroy(frame, error);
    return 0;
  }
  return args.run_id;
}

// Stops the program of a launch on one device.
XLA_FFI_Error* Stop(const XLA_FFI_CallFrame& frame) {
  XLA_FFI_Error_Create_Args args = {};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = "an earlier callback of the program failed";
  args.errc = XLA_FFI_Error_Code_ABORTED;
  return frame.api->XLA_FFI_Error_Create(&args);
}

Value FromFfi(const void* buffer) {
  const auto* from = static_cast<const XLA_FFI_Buffer*>(buffer);
  return {FromFfi(from->dtype), {from->dims, static_cast<size_t>(from->rank)}, from->data};
}

std::optional<int64_t> Integer(const XLA_FFI_Scalar& scalar) {
  switch (scalar.dtype) {
    case XLA_FFI_DataType_PRED:
      return *static_cast<const bool*>(scalar.value);
    case XLA_FFI_DataType_U8:
      return *static_cast<const uint8_t*>(scalar.value);
    case XLA_FFI_DataType_S32:
      return *static_cast<const int32_t*>(scalar.value);
    case XLA_FFI_DataType_S64:
      return *static_cast<const int64_t*>(scalar.value);
    default:
      return std::nullopt;
  }
}

// Makes a Call of a frame. XLA keeps the frame's memory until the frame's future is complete.
class FrameCall {
 public:
  // Anything but a buffer becomes an invalid value, which no check lets pass.
  explicit FrameCall(const XLA_FFI_CallFrame& frame)
      : args_(frame.args.size), rets_(frame.rets.size) {
    for (int64_t i = 0; i < frame.args.size; ++i) {
      if (frame.args.types[i] == XLA_FFI_ArgType_BUFFER) args_[i] = FromFfi(frame.args.args[i]);
    }
    for (int64_t i = 0; i < frame.rets.size; ++i) {
      if (frame.rets.types[i] == XLA_FFI_RetType_BUFFER) rets_[i] = FromFfi(frame.rets.rets[i]);
    }
    for (int64_t i = 0; i < frame.attrs.size; ++i) {
      if (frame.attrs.types[i] != XLA_FFI_AttrType_SCALAR) continue;
      const XLA_FFI_ByteSpan& name = *frame.attrs.names[i];
      if (auto value = Integer(*static_cast<const XLA_FFI_Scalar*>(frame.attrs.attrs[i]))) {
        attributes_.push_back({{name.ptr, name.len}, *value});
      }
    }
    call_ = {{args_.data(), args_.size()},
             {rets_.data(), rets_.size()},
             {attributes_.data(), attributes_.size()},
             Device(frame),
             Run(frame)};
  }
  FrameCall(const FrameCall&) = delete;
  FrameCall& operator=(const FrameCall&) = delete;

  const Call& call() const { return call_; }

 private:
  absl::InlinedVector<Value, 4> args_;
  absl::InlinedVector<Value, 9> rets_;
  absl::InlinedVector<Attribute, 4> attributes_;
  Call call_;
};

void Refuse(const Kernel& kernel, const Call& call, const absl::Status& status) {
  spdlog::error("{}: {}; its results are NaN", kernel.name, fairway::Describe(status));
  Poison(call);
}

void Dispatch(const Kernel& kernel, const XLA_FFI_CallFrame& frame) {
  const FrameCall asked(frame);
  absl::Status status = kernel.check(asked.call());
  if (status.ok()) {
    try {
      return kernel.run(asked.call());
    } catch (const std::exception& error) {  // no memory for the workspace
      status = Error(absl::StatusCode::kResourceExhausted, "{}", error.what());
    }
  }
  Refuse(kernel, asked.call(), status);
}

// The thread that runs the callbacks of a device, one after the other. Each waits for a client, and
// XLA's threads serve all devices. The program goes on in this thread. Lives as long as the
// process.
class CallThread {
 public:
  // nullptr: the process cannot start more threads.
  static CallThread* Of(int64_t device) {
    static auto* const mutex = new std::mutex();
    static auto* const all = new std::map<int64_t, CallThread>();
    const std::lock_guard lock(*mutex);
    try {
      return &(*all)[device];
    } catch (const std::exception& error) {
      spdlog::error("no thread for the callbacks of device {}: {}", device, error.what());
      return nullptr;
    }
  }
  // Returns whether the caller runs on a CallThread.
  static bool here() { return here_; }

  CallThread() {
    std::thread([this] { Serve(); }).detach();
  }
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;

  void Post(std::function<void()> call) {
    {
      const std::lock_guard lock(mutex_);
      calls_.push_back(std::move(call));
    }
    posted_.notify_one();
  }

 private:
  [[noreturn]] void Serve() {
    here_ = true;
    while (true) {
      std::unique_lock lock(mutex_);
      posted_.wait(lock, [this] { return !calls_.empty(); });
      const std::function<void()> call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      call();
    }
  }

  inline static thread_local bool here_ = false;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> calls_;
};

// nullptr: XLA gives none.
XLA_FFI_Future* NewFuture(const XLA_FFI_CallFrame& frame) {
  XLA_FFI_Future_Create_Args args = {};
  args.struct_size = XLA_FFI_Future_Create_Args_STRUCT_SIZE;
  if (XLA_FFI_Error* error = frame.api->XLA_FFI_Future_Create(&args)) {
    Destroy(frame, error);
    return nullptr;
  }
  return args.future;
}

XLA_FFI_Error* CallBack(const Kernel& kernel, XLA_FFI_CallFrame& frame) {
  auto asked = std::make_shared<const FrameCall>(frame);
  const Call& call = asked->call();
  if (const absl::Status status = kernel.check(call); !status.ok()) {
    Refuse(kernel, call, status);
    return nullptr;
  }
  const std::shared_ptr<CallingLaunch> launch = FindCallingLaunch(call.run);
  // A launch that has failed waits for nobody.
  const bool waits = launch != nullptr && launch->failure().ok() && !CallThread::here();
  CallThread* const thread = waits ? CallThread::Of(call.device) : nullptr;
  frame.future = thread != nullptr ? NewFuture(frame) : nullptr;
  if (frame.future == nullptr) {
    kernel.run(call);
    return launch != nullptr && launch->stop() ? Stop(frame) : nullptr;
  }
  thread->Post([asked, launch, api = frame.api, future = frame.future] {
    launch->Run(asked->call());
    XLA_FFI_Future_SetAvailable_Args args = {};
    args.struct_size = XLA_FFI_Future_SetAvailable_Args_STRUCT_SIZE;
    args.future = future;
    api->XLA_FFI_Future_SetAvailable(&args);
  });
  return nullptr;
}

template <size_t kIndex>
XLA_FFI_Error* Handle(XLA_FFI_CallFrame* frame) {
  // The plugin asks at registration which headers this was built with.
  if (frame->extension_start != nullptr &&
      frame->extension_start->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata* metadata =
        reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start)->metadata;
    metadata->api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    metadata->traits = 0;
    return nullptr;
  }
  if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return nullptr;
  if constexpr (kKernels[kIndex].run == &Callback::Run) return CallBack(kKernels[kIndex], *frame);
  Dispatch(kKernels[kIndex], *frame);
  return nullptr;
}

template <size_t... kIndex>
std::array<CustomCall, kCount> MakeTable(std::index_sequence<kIndex...>) {
  return {CustomCall{kKernels[kIndex].name, kKernels[kIndex].check, kKernels[kIndex].run,
                     reinterpret_cast<void*>(&Handle<kIndex>)}...};
}

}  // namespace

std::span<const CustomCall> CustomCalls() {
  static const std::array<CustomCall, kCount> table = [] {
    openblas_set_num_threads(1);  // a device is one thread
    return MakeTable(std::make_index_sequence<kCount>());
  }();
  return table;
}

const CustomCall* FindCustomCall(std::string_view name) {
  for (const CustomCall& call : CustomCalls()) {
    if (call.name == name) return &call;
  }
  return nullptr;
}

std::string_view FfiVersion() {
  return FAIRWAY_STRING(XLA_FFI_API_MAJOR) "." FAIRWAY_STRING(XLA_FFI_API_MINOR);
}

}  // namespace fairway::ffi
