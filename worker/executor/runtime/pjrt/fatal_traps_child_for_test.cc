// SPDX-License-Identifier: Apache-2.0
// The child of fatal_traps_test: does things that may end a process. Exit code 0: everything
// worked; 2: a check of its own failed (text on standard error); a signal: the plugin ended it.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "pjrt_c_api.h"
#include "worker/compiler/pjrt_compiler.h"
#include "worker/executor/runtime/pjrt/call.h"
#include "worker/executor/runtime/pjrt/client.h"
#include "worker/executor/runtime/pjrt/executable.h"
#include "worker/executor/runtime/pjrt/pjrt_runtime.h"
#include "worker/executor/runtime/pjrt/test_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway {
namespace {

constexpr int kDevices = 8;

[[noreturn]] void Fail(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::_Exit(2);
}

template <typename T>
T Check(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(Describe(value.status()));
  return *std::move(value);
}

struct World {
  std::shared_ptr<pjrt::Client> client;
  std::unique_ptr<Compiler> compiler;
  std::unique_ptr<PjrtRuntime> runtime;

  explicit World(int spare_devices) {
    PjrtConfig config = test::ConfigOfTests(kDevices);
    config.spare_devices = spare_devices;
    client = Check(pjrt::Client::Create(config));
    compiler = MakePjrtCompiler(client);
    runtime = MakePjrtRuntime(client);
  }
  std::shared_ptr<LoadedExecutable> Load(const std::string& program,
                                         const v1::CompileOptions& options) {
    return Check(runtime->Load(Check(compiler->Compile(program, options)).code, {}));
  }
};

// Eight floats, one on each device.
struct Shards {
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  LaunchRequest request;

  Shards(World& world, LoadedExecutable* psum) {
    request.executable = psum;
    for (int d = 0; d < kDevices; ++d) {
      const std::vector<float> value = {static_cast<float>(d)};
      buffers.push_back(
          Check(world.runtime->FromHost(test::BlobOf(value), DType::kF32, Shape{{1}}, d, "")));
      request.devices.push_back(d);
      request.inputs.push_back({buffers.back().get()});
    }
  }
};

void CheckSum(World& world, LaunchResult& result) {
  for (auto& outputs : result.outputs) {
    if (Check(test::ReadAll<float>(*world.runtime, *outputs[0])) != std::vector<float>{28}) {
      Fail("a wrong sum");
    }
  }
}

// Programs of one device that take minutes, one on each of `busy` devices; then a gang of all
// devices. The process ends before they do.
void LongProgramsBesideAGang(int spare_devices, int busy) {
  World world(spare_devices);
  auto loop = world.Load(test::LongLoop(1'000'000), test::Portable());
  auto psum = world.Load(test::Psum(kDevices), test::Spmd(kDevices));
  std::vector<std::unique_ptr<DeviceBuffer>> inputs;
  std::vector<test::Running> singles;
  for (int d = 0; d < busy; ++d) {
    const std::vector<float> zeros(256 * 256, 0);
    inputs.push_back(
        Check(world.runtime->FromHost(test::BlobOf(zeros), DType::kF32, Shape{{256, 256}}, d, "")));
    LaunchRequest request;
    request.executable = loop.get();
    request.devices = {d};
    request.inputs = {{inputs.back().get()}};
    singles.push_back(Check(test::Start(*world.runtime, request)));
    if (singles.back().done.HasCome()) Fail("the long program ran inside Launch");
  }
  Shards shards(world, psum.get());
  shards.request.launch_id = 1;
  test::Running gang = Check(test::Start(*world.runtime, shards.request));
  if (absl::Status status = gang.done.Get(); !status.ok()) Fail(Describe(status));
  // This is the purpose of spare threads: the gang did not wait for the long programs.
  if (spare_devices != 0) {
    for (test::Running& single : singles) {
      if (single.done.HasCome()) Fail("a long program was over before the gang; make it longer");
    }
  }
  CheckSum(world, gang.result);
  std::fprintf(stderr, "gang done\n");
  std::_Exit(0);  // the long programs are still running
}

// Starts a gang on 7 of its 8 devices, bypassing the runtime, which would refuse it.
void StuckGang() {
  World world(-1);
  auto psum = world.Load(test::Psum(kDevices), test::Spmd(kDevices));
  const PJRT_Api* api = world.client->api();
  std::vector<std::thread> members;
  for (int d = 0; d + 1 < kDevices; ++d) {
    members.emplace_back([&, d] {
      const float value = 1;
      pjrt::Padded<PJRT_Client_BufferFromHostBuffer_Args> put;
      const int64_t one = 1;
      put->client = world.client->raw();
      put->data = &value;
      put->type = PJRT_Buffer_Type_F32;
      put->dims = &one;
      put->num_dims = 1;
      put->host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
      put->device = world.client->device(d);
      if (!pjrt::Call(api, api->PJRT_Client_BufferFromHostBuffer, put).ok()) Fail("put");
      PJRT_Buffer* arguments[] = {put->buffer};
      PJRT_Buffer* const* argument_lists[] = {arguments};
      PJRT_Buffer* outputs[1] = {nullptr};
      PJRT_Buffer** const output_lists[] = {outputs};
      PJRT_Event* events[1] = {nullptr};
      pjrt::Padded<PJRT_ExecuteOptions> options;
      options->launch_id = 7;
      pjrt::Padded<PJRT_LoadedExecutable_Execute_Args> args;
      args->executable = static_cast<pjrt::Executable&>(*psum).program().raw();
      args->options = &options.args;
      args->argument_lists = argument_lists;
      args->num_devices = 1;
      args->num_args = 1;
      args->output_lists = output_lists;
      args->device_complete_events = events;
      args->execute_device = world.client->device(d);
      if (!pjrt::Call(api, api->PJRT_LoadedExecutable_Execute, args).ok()) Fail("execute");
      (void)pjrt::Await(api, events[0]);
    });
  }
  for (std::thread& member : members) member.join();
  Fail("seven of eight devices finished a sum over eight");
}

// A thousand gangs in the queue while every device computes for seconds.
void ManyGangsBesideLongPrograms() {
  World world(-1);
  auto loop = world.Load(test::LongLoop(400), test::Portable());
  auto psum = world.Load(test::Psum(kDevices), test::Spmd(kDevices));
  std::vector<std::unique_ptr<DeviceBuffer>> inputs;
  std::vector<test::Running> running;
  std::thread singles([&] {
    for (int d = 0; d < kDevices; ++d) {
      const std::vector<float> zeros(256 * 256, 0);
      inputs.push_back(Check(
          world.runtime->FromHost(test::BlobOf(zeros), DType::kF32, Shape{{256, 256}}, d, "")));
      LaunchRequest request;
      request.executable = loop.get();
      request.devices = {d};
      request.inputs = {{inputs.back().get()}};
      running.push_back(Check(test::Start(*world.runtime, request)));
    }
  });
  Shards shards(world, psum.get());
  std::vector<test::Running> gangs;
  for (int i = 1; i <= 1000; ++i) {
    shards.request.launch_id = i;
    gangs.push_back(Check(test::Start(*world.runtime, shards.request)));
  }
  singles.join();
  for (test::Running& gang : gangs) {
    if (absl::Status status = gang.done.Get(); !status.ok()) Fail(Describe(status));
    CheckSum(world, gang.result);
  }
  std::_Exit(0);
}

}  // namespace
}  // namespace fairway

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "compile") {
    fairway::World(-1).Load(fairway::test::Add("4xf32"), fairway::test::OneDevice());
    return 0;
  }
  if (what == "stuck") fairway::StuckGang();
  if (what == "one-long") fairway::LongProgramsBesideAGang(-1, 1);
  if (what == "all-long") fairway::LongProgramsBesideAGang(-1, fairway::kDevices);
  if (what == "no-spare") fairway::LongProgramsBesideAGang(0, 1);
  if (what == "many") fairway::ManyGangsBesideLongPrograms();
  std::fprintf(stderr, "unknown case %s\n", what.c_str());
  return 3;
}
