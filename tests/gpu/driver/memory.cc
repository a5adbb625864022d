// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs and of the host, virtual memory, copies and fills.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "driver.h"

namespace fairway_driver {
namespace {

// No valid address of x86-64 has these bits.
constexpr uint64_t kPoison = uint64_t{0x5AFE} << 48;
constexpr size_t kPage = 4096;
constexpr size_t kGranularity = size_t{2} << 20;  // of virtual memory

bool OfDevice(DevicePointer pointer) { return pointer >> 48 == kPoison >> 48; }

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Memory of a GPU, as long as it is held or mapped.
struct Physical {
  int file = -1;
  size_t bytes = 0;
  int device = 0;
  bool counted = false;
  ~Physical();
};

std::mutex mutex;
// Guarded by mutex, never destroyed: the memory that is mapped at each address of this process, and
// the used bytes of each GPU.
auto& mappings = *new std::map<char*, std::shared_ptr<Physical>>();
auto& used = *new std::map<int, int64_t>();

Physical::~Physical() {
  if (file >= 0) ::close(file);
  if (counted) used[device] -= static_cast<int64_t>(bytes);
}

// Called with mutex held. nullptr: the GPU has too little memory.
std::shared_ptr<Physical> MakeMemory(size_t bytes, int device) {
  auto memory = std::make_shared<Physical>();
  memory->bytes = bytes;
  memory->device = device;
  if (used[device] + static_cast<int64_t>(bytes) > MemoryOfGpu()) return nullptr;
  memory->counted = true;
  used[device] += static_cast<int64_t>(bytes);
  memory->file = ::memfd_create("gpu", MFD_CLOEXEC);
  if (memory->file < 0 || ::ftruncate(memory->file, static_cast<off_t>(bytes)) != 0) return nullptr;
  return memory;
}

DevicePointer DeviceOf(char* host) { return reinterpret_cast<DevicePointer>(host) ^ kPoison; }

// The mapping that contains the address, or the end. Called with mutex held.
std::map<char*, std::shared_ptr<Physical>>::iterator Find(DevicePointer pointer) {
  auto mapping = mappings.upper_bound(HostOf(pointer));
  if (!OfDevice(pointer) || mapping == mappings.begin()) return mappings.end();
  --mapping;
  const bool inside = HostOf(pointer) < mapping->first + mapping->second->bytes;
  return inside ? mapping : mappings.end();
}

using SharedMemory = std::shared_ptr<Physical>;
SharedMemory& MemoryOf(uint64_t handle) { return *reinterpret_cast<SharedMemory*>(handle); }

Result CopyAndWait(DevicePointer to, DevicePointer from, size_t bytes) {
  if (const Result given = Copy(nullptr, to, from, bytes); given != kOk) return given;
  StreamOf(nullptr).Wait();
  return State();
}

template <typename T>
Result Fill(void* stream, DevicePointer to, T value, size_t count) {
  if (State() != kOk) return State();
  StreamOf(stream).Do([=] {
    if (!Reachable(to, count * sizeof(T))) return Lose();
    std::fill_n(reinterpret_cast<T*>(HostOf(to)), count, value);
  });
  return kOk;
}

DevicePointer Address(const void* host) { return reinterpret_cast<DevicePointer>(host); }

}  // namespace

char* HostOf(DevicePointer pointer) {
  return reinterpret_cast<char*>(OfDevice(pointer) ? pointer ^ kPoison : pointer);
}

bool Reachable(DevicePointer pointer, size_t bytes) {
  if (!OfDevice(pointer) || bytes == 0) return true;
  const std::lock_guard lock(mutex);
  // Adjacent mappings count as one.
  for (const DevicePointer end = pointer + bytes; pointer < end;) {
    const auto mapping = Find(pointer);
    if (mapping == mappings.end()) return false;
    pointer = DeviceOf(mapping->first + mapping->second->bytes);
  }
  return true;
}

Result Copy(void* stream, DevicePointer to, DevicePointer from, size_t bytes) {
  if (State() != kOk) return State();
  Stream& on = StreamOf(stream);
  if (NumberIn("FAIRWAY_DRIVER_LOST") == on.device()) return kIllegalAddress;
  const char* way = !OfDevice(from) ? "to" : !OfDevice(to) ? "from" : "within";
  on.Do([=, &on] {
    if (There("FAIRWAY_DRIVER_FAULT") || !Reachable(to, bytes) || !Reachable(from, bytes))
      return Lose();
    std::memmove(HostOf(to), HostOf(from), bytes);
    Note(std::string("copy ") + way + " " + std::to_string(bytes) + " " + on.name());
  });
  return kOk;
}

Result Allocate(DevicePointer* out, size_t bytes, int device) {
  if (State() != kOk) return State();
  if (bytes == 0) return kInvalidValue;
  const std::lock_guard lock(mutex);
  const auto memory = MakeMemory(RoundUp(bytes, kPage), device);
  if (memory == nullptr) return kOutOfMemory;
  void* host = ::mmap(nullptr, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->file, 0);
  if (host == MAP_FAILED) return kOutOfMemory;
  mappings[static_cast<char*>(host)] = memory;
  return Give(out, DeviceOf(static_cast<char*>(host)));
}

}  // namespace fairway_driver

using namespace fairway_driver;

FAIRWAY_EXPORT int cuMemAlloc_v2(DevicePointer* out, size_t bytes) {
  return Allocate(out, bytes, Current().device);
}
FAIRWAY_EXPORT int cuMemFree_v2(DevicePointer pointer) {
  WaitForDevice(Current().device);
  const std::lock_guard lock(mutex);
  const auto mapping = Find(pointer);
  if (mapping == mappings.end() || mapping->first != HostOf(pointer)) return kInvalidValue;
  ::munmap(mapping->first, mapping->second->bytes);
  mappings.erase(mapping);
  return State();
}
FAIRWAY_EXPORT int cuMemGetInfo_v2(size_t* free, size_t* total) {
  const std::lock_guard lock(mutex);
  *total = MemoryOfGpu();
  return Give(free, MemoryOfGpu() - used[Current().device]);
}
FAIRWAY_EXPORT int cuPointerGetAttribute(void* out, int attribute, DevicePointer pointer) {
  const std::lock_guard lock(mutex);
  const auto mapping = Find(pointer);
  const bool found = mapping != mappings.end();
  if (OfDevice(pointer) && !found) return kInvalidValue;
  if (attribute == 2) return Give(static_cast<unsigned*>(out), found ? 2 : 1);  // GPU, host
  if (!found) return kInvalidValue;
  const auto& [base, memory] = *mapping;
  switch (attribute) {
    case 9:  // the number of the GPU
      return Give(static_cast<int*>(out), memory->device);
    case 11:  // the begin of its allocation, and its bytes
      return Give(static_cast<DevicePointer*>(out), DeviceOf(base));
    case 12:
      return Give(static_cast<size_t*>(out), memory->bytes);
    case 14:  // the kinds of handles by which it can be exported
      return Give(static_cast<uint64_t*>(out), 0);
    default:
      Note("missing pointer attribute " + std::to_string(attribute));
      return kInvalidValue;
  }
}
FAIRWAY_EXPORT int cuPointerGetAttributes(unsigned count, const int* attributes, void** out,
                                          DevicePointer pointer) {
  for (unsigned i = 0; i < count; ++i) {
    const int given = cuPointerGetAttribute(out[i], attributes[i], pointer);
    if (given != kOk) return given;
  }
  return kOk;
}

FAIRWAY_EXPORT int cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  *out = std::aligned_alloc(kPage, RoundUp(bytes, kPage));
  return *out != nullptr ? State() : kOutOfMemory;
}
FAIRWAY_EXPORT int cuMemFreeHost(void* pointer) {
  WaitForDevice(Current().device);
  std::free(pointer);
  return State();
}
FAIRWAY_EXPORT int cuMemHostRegister_v2(void*, size_t, unsigned) { return State(); }
FAIRWAY_EXPORT int cuMemHostUnregister(void*) { return State(); }

FAIRWAY_EXPORT int cuMemcpyHtoD_v2(DevicePointer to, const void* from, size_t bytes) {
  return CopyAndWait(to, Address(from), bytes);
}
FAIRWAY_EXPORT int cuMemcpyDtoH_v2(void* to, DevicePointer from, size_t bytes) {
  return CopyAndWait(Address(to), from, bytes);
}
FAIRWAY_EXPORT int cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes,
                                        void* stream) {
  return Copy(stream, to, Address(from), bytes);
}
FAIRWAY_EXPORT int cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, void* stream) {
  return Copy(stream, Address(to), from, bytes);
}
FAIRWAY_EXPORT int cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes,
                                        void* stream) {
  return Copy(stream, to, from, bytes);
}
FAIRWAY_EXPORT int cuMemcpyPeerAsync(DevicePointer to, void*, DevicePointer from, void*,
                                     size_t bytes, void* stream) {
  return Copy(stream, to, from, bytes);
}
FAIRWAY_EXPORT int cuMemsetD8Async(DevicePointer to, unsigned char value, size_t count,
                                   void* stream) {
  return Fill(stream, to, value, count);
}
FAIRWAY_EXPORT int cuMemsetD16Async(DevicePointer to, uint16_t value, size_t count, void* stream) {
  return Fill(stream, to, value, count);
}
FAIRWAY_EXPORT int cuMemsetD32Async(DevicePointer to, unsigned value, size_t count, void* stream) {
  return Fill(stream, to, value, count);
}

// Virtual memory: CUmemLocation, the beginning of CUmemAllocationProp, CUmemAccessDesc.
struct Location {
  int type;
  int device;
};
struct MemoryKind {
  int type;
  int handle_types;
  Location location;
};
struct Access {
  Location location;
  int rights;  // 0 none, 1 to read, 3 to read and write
};

FAIRWAY_EXPORT int cuMemGetAllocationGranularity(size_t* bytes, const MemoryKind*, int) {
  return Give(bytes, kGranularity);
}
FAIRWAY_EXPORT int cuMemAddressReserve(DevicePointer* out, size_t bytes, size_t, DevicePointer,
                                       uint64_t) {
  void* host =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (host == MAP_FAILED) return kOutOfMemory;
  return Give(out, DeviceOf(static_cast<char*>(host)));
}
FAIRWAY_EXPORT int cuMemAddressFree(DevicePointer pointer, size_t bytes) {
  ::munmap(HostOf(pointer), bytes);
  return kOk;
}
FAIRWAY_EXPORT int cuMemCreate(uint64_t* handle, size_t bytes, const MemoryKind* kind, uint64_t) {
  if (State() != kOk) return State();
  if (bytes == 0 || bytes % kGranularity != 0) return kInvalidValue;
  const std::lock_guard lock(mutex);
  SharedMemory memory = MakeMemory(bytes, kind->location.device);
  if (memory == nullptr) return kOutOfMemory;
  return Give(handle, reinterpret_cast<uint64_t>(new SharedMemory(std::move(memory))));
}
FAIRWAY_EXPORT int cuMemRelease(uint64_t handle) {
  const std::lock_guard lock(mutex);
  delete &MemoryOf(handle);
  return kOk;
}
FAIRWAY_EXPORT int cuMemMap(DevicePointer pointer, size_t bytes, size_t offset, uint64_t handle,
                            uint64_t) {
  const std::lock_guard lock(mutex);
  const SharedMemory& memory = MemoryOf(handle);
  if (offset != 0 || bytes != memory->bytes) return kInvalidValue;
  void* host = ::mmap(HostOf(pointer), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->file, 0);
  if (host == MAP_FAILED) return kInvalidValue;
  mappings[HostOf(pointer)] = memory;
  return kOk;
}
// The rights of the first GPU hold for all.
FAIRWAY_EXPORT int cuMemSetAccess(DevicePointer pointer, size_t bytes, const Access* access,
                                  size_t) {
  const int rights = access->rights == 3   ? PROT_READ | PROT_WRITE
                     : access->rights == 1 ? PROT_READ
                                           : PROT_NONE;
  return ::mprotect(HostOf(pointer), bytes, rights) == 0 ? kOk : kInvalidValue;
}
FAIRWAY_EXPORT int cuMemUnmap(DevicePointer pointer, size_t bytes) {
  WaitForDevice(Current().device);
  const std::lock_guard lock(mutex);
  const auto first = mappings.lower_bound(HostOf(pointer));
  mappings.erase(first, mappings.lower_bound(HostOf(pointer) + bytes));
  ::mmap(HostOf(pointer), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
  return kOk;
}
