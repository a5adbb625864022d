// SPDX-License-Identifier: Apache-2.0
// The driver itself: GPUs, contexts, errors, the log and the look-up of functions.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "driver.h"

namespace fairway_driver {
namespace {

std::atomic<bool> lost{false};
thread_local Context* current = nullptr;

std::vector<Context>& Contexts() {
  static auto* const contexts = [] {
    auto* all = new std::vector<Context>(Gpus());
    for (int d = 0; d < Gpus(); ++d) (*all)[d].device = d;
    return all;
  }();
  return *contexts;
}

// The attributes that the plugin reads, by number of CUdevice_attribute: figures of an H200.
int Attribute(int attribute, int device) {
  switch (attribute) {
    case 1:  // threads per block
    case 2:  // x and y of a block
    case 3:
      return 1024;
    case 4:  // z of a block
      return 64;
    case 5:   // x of a grid
    case 11:  // pitch
      return 2147483647;
    case 6:  // y and z of a grid
    case 7:
      return 65535;
    case 8:  // bytes of shared memory per block
      return 49152;
    case 9:   // bytes of constant memory
    case 12:  // registers per block, per multiprocessor
    case 82:
      return 65536;
    case 10:  // threads per warp
      return 32;
    case 13:  // kHz of the clock, and of the memory's clock
      return 1980000;
    case 36:
      return 3201000;
    case 16:  // multiprocessors
      return 132;
    case 33:  // PCI bus
      return device + 1;
    case 37:  // bits of the memory bus
      return 6144;
    case 38:  // bytes of L2
      return 62914560;
    case 39:  // threads per multiprocessor
      return 2048;
    case 40:  // copy engines
      return 3;
    case 75:  // compute capability 9.0
      return 9;
    case 81:  // bytes of shared memory: per multiprocessor, per block on request, reserved
      return 233472;
    case 97:
      return 232448;
    case 111:
      return 1024;
    case 106:  // blocks per multiprocessor
      return 32;
    case 19:   // maps host memory
    case 31:   // concurrent kernels
    case 32:   // ECC
    case 41:   // one address space
    case 78:   // priorities of streams
    case 95:   // cooperative launches
    case 102:  // virtual memory, exported by descriptor
    case 103:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

int64_t Setting(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoll(text) : otherwise;
}

int Gpus() { return static_cast<int>(Setting("FAIRWAY_DRIVER_GPUS", 8)); }

int64_t MemoryOfGpu() { return Setting("FAIRWAY_DRIVER_MEMORY", int64_t{1} << 30); }

Context& Current() { return current == nullptr ? Contexts()[0] : *current; }

Context* ContextOf(int device) { return &Contexts()[device]; }

bool There(const char* variable) {
  const char* path = std::getenv(variable);
  return path != nullptr && ::access(path, F_OK) == 0;
}

int NumberIn(const char* variable) {
  const char* path = std::getenv(variable);
  int number = -1;
  if (path != nullptr) std::ifstream(path) >> number;
  return number;
}

void WhileThere(const char* variable) {
  while (There(variable)) ::poll(nullptr, 0, 1);
}

void Note(const std::string& line) {
  static const int file = [] {
    const char* path = std::getenv("FAIRWAY_DRIVER_LOG");
    return path == nullptr ? -1 : ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  }();
  if (file < 0) return;
  const std::string whole = std::to_string(::getpid()) + ": " + line + "\n";
  if (::write(file, whole.data(), whole.size()) < 0) std::perror("FAIRWAY_DRIVER_LOG");
}

void Lose() { lost = true; }

Result State() { return lost ? kIllegalAddress : kOk; }

}  // namespace fairway_driver

using namespace fairway_driver;

FAIRWAY_EXPORT int cuInit(unsigned) { return Gpus() == 0 ? kNoDevice : kOk; }
FAIRWAY_EXPORT int cuDriverGetVersion(int* version) { return Give(version, 13000); }
FAIRWAY_EXPORT int cuDeviceGetCount(int* count) { return Give(count, Gpus()); }
FAIRWAY_EXPORT int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= Gpus()) return kInvalidDevice;
  return Give(device, ordinal);
}
FAIRWAY_EXPORT int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, size, "NVIDIA H200");
  return kOk;
}
FAIRWAY_EXPORT int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::memset(uuid, 0x10 + device, 16);
  return kOk;
}
FAIRWAY_EXPORT int cuDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, size, "0000:%02x:00.0", device + 1);
  return kOk;
}
FAIRWAY_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  return Give(value, Attribute(attribute, device));
}
FAIRWAY_EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int) { return Give(bytes, MemoryOfGpu()); }
FAIRWAY_EXPORT int cuDeviceCanAccessPeer(int* can, int, int) { return Give(can, 1); }

FAIRWAY_EXPORT int cuGetErrorName(int error, const char** text) {
  switch (error) {
    case kOutOfMemory:
      return Give(text, "CUDA_ERROR_OUT_OF_MEMORY");
    case kNoDevice:
      return Give(text, "CUDA_ERROR_NO_DEVICE");
    case kNoSymbol:
      return Give(text, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND");
    case kIllegalAddress:
      return Give(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    case kOutOfResources:
      return Give(text, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
    default:
      return Give(text, "CUDA_ERROR_OF_THE_STAND_IN");
  }
}
FAIRWAY_EXPORT int cuGetErrorString(int error, const char** text) {
  switch (error) {
    case kOutOfMemory:
      return Give(text, "out of memory");
    case kNoSymbol:
      return Give(text, "the stand-in driver lacks a function");
    case kIllegalAddress:
      return Give(text, "an illegal memory access was encountered");
    case kOutOfResources:
      return Give(text, "too many resources requested for launch");
    default:
      return cuGetErrorName(error, text);
  }
}

FAIRWAY_EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  WhileThere("FAIRWAY_DRIVER_HANG");
  ContextOf(device)->active = true;
  return Give(context, ContextOf(device));
}
FAIRWAY_EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  return Give(active, ContextOf(device)->active);
}
FAIRWAY_EXPORT int cuCtxSetCurrent(void* context) {
  current = static_cast<Context*>(context);
  return kOk;
}
FAIRWAY_EXPORT int cuCtxGetCurrent(void** context) { return Give(context, current); }
FAIRWAY_EXPORT int cuCtxGetDevice(int* device) {
  if (current == nullptr) return kInvalidContext;
  return Give(device, current->device);
}
FAIRWAY_EXPORT int cuCtxSynchronize() {
  WaitForDevice(Current().device);
  return State();
}
FAIRWAY_EXPORT int cuCtxEnablePeerAccess(void*, unsigned) { return kOk; }
FAIRWAY_EXPORT int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  return Give(greatest, -5);
}

FAIRWAY_EXPORT int cuGetProcAddress_v2(const char* name, void** function, int, uint64_t,
                                       int* status) {
  static void* const self = [] {
    Dl_info info;
    ::dladdr(reinterpret_cast<void*>(&cuInit), &info);
    return ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  *function = ::dlsym(self, (std::string(name) + "_v2").c_str());
  if (*function == nullptr) *function = ::dlsym(self, name);
  if (status != nullptr) *status = *function != nullptr ? 0 : 1;
  if (*function != nullptr) return kOk;
  Note(std::string("missing ") + name);
  return kNotFound;
}
