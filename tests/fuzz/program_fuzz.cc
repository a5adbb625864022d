// SPDX-License-Identifier: Apache-2.0
// What our own code reads of a program: its name and version (the supervisor and the compile
// process), and the optimized HLO that the plugin gives back for it.
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz.h"
#include "worker/compiler/check_custom_calls.h"
#include "worker/compiler/check_gpu_calls.h"
#include "worker/compiler/check_packed_types.h"
#include "worker/compiler/compile_failure.h"
#include "worker/compiler/metadata.h"
#include "worker/compiler/pjrt_compiler.h"
#include "xla/hlo_subset.pb.h"

namespace fairway::fuzz {
namespace {

enum Kind : uint8_t {
  kHlo = 0,         // HloModuleWithConfig
  kHloTupled = 1,   // the same, with its arguments in one tuple
  kArtifact = 2,    // any bytes
  kAttributes = 3,  // text of an MLIR attribute dictionary
};

void OnHlo(std::string_view bytes, bool tupled) {
  hlo::HloModuleWithConfig module;
  if (!module.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  (void)CheckCustomCalls(module.hlo_module());
  (void)CheckPackedTypes(module.hlo_module());
  (void)CheckGpuCode(module.hlo_module());
  v1::ExecutableMetadata metadata;
  const absl::Status status = DescribeSignature(module, tupled, metadata);
  const std::string text = HloText(module.hlo_module(), 1 << 16);
  FUZZ_CHECK(text.size() < (1 << 16) + 100);
  if (status.ok())
    FUZZ_CHECK(v1::ExecutableMetadata().ParseFromString(metadata.SerializeAsString()));
}

}  // namespace

const google::protobuf::Message* Prototype(uint8_t kind) {
  return kind <= kHloTupled ? &hlo::HloModuleWithConfig::default_instance() : nullptr;
}

}  // namespace fairway::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fairway;
  using namespace fairway::fuzz;
  for (const Record& record : Cut({reinterpret_cast<const char*>(data), size})) {
    switch (record.kind) {
      case kHlo:
      case kHloTupled:
        OnHlo(record.payload, record.kind == kHloTupled);
        break;
      case kArtifact:
        (void)ProgramTitle(record.payload);
        (void)ArtifactVersion(record.payload);
        (void)CheckGpuProgram(record.payload);
        break;
      default:
        (void)ParseAttributes(record.payload);
    }
  }
  return 0;
}
