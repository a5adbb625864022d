// SPDX-License-Identifier: Apache-2.0
// The first program: connect, put an array, compile, run, get. Works on a cluster without any
// plugin: `fairway up --runtime host`, then `first 127.0.0.1:29000`.
#include <fairway/fairway.h>

#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  auto connected = fairway::Connect(argc > 1 ? argv[1] : "127.0.0.1:29000");
  if (!connected.ok()) {
    std::cerr << connected.status().ToString() << "\n";
    return 1;
  }
  fairway::Session& session = *connected;
  for (const fairway::Slice& slice : session.slices())
    std::cout << "slice " << slice.name << ": " << slice.devices.size() << " devices, runtime "
              << slice.runtime << "\n";

  // y = 2 x + x, built of kernels. Programs of JAX go to CompileStableHlo, on slices of pjrt.
  fairway::NativeProgram triple("triple");
  const auto x = triple.Parameter(fairway::DType::kF32, {4});
  triple.Result(triple.Add({triple.Scale(x, 2.0), x}));
  const auto program = session.Compile(triple, {0}).Get();
  if (!program.ok()) {
    std::cerr << program.status().ToString() << "\n";
    return 1;
  }

  // Nothing here waits: arrays are futures, and calls are made with arrays that are yet to come.
  fairway::Array array =
      session.Put(std::vector<float>{1, 2, 3, 4}, {4}, fairway::Sharding::Single(0));
  for (int i = 0; i < 3; ++i) array = program->Call({array})[0];

  const auto host = array.ToHost().Get();  // this does
  if (!host.ok()) {
    std::cerr << host.status().ToString() << "\n";
    return 1;
  }
  for (const float value : host->values<float>()) std::cout << value << " ";
  std::cout << "\n";
}
