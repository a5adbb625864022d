// SPDX-License-Identifier: Apache-2.0
// libcudart.so.13: the plugin registers its own kernels here when it is loaded, and later looks
// them up by the address of a host function.
#include <map>
#include <mutex>

#include "driver.h"

FAIRWAY_EXPORT int cuModuleLoadData(void** module, const void* image);
FAIRWAY_EXPORT int cuModuleGetFunction(void** kernel, void* module, const char* name);
FAIRWAY_EXPORT int cuDriverGetVersion(int* version);
FAIRWAY_EXPORT int cuDeviceGetCount(int* count);

namespace {

std::mutex mutex;
auto& kernels = *new std::map<const void*, void*>();  // guarded by mutex, never destroyed

}  // namespace

FAIRWAY_EXPORT void** __cudaRegisterFatBinary(void* image) {
  auto** handle = new void*;
  cuModuleLoadData(handle, image);
  return handle;
}
FAIRWAY_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
FAIRWAY_EXPORT void __cudaUnregisterFatBinary(void**) {}
FAIRWAY_EXPORT void __cudaRegisterFunction(void** handle, const void* host, char*, const char* name,
                                           int, void*, void*, void*, void*, int*) {
  const std::lock_guard lock(mutex);
  cuModuleGetFunction(&kernels[host], *handle, name);
}
FAIRWAY_EXPORT void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
FAIRWAY_EXPORT int cudaGetFuncBySymbol(void** function, const void* host) {
  const std::lock_guard lock(mutex);
  const auto kernel = kernels.find(host);
  if (kernel == kernels.end()) return fairway_driver::kNotFound;
  return fairway_driver::Give(function, kernel->second);
}
FAIRWAY_EXPORT int cudaRuntimeGetVersion(int* version) { return cuDriverGetVersion(version); }
FAIRWAY_EXPORT int cudaGetDeviceCount(int* count) { return cuDeviceGetCount(count); }
FAIRWAY_EXPORT int cudaPeekAtLastError() { return 0; }
FAIRWAY_EXPORT const char* cudaGetErrorString(int) { return "an error of the stand-in's runtime"; }
FAIRWAY_EXPORT const char* cudaGetErrorName(int) { return "cudaErrorOfTheStandIn"; }
