// SPDX-License-Identifier: Apache-2.0
// What a client's compile request means: parsed with our limited view of XLA's options and rebuilt,
// never forwarded.
#ifndef FAIRWAY_CONTROLLER_IFRT_COMPILE_REQUEST_H_
#define FAIRWAY_CONTROLLER_IFRT_COMPILE_REQUEST_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "fairway/v1/executable.pb.h"
#include "ifrt/messages.pb.h"

namespace fairway {

struct ParsedCompile {
  v1::CompileOptions options;    // without devices
  std::vector<int32_t> devices;  // virtual ids in the order of the device assignment, replica-major
};

// `num_devices`: of the session; bounds replicas and partitions.
// UNIMPLEMENTED: a kind of program or options we do not serve, a compiler option that names files,
// or host callbacks. INVALID_ARGUMENT:
// the options do not parse or contradict each other.
absl::StatusOr<ParsedCompile> ParseCompile(const xla::ifrt::proxy::CompileRequest& request,
                                           int num_devices);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_COMPILE_REQUEST_H_
