// SPDX-License-Identifier: Apache-2.0
// A driver with three GPUs, whose UUIDs have the index in every byte.
#include <cstring>

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) {
  *count = 3;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index + 100;
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::memset(uuid, device - 100, 16);
  return 0;
}
}
