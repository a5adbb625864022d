// SPDX-License-Identifier: Apache-2.0
// A stand-in for CUDA's driver, libcuda.so.1, with the parts of the runtime (libcudart.so.13) and
// of NVML (libnvidia-ml.so.1) that the plugin needs: the real CUDA plugin runs on them on a machine
// without a GPU. Prototypes and numbers are written by hand from the published documentation of the
// driver API. A function that no test's plugin uses is left out.
//
// - Device memory is a memfd, mapped once. Its addresses are not canonical, so that an access from
//   the host ends the process by SIGSEGV. Each process has GPUs of its own, with all their memory.
// - A stream is a thread that does copies, fills, events and functions of the host in order. A
//   copy outside of allocated memory is a fault.
// - Kernels load, are launched and do nothing: their outputs keep their old contents. So a loop
//   whose condition is computed may never end.
// - A kernel whose name begins with "fairway_fault_" is a fault when its stream reaches it.
// - A fault is sticky, as on a GPU: once the stream has reached it, calls fail with
//   CUDA_ERROR_ILLEGAL_ADDRESS, work behind it is not done, and functions of the host behind it
//   are not called. All GPUs of the process are lost together.
// - Graphs have no conditions and are not captured from streams. There are no memory pools and no
//   textures. Nothing stands in for cuBLAS, cuDNN, cuFFT and NCCL: without cuBLAS a matrix product
//   ends the process within the plugin.
//
// Environment, read by each process:
//   FAIRWAY_DRIVER_GPUS        the number of GPUs (8)
//   FAIRWAY_DRIVER_MEMORY      bytes of memory of each (1 GiB)
//   FAIRWAY_DRIVER_LOG         a file that gets a line for each kernel and copy, see Note
//   FAIRWAY_DRIVER_FAIL_AFTER  N: the process's Nth launch of a kernel is a fault
//   FAIRWAY_DRIVER_FAULT       a path: while the file exists, a launch or a copy is a fault
//   FAIRWAY_DRIVER_REFUSE      a path: the GPU whose number is in that file launches no kernel;
//                              earlier launches go on, and so do other GPUs
//   FAIRWAY_DRIVER_LOST        a path: on the GPU whose number is in that file launches and copies
//                              fail at once as after a fault; other GPUs go on
//   FAIRWAY_DRIVER_HOLD        a path: while the file exists, streams wait at kernels
//   FAIRWAY_DRIVER_HANG        a path: while the file exists, the making of contexts waits
#ifndef FAIRWAY_TESTS_GPU_DRIVER_DRIVER_H_
#define FAIRWAY_TESTS_GPU_DRIVER_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#define FAIRWAY_EXPORT extern "C" __attribute__((visibility("default")))

namespace fairway_driver {

// CUresult, by the numbers of the driver API.
enum Result : int {
  kOk = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kNoSymbol = 302,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kOutOfResources = 701,
  kNotSupported = 801,
};

using DevicePointer = uint64_t;

// The address of device memory in this process; an address of the host is returned unchanged.
char* HostOf(DevicePointer pointer);

struct Context {
  int device = 0;
  bool active = false;
};

int64_t Setting(const char* variable, int64_t otherwise);
int Gpus();
int64_t MemoryOfGpu();
// The calling thread's context; without one, that of the first GPU.
Context& Current();
Context* ContextOf(int device);

// Whether the file that the variable names exists. WhileThere waits until it does not.
bool There(const char* variable);
void WhileThere(const char* variable);
// The number in the file that the variable names; -1: there is no such file.
int NumberIn(const char* variable);

// Appends "PID: LINE" to the log. Lines are whole; those of a stream are in the order of its work:
//   give kernel NAME gpu D stream S     it was given to the stream
//   give graph NODES gpu D stream S     so are its nodes, in the lines that follow
//   kernel NAME gpu D stream S          the stream has come to it
//   refuse kernel NAME gpu D stream S   it was not launched
//   copy to|from|within BYTES gpu D stream S
//   missing NAME                        the plugin asked for something that is not here
void Note(const std::string& line);

// Sets the sticky fault.
void Lose();
Result State();

// One work queue and its thread. Handles 0, 1 and 2 are the default stream of the current GPU.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual int device() const = 0;
  virtual std::string name() const = 0;  // "gpu D stream S"
  // Queues work that is dropped after a fault.
  void Do(std::function<void()> work);
  // Queues work that is done in any case.
  virtual void DoAlways(std::function<void()> work) = 0;
  // Waits until all earlier work is done.
  virtual void Wait() = 0;
};
Stream& StreamOf(void* handle);
void WaitForDevice(int device);

// Whether [pointer, pointer + bytes) is mapped device memory, or memory of the host.
bool Reachable(DevicePointer pointer, size_t bytes);
Result Allocate(DevicePointer* out, size_t bytes, int device);

// Put a copy, and a launch of a kernel, into a stream.
Result Copy(void* stream, DevicePointer to, DevicePointer from, size_t bytes);
Result Launch(void* stream, void* kernel);

// Sets a result: for one-line functions.
template <typename T, typename V>
Result Give(T* out, V value) {
  *out = static_cast<T>(value);
  return kOk;
}

}  // namespace fairway_driver

#endif  // FAIRWAY_TESTS_GPU_DRIVER_DRIVER_H_
