// SPDX-License-Identifier: Apache-2.0
// Modules and kernels: they are loaded and logged, and do nothing.
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "driver.h"

namespace fairway_driver {
namespace {

struct Kernel {
  std::string name;
};

// A module is empty; its functions and globals are made on request. Kept for good.
struct Module {
  std::mutex mutex;
  std::map<std::string, Kernel> kernels;
  std::map<std::string, DevicePointer> globals;
};

constexpr size_t kGlobalBytes = size_t{1} << 20;  // the contents of globals are not read
constexpr std::string_view kFaulting = "fairway_fault_";

}  // namespace

Result Launch(void* stream, void* handle) {
  static std::atomic<int64_t> launches{0};
  if (State() != kOk) return State();
  const auto* kernel = static_cast<const Kernel*>(handle);
  Stream& on = StreamOf(stream);
  const std::string what = "kernel " + kernel->name + " " + on.name();
  if (NumberIn("FAIRWAY_DRIVER_LOST") == on.device()) return kIllegalAddress;
  if (NumberIn("FAIRWAY_DRIVER_REFUSE") == on.device()) {
    Note("refuse " + what);
    return kOutOfResources;
  }
  const bool fault = ++launches == Setting("FAIRWAY_DRIVER_FAIL_AFTER", 0) ||
                     There("FAIRWAY_DRIVER_FAULT") || kernel->name.starts_with(kFaulting);
  Note("give " + what);
  on.Do([what, fault] {
    WhileThere("FAIRWAY_DRIVER_HOLD");
    if (fault) return Lose();
    Note(what);
  });
  return kOk;
}

}  // namespace fairway_driver

using namespace fairway_driver;

FAIRWAY_EXPORT int cuModuleLoadData(void** module, const void*) {
  *module = new Module();
  return State();
}
FAIRWAY_EXPORT int cuModuleLoadFatBinary(void** module, const void* image) {
  return cuModuleLoadData(module, image);
}
// A GPU's driver would compile PTX here.
FAIRWAY_EXPORT int cuModuleLoadDataEx(void** module, const void* image, unsigned, void*, void**) {
  return cuModuleLoadData(module, image);
}
FAIRWAY_EXPORT int cuModuleUnload(void*) { return State(); }
FAIRWAY_EXPORT int cuModuleGetFunction(void** kernel, void* handle, const char* name) {
  auto* module = static_cast<Module*>(handle);
  const std::lock_guard lock(module->mutex);
  return Give(kernel, &module->kernels.try_emplace(name, Kernel{name}).first->second);
}
FAIRWAY_EXPORT int cuModuleGetGlobal_v2(DevicePointer* out, size_t* bytes, void* handle,
                                        const char* name) {
  auto* module = static_cast<Module*>(handle);
  const std::lock_guard lock(module->mutex);
  DevicePointer& global = module->globals[name];
  if (global == 0 && Allocate(&global, kGlobalBytes, Current().device) != kOk) return kOutOfMemory;
  if (bytes != nullptr) *bytes = kGlobalBytes;
  return Give(out, global);
}

FAIRWAY_EXPORT int cuKernelGetName(const char** name, void* kernel) {
  return Give(name, static_cast<Kernel*>(kernel)->name.c_str());
}
FAIRWAY_EXPORT int cuFuncGetAttribute(int* value, int attribute, void*) {
  return Give(value, attribute == 0 ? 1024 : attribute == 4 ? 32 : 0);  // threads, registers
}
FAIRWAY_EXPORT int cuFuncSetAttribute(void*, int, int) { return kOk; }
FAIRWAY_EXPORT int cuFuncSetCacheConfig(void*, int) { return kOk; }

FAIRWAY_EXPORT int cuLaunchKernel(void* kernel, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  unsigned, unsigned, void* stream, void**, void**) {
  return Launch(stream, kernel);
}
// The beginning of CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
};
FAIRWAY_EXPORT int cuLaunchKernelEx(const LaunchConfig* config, void* kernel, void**, void**) {
  return Launch(config->stream, kernel);
}
