// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1: the plugin initializes it before it asks the driver for GPUs.
#include <cstdio>

#include "driver.h"

FAIRWAY_EXPORT int nvmlInit_v2() { return fairway_driver::kOk; }
FAIRWAY_EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "580.0.0");
  return fairway_driver::kOk;
}
