// SPDX-License-Identifier: Apache-2.0
#include "worker/executor/runtime/pjrt/ffi.h"

#include "base/log.h"
#include "fairway/v1/executable.pb.h"
#include "pjrt_c_api.h"
#include "worker/executor/runtime/pjrt/call.h"
#include "worker/executor/runtime/pjrt/client.h"
#include "worker/executor/runtime/pjrt/compile_options.h"
#include "worker/executor/runtime/pjrt/plugin.h"
#include "worker/ffi/custom_calls.h"

namespace fairway::pjrt {
namespace {

// No wheel has the header of this extension. This is its version 3, which every plugin has that
// LoadPlugin accepts (API 0.81 and newer). Version 2 had an `int api_version` before `handler`,
// under the same size of the extension.
struct RegisterHandlerArgs {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  void* handler;
  const char* platform_name;
  size_t platform_name_size;
  int traits;
};
struct FfiExtension {
  PJRT_Extension_Base base;
  void* type_register;
  void* user_data_add;
  PJRT_Error* (*register_handler)(RegisterHandlerArgs* args);
};

constexpr std::string_view kPlatform = "Host";  // XLA's name for the CPU

const FfiExtension* FindExtension(const PJRT_Api* api) {
  for (const PJRT_Extension_Base* e = api->extension_start; e != nullptr; e = e->next) {
    if (e->type == PJRT_Extension_Type_FFI && e->struct_size >= sizeof(FfiExtension)) {
      return reinterpret_cast<const FfiExtension*>(e);
    }
  }
  return nullptr;
}

}  // namespace

absl::Status RegisterCustomCalls(const Plugin& plugin, const PjrtConfig& config) {
  if (config.kind != "cpu") {
    return Error(absl::StatusCode::kUnimplemented,
                 "custom calls need a CPU plugin, this one is of kind {}", config.kind);
  }
  const FfiExtension* extension = FindExtension(plugin.api);
  if (extension == nullptr) {
    return Error(absl::StatusCode::kUnimplemented, "the plugin has no FFI extension");
  }
  for (const ffi::CustomCall& call : ffi::CustomCalls()) {
    Padded<RegisterHandlerArgs> args;
    args->target_name = call.name.data();
    args->target_name_size = call.name.size();
    args->handler = call.handler;
    args->platform_name = kPlatform.data();
    args->platform_name_size = kPlatform.size();
    FAIRWAY_RETURN_IF_ERROR(Annotate(Consume(plugin.api, extension->register_handler(&args.args)),
                                     std::string(call.name)));
  }
  return absl::OkStatus();
}

absl::Status ProbeCustomCalls(const Client& client) {
  // The compiler looks only at names, not at shapes. It does not optimize a used result away.
  std::string calls, results, types;
  int next = 0;
  for (const ffi::CustomCall& call : ffi::CustomCalls()) {
    calls += fmt::format(
        "%{} = stablehlo.custom_call @{}(%x) {{api_version = 4 : i32, backend_config = {{}}}} : "
        "(tensor<f32>) -> tensor<f32>\n",
        next, call.name);
    results += fmt::format("{}%{}", next == 0 ? "" : ", ", next);
    types += next == 0 ? "tensor<f32>" : ", tensor<f32>";
    ++next;
  }
  const std::string program = fmt::format(
      "module @probe {{ func.func public @main(%x: tensor<f32>) -> ({}) {{\n{}return {} : {} }} }}",
      types, calls, results, types);
  v1::CompileOptions options;
  options.set_num_replicas(1);
  options.set_num_partitions(1);
  FAIRWAY_ASSIGN_OR_RETURN(std::string encoded, EncodeCompileOptions(options, client));
  return client.CompileOnly(program, "mlir", encoded).status();
}

void LogCustomCalls(const Client& client) {
  absl::Status status = client.plugin().custom_calls;
  if (!status.ok()) return spdlog::info("no custom calls (LAPACK): {}", Text(status));
  status = ProbeCustomCalls(client);
  if (!status.ok()) {
    return spdlog::error(
        "the plugin refused the handlers of custom calls (LAPACK), which are of "
        "FFI {}: {}",
        ffi::FfiVersion(), Text(status));
  }
  spdlog::info("{} custom calls (LAPACK) registered and found, FFI {}", ffi::CustomCalls().size(),
               ffi::FfiVersion());
}

}  // namespace fairway::pjrt
