// SPDX-License-Identifier: Apache-2.0
// Our own code's readings of a program: its name and version (in the supervisor and the
// compile process), the rewriting for an older plugin, and the optimized HLO that the plugin
// returns.
#include <map>
#include <string>
#include <string_view>

#include "fairway/v1/compiler.pb.h"
#include "tests/fuzz/fuzz.h"
#include "worker/compiler/check_custom_calls.h"
#include "worker/compiler/check_gpu_calls.h"
#include "worker/compiler/check_packed_types.h"
#include "worker/compiler/compile_failure.h"
#include "worker/compiler/metadata.h"
#include "worker/compiler/mlir_bytecode.h"
#include "worker/compiler/older_forms.h"
#include "worker/compiler/pjrt_compiler.h"
#include "worker/compiler/result_cuts.h"
#include "worker/compiler/rewrite.h"
#include "xla/hlo_subset.pb.h"

namespace fairway::fuzz {
namespace {

enum Kind : uint8_t {
  kHlo = 0,         // HloModuleWithConfig
  kHloTupled = 1,   // the same, with its arguments in one tuple
  kArtifact = 2,    // any bytes
  kAttributes = 3,  // the text of an MLIR attribute dictionary
  kRewritten = 4,  // byte: devices, 1 to 4; byte: bit 0 = a CPU plugin, bit 1 = the first result is
                   // to be replicated; then the program
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

// Checks it as PjrtCompiler does before the plugin gets the program.
void OnRewritten(Reader in) {
  const int devices = 1 + in.Byte() % 4;
  const uint8_t flags = in.Byte();
  const std::string program(in.Rest());
  v1::CompileOptions options;
  options.set_num_replicas(1);
  options.set_num_partitions(devices);
  options.set_use_spmd_partitioning(true);
  options.set_use_shardy_partitioner(true);
  for (int device = 0; device < devices; ++device) options.add_devices(device);

  const std::string older = InOlderForms(program);
  FUZZ_CHECK(InOlderForms(older) == older);
  const bool readable = mlir::Module::Read(program).ok();
  FUZZ_CHECK(readable ? mlir::Module::Read(older).ok() : older == program);

  v1::ExecutableMetadata metadata;
  metadata.set_num_devices(devices);
  v1::ValueSpec& output = *metadata.add_outputs();
  output.add_global_dims(10);
  output.add_shard_dims(5);
  std::map<size_t, size_t> replicated = ResultsCutByPartsOfAxes(older, metadata);
  if ((flags & 2) != 0) replicated[0] = 1;
  const auto rewritten = RewriteForPlugin(older, options, (flags & 1) != 0, replicated);
  if (rewritten.ok() && readable) FUZZ_CHECK(mlir::Module::Read(*rewritten).ok());
  (void)UnpinnedResults(older, options);
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
      case kRewritten:
        OnRewritten(Reader(record.payload));
        break;
      default:
        (void)ParseAttributes(record.payload);
    }
  }
  return 0;
}
