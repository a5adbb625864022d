// SPDX-License-Identifier: Apache-2.0
// Dataflow programs, which JAX carries as plugin programs (docs/design/0043-traced-programs.md). To
// the client each is an executable like any other, over all devices that it uses.
#include <set>
#include <utility>

#include "controller/cluster/placed_program.h"
#include "controller/cluster/programs.h"
#include "controller/cluster/sessions.h"
#include "controller/ifrt/compile_request.h"
#include "controller/ifrt/session.h"
#include "wire/ifrt_values.h"

namespace fairway {
namespace {

// Shardings are left out: each argument and result lies on devices of its own, which the client's
// HloSharding cannot express.
void DescribeDataflow(const ExecutableSignature& signature,
                      const std::vector<VirtualDevice>& devices,
                      xla::ifrt::proxy::LoadedExecutableMetadataResponse* out) {
  auto* donated = out->mutable_donated_input_indices();
  auto* parameters = out->mutable_parameter_layouts_list();
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    DenseLayoutToProto(static_cast<int>(signature.parameters[i].shape.dims.size()),
                       parameters->add_layouts());
    if (signature.donated[i]) donated->add_donated_input_indices(static_cast<uint32_t>(i));
  }
  auto* outputs = out->mutable_output_layouts_list();
  auto* kinds = out->mutable_output_memory_kinds()->add_memory_kind_lists();
  for (const ArraySpec& output : signature.outputs) {
    DenseLayoutToProto(static_cast<int>(output.shape.dims.size()), outputs->add_layouts());
    const std::string& kind = output.sharding.memory_kind();
    kinds->add_memory_kinds(kind.empty() ? devices[output.sharding.devices()[0]].memory_kinds[0]
                                         : kind);
  }
  StatusToProto(Error(absl::StatusCode::kUnimplemented, "not known of a dataflow program"),
                out->mutable_compiled_memory_stats_error());
}

}  // namespace

void IfrtSession::BindDataflow(Call call, xla::ifrt::proxy::CompileRequest& request) {
  const size_t size = request.program().data().size();
  auto taken = std::make_shared<xla::ifrt::proxy::CompileRequest>(std::move(request));
  struct Told {
    std::vector<int32_t> devices;  // all devices that it uses
    std::string name;
  };
  auto told = std::make_shared<Told>();
  const auto parse = [taken = std::move(taken), told]() -> absl::StatusOr<v1::BoundProgram> {
    absl::StatusOr<v1::BoundProgram> program = ParseDataflow(*taken);
    taken->Clear();
    if (!program.ok()) return program;
    std::set<int32_t> used;
    for (const auto& slice : program->slices())
      used.insert(slice.devices().begin(), slice.devices().end());
    told->devices.assign(used.begin(), used.end());
    return program;
  };
  programs_.Bind(
      {0, parse, [told](const ExecutableSignature& signature) { told->name = signature.name; }},
      [this, alive = alive_, call = std::move(call), pending = compiling_.Add(size),
       told](const absl::StatusOr<uint64_t>& handle) {
        if (!*alive) return;
        auto response = std::make_unique<Response>();
        if (handle.ok()) FillBound(*handle, told->name, std::move(told->devices), *response);
        Answer(call, handle.status(), std::move(response));
      });
}

void IfrtSession::FillBound(uint64_t handle, const std::string& name, std::vector<int32_t> devices,
                            Response& response) {
  auto* out = response.mutable_compile_response();
  out->set_loaded_executable_handle(handle);
  out->set_name(ValidUtf8(name));
  out->set_num_devices(static_cast<int32_t>(devices.size()));
  out->mutable_device_ids()->Assign(devices.begin(), devices.end());
  out->mutable_addressable_device_ids()->Assign(devices.begin(), devices.end());
  out->set_fingerprint_value(name);
  Future ready;
  ready.status = absl::OkStatus();
  out->set_ready_future_handle(MakeFuture(std::move(ready)));
  Loaded& loaded = loaded_[handle];
  loaded.devices = std::move(devices);
  loaded.dataflow = true;
}

void IfrtSession::DataflowMetadata(Call call, uint64_t handle) {
  auto response = std::make_unique<Response>();
  auto program = cluster_->programs().Find(session_, handle);
  if (!program.ok()) return Answer(std::move(call), program.status(), std::move(response));
  const size_t values = CallValues(**program);
  Describe(
      std::move(call), values,
      [program = *std::move(program),
       devices = cluster_->sessions().SharedDevices(session_)](Response& out) {
        DescribeDataflow(SignatureOf(*program), devices.get(),
                         out.mutable_loaded_executable_metadata_response());
        return absl::OkStatus();
      },
      std::move(response));
}

}  // namespace fairway
