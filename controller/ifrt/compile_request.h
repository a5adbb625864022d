// SPDX-License-Identifier: Apache-2.0
// A client's compile request. It is parsed with our limited view of XLA's options and rebuilt,
// never forwarded.
#ifndef FAIRWAY_CONTROLLER_IFRT_COMPILE_REQUEST_H_
#define FAIRWAY_CONTROLLER_IFRT_COMPILE_REQUEST_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "fairway/v1/executable.pb.h"
#include "fairway/v1/program.pb.h"
#include "ifrt/messages.pb.h"

namespace fairway {

struct ParsedCompile {
  v1::CompileOptions options;    // without devices
  std::vector<int32_t> devices;  // virtual ids in the order of the device assignment, replica-major
};

// Whether the program is a text that JAX carries for us (make_plugin_program).
bool IsPluginProgram(const xla::ifrt::proxy::CompileRequest& request);

// The dataflow program in the request. UNIMPLEMENTED: it is not one of ours, or wants host
// callbacks. INVALID_ARGUMENT: it does not parse.
absl::StatusOr<v1::BoundProgram> ParseDataflow(const xla::ifrt::proxy::CompileRequest& request);

// `num_devices` of the session bounds replicas and partitions. UNIMPLEMENTED: the kind of
// program or an option is not served, a compiler option names files, outputs are bundled, or
// it wants host callbacks. INVALID_ARGUMENT: the options do not parse or contradict each
// other.
absl::StatusOr<ParsedCompile> ParseCompile(const xla::ifrt::proxy::CompileRequest& request,
                                           int num_devices);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_IFRT_COMPILE_REQUEST_H_
