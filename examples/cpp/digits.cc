// SPDX-License-Identifier: Apache-2.0
// Trains the pipeline of ../digits_pipeline.py without Python: the network that reads handwritten
// digits, cut in two stages on two slices of four devices each. A training step over four
// microbatches is one program, run by one call; only activations and their gradients cross.
//
//   JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=4
//     python export_digits.py DIR                       (once; writes StableHLO, weights and data)
//   fairway up --islands 2 --devices 4
//   digits 127.0.0.1:29000 DIR [STEPS]
#include <fairway/fairway.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

using fairway::Array;
using fairway::DType;
using fairway::Executable;
using fairway::HostBytes;
using fairway::ProgramBuilder;
using fairway::Session;
using fairway::Shape;
using fairway::Sharding;
using Type = ProgramBuilder::Type;
using Values = ProgramBuilder::Values;

constexpr int kDevices = 4;       // of a stage
constexpr int kMicrobatches = 4;  // of a step
constexpr size_t kRows = 64;      // of a microbatch
constexpr size_t kPixels = 64;
constexpr size_t kAhead = 8;  // steps that may be in flight before a loss is looked at

[[noreturn]] void Die(const std::string& why) {
  std::cerr << why << "\n";
  std::exit(1);
}

template <typename T>
T Value(fairway::Result<T> result) {
  if (!result.ok()) Die(result.status().ToString());
  return std::move(result).value();
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) Die("cannot read " + path + "; export_digits.py writes it");
  return {std::istreambuf_iterator<char>(file), {}};
}

// What export_digits.py wrote.
struct Exported {
  struct Function {
    std::string code;
    std::vector<Type> parameters, results;
  };
  struct HostArray {
    Type type;
    std::string bytes;
  };
  std::map<std::string, Function> functions;
  std::map<std::string, HostArray> arrays;
};

std::vector<int64_t> Numbers(const std::string& text) {
  std::vector<int64_t> out;
  std::istringstream in(text == "-" ? "" : text);
  for (std::string number; std::getline(in, number, ',');) out.push_back(std::stoll(number));
  return out;
}

Type ReadType(std::istream& in, bool tiles) {
  std::string dtype, dims, cut = "-";
  in >> dtype >> dims;
  if (tiles) in >> cut;
  return {dtype == "f32" ? DType::kF32 : DType::kS32, Numbers(dims), Numbers(cut)};
}

Exported Read(const std::string& folder) {
  Exported out;
  std::istringstream in(Contents(folder + "/manifest"));
  for (std::string kind, name; in >> kind >> name;) {
    if (kind == "array") {
      out.arrays[name] = {ReadType(in, false), Contents(folder + "/" + name + ".bin")};
      continue;
    }
    size_t parameters = 0, results = 0;
    in >> parameters >> results;
    Exported::Function& function = out.functions[name];
    function.code = Contents(folder + "/" + name + ".mlir.bc");
    while (function.parameters.size() < parameters)
      function.parameters.push_back(ReadType(in, true));
    while (function.results.size() < results) function.results.push_back(ReadType(in, true));
  }
  return out;
}

// A program of both stages: functions are added when they are first called.
class Stages {
 public:
  Stages(const Exported& exported, const std::string& name)
      : exported_(exported),
        program(name),
        one(program.AddSlice("stage 1", kDevices)),
        two(program.AddSlice("stage 2", kDevices)) {}

  Values Call(const std::string& name, ProgramBuilder::Slice slice, const Values& inputs) {
    const auto [at, fresh] = added_.try_emplace(name);
    const Exported::Function& function = exported_.functions.at(name);
    if (fresh)
      at->second = program.AddStableHlo(name, function.code, kDevices, function.parameters,
                                        function.results);
    return program.At(name).Call(at->second, slice, inputs);
  }
  // Arguments like the parameters of `name` from `first` on.
  Values Arguments(const std::string& name, size_t first, size_t count, ProgramBuilder::Slice slice,
                   bool donated) {
    Values out;
    for (size_t i = first; i < first + count; ++i)
      out.push_back(program.Argument(slice, exported_.functions.at(name).parameters[i], donated));
    return out;
  }
  // Zeros like those.
  Values Zeros(const std::string& name, size_t first, size_t count, ProgramBuilder::Slice slice) {
    Values out;
    for (size_t i = first; i < first + count; ++i) {
      const Type& type = exported_.functions.at(name).parameters[i];
      const int64_t size =
          std::accumulate(type.shape.begin(), type.shape.end(), int64_t{4}, std::multiplies<>());
      out.push_back(program.Constant(slice, type, std::string(static_cast<size_t>(size), '\0')));
    }
    return out;
  }
  Executable Bind(Session& session) {
    std::vector<std::vector<int>> devices;
    for (int s = 0; s < 2; ++s) {
      const std::vector<int>& all = session.slices()[s].devices;
      devices.emplace_back(all.begin(), all.begin() + kDevices);
    }
    return Value(session.Bind(program, devices).Get());
  }

 private:
  const Exported& exported_;
  std::map<std::string, ProgramBuilder::Computation> added_;

 public:
  ProgramBuilder program;
  const ProgramBuilder::Slice one, two;
};

Values Joined(std::initializer_list<Values> parts) {
  Values out;
  for (const Values& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}
Values Part(const Values& all, size_t first, size_t count) {
  return {all.begin() + static_cast<long>(first), all.begin() + static_cast<long>(first + count)};
}

// (weights and momenta of stage 1, of stage 2, images and labels of each microbatch)
//   -> (the same weights and momenta after the step, mean loss)
Executable TrainingStep(Session& session, const Exported& exported) {
  Stages s(exported, "training step");
  const Values state1 = s.Arguments("update1", 0, 4, s.one, /*donated=*/true);
  const Values state2 = s.Arguments("update2", 0, 8, s.two, /*donated=*/true);
  const Values weights1 = Part(state1, 0, 2), weights2 = Part(state2, 0, 4);
  Values sums1 = s.Zeros("backward1", 2, 2, s.one), sums2 = s.Zeros("backward2", 4, 5, s.two);
  for (int m = 0; m < kMicrobatches; ++m) {
    const Values images = s.Arguments("forward1", 2, 1, s.one, false);
    const Values labels = s.Arguments("backward2", 10, 1, s.two, false);
    // Activations go to stage 2 and gradients come back where the program says, and nothing more.
    const Values hidden = s.Call("forward1", s.one, Joined({weights1, images}));
    const Values back = s.Call("backward2", s.two, Joined({weights2, sums2, hidden, labels}));
    sums2 = Part(back, 0, 5);
    sums1 = s.Call("backward1", s.one, Joined({weights1, sums1, images, Part(back, 5, 1)}));
  }
  for (const auto& value : s.Call("update1", s.one, Joined({state1, sums1})))
    s.program.Result(value);
  for (const auto& value : s.Call("update2", s.two, Joined({state2, Part(sums2, 0, 4)})))
    s.program.Result(value);
  s.program.Result(s.Call("mean", s.two, Part(sums2, 4, 1))[0]);
  return s.Bind(session);
}

// (weights of both stages, test images) -> digits
Executable Prediction(Session& session, const Exported& exported) {
  Stages s(exported, "prediction");
  const Values one = s.Arguments("forward_test", 0, 3, s.one, false);
  const Values two = s.Arguments("predict_test", 0, 4, s.two, false);
  const Values hidden = s.Call("forward_test", s.one, one);
  s.program.Result(s.Call("predict_test", s.two, Joined({two, hidden}))[0]);
  return s.Bind(session);
}

Array PutWhole(Session& session, const Exported::HostArray& array, const Sharding& sharding) {
  return session.Put(HostBytes{array.bytes.data(), array.type.dtype, array.type.shape}, sharding);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) Die("usage: digits ADDRESS DIR [STEPS]");
  const Exported exported = Read(argv[2]);
  const int steps = argc > 3 ? std::atoi(argv[3]) : 200;
  Session session = Value(fairway::Connect(argv[1]));
  if (session.slices().size() < 2 || session.slices()[0].devices.size() < kDevices ||
      session.slices()[1].devices.size() < kDevices)
    Die("this example needs two slices of four devices");
  const Executable step = TrainingStep(session, exported);

  // Weights and momenta; they stay on the devices, each step takes over those of the one before.
  std::vector<Array> state;
  for (const auto& names : {std::vector<std::string>{"w1", "b1"}, {"w2", "b2", "w3", "b3"}}) {
    for (const bool momenta : {false, true}) {
      for (const std::string& name : names) {
        Exported::HostArray array = exported.arrays.at(name);
        if (momenta) std::fill(array.bytes.begin(), array.bytes.end(), '\0');
        state.push_back(PutWhole(session, array, step.parameters()[state.size()].sharding));
      }
    }
  }

  const std::string& images = exported.arrays.at("train_images").bytes;
  const std::string& labels = exported.arrays.at("train_labels").bytes;
  std::vector<size_t> order(labels.size() / sizeof(int32_t));
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(1);
  size_t next = order.size();
  std::deque<Array> losses;
  const auto look = [&] {
    const auto loss = Value(losses.front().ToHost().Get());
    losses.pop_front();
    return loss.values<float>()[0];
  };
  float loss = 0;
  for (int i = 0; i < steps; ++i) {
    if (next + kMicrobatches * kRows > order.size()) {
      std::shuffle(order.begin(), order.end(), random);
      next = 0;
    }
    std::vector<Array> arguments = state;
    for (int m = 0; m < kMicrobatches; ++m) {
      std::vector<float> x(kRows * kPixels);
      std::vector<int32_t> y(kRows);
      for (size_t r = 0; r < kRows; ++r, ++next) {
        std::memcpy(&x[r * kPixels], &images[order[next] * kPixels * sizeof(float)],
                    kPixels * sizeof(float));
        std::memcpy(&y[r], &labels[order[next] * sizeof(int32_t)], sizeof(int32_t));
      }
      const size_t at = arguments.size();
      arguments.push_back(session.Put(x, {kRows, kPixels}, step.parameters()[at].sharding));
      arguments.push_back(session.Put(y, {kRows}, step.parameters()[at + 1].sharding));
    }
    // Nothing here waits: the next step is on its way before this one has begun.
    const std::vector<Array> results = step.Call(arguments);
    state.assign(results.begin(), results.end() - 1);
    losses.push_back(results.back());
    if (losses.size() > kAhead) loss = look();
    if (i % 50 == 49) std::cout << "step " << i + 1 << ": loss " << loss << std::endl;
  }
  while (!losses.empty()) loss = look();

  const Executable predict = Prediction(session, exported);
  std::vector<Array> arguments = {state[0], state[1]};
  arguments.push_back(
      PutWhole(session, exported.arrays.at("test_images"), predict.parameters()[2].sharding));
  arguments.insert(arguments.end(), state.begin() + 4, state.begin() + 8);
  const auto digits = Value(predict.Call(arguments)[0].ToHost().Get());
  const std::string& truth = exported.arrays.at("test_labels").bytes;
  int right = 0;
  for (size_t i = 0; i < digits.values<int32_t>().size(); ++i)
    right += std::memcmp(&digits.values<int32_t>()[i], &truth[4 * i], 4) == 0 ? 1 : 0;
  std::cout << "last loss: " << loss << "\ntest accuracy: "
            << static_cast<double>(right) / static_cast<double>(truth.size() / 4) << "\n";
}
