// SPDX-License-Identifier: Apache-2.0
// Dataflow programs: one call runs many computations on several slices (Pathways, MLSys 2022,
// section 4; docs/design/0040-programs.md).
#ifndef FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_PROGRAM_H_
#define FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_PROGRAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/export.h"
#include "fairway/native.h"
#include "fairway/types.h"

namespace fairway::client {

// Builds a program; Session::Bind gives it devices. Checks nothing itself: Bind's answer has the
// errors, and names the node. A value; not thread-safe.
class ProgramBuilder {
 public:
  // A slice of the program: `devices` devices, not chosen yet.
  struct Slice {
    int number = 0;
    int devices = 1;
  };
  // Valid only in this program; inside a body, only values of that body.
  struct Value {
    int node = -1;
    int output = 0;
  };
  using Values = std::vector<Value>;
  // The type of a value without its slice. `tiles` as in Sharding, over the devices of a slice.
  struct Type {
    DType dtype = DType::kInvalid;
    Shape shape;
    std::vector<int64_t> tiles = {};
  };
  // Valid in this program, and in copies made of it later.
  struct Computation {
    int number = 0;
    int results = 0;       // the number of values that a call makes
    uint64_t builder = 0;  // 0: no computation
  };
  using Body = std::function<Values(const Values& arguments)>;

  FAIRWAY_API explicit ProgramBuilder(std::string name);
  FAIRWAY_API ~ProgramBuilder();
  FAIRWAY_API ProgramBuilder(const ProgramBuilder& other);
  FAIRWAY_API ProgramBuilder& operator=(const ProgramBuilder& other);

  FAIRWAY_API Slice AddSlice(std::string name, int devices);

  // Adds code that calls run. It is sent once, however many calls run it. `results`: the types of
  // its results, on `devices` devices.
  FAIRWAY_API Computation AddNative(const NativeProgram& program, int devices,
                                    std::vector<Type> results);
  // Adds a portable artifact, as jax.export makes it, with as many partitions as devices.
  FAIRWAY_API Computation AddStableHlo(std::string name, std::string_view artifact, int devices,
                                       std::vector<Type> parameters, std::vector<Type> results,
                                       bool shardy = true);

  // Names the next node and its place in the user's code, for messages.
  FAIRWAY_API ProgramBuilder& At(std::string name, std::string source = "");

  // Adds the next argument of the program. `donated`: the program takes the array over.
  FAIRWAY_API Value Argument(Slice slice, Type type, bool donated = false);
  // A constant, which is put on its devices when the program is bound. `bytes`: of the whole array,
  // dense.
  FAIRWAY_API Value Constant(Slice slice, Type type, std::string_view bytes);
  // Runs `computation` on `slice`. Inputs that lie on another slice, or are cut in another way, are
  // moved.
  FAIRWAY_API Values Call(Computation computation, Slice slice, const Values& inputs);
  FAIRWAY_API Value Transfer(Value input, Slice slice, std::vector<int64_t> tiles = {});
  // Runs values = body(values) `count` times, without the client.
  FAIRWAY_API Values Loop(int64_t count, const Values& inputs, const Body& body);
  // Runs one of the bodies, chosen by a scalar that the program computes: below 0 the first, too
  // high the last. Bodies may only have computations on one slice, and must make values of the same
  // types.
  FAIRWAY_API Values Branch(Value index, const Values& inputs, const std::vector<Body>& bodies);
  // Adds the next result of the program.
  FAIRWAY_API void Result(Value value);

 private:
  friend class Access;
  struct State;
  int NewBody(const Values& inputs, const Body& body);
  std::unique_ptr<State> state_;
};

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_PROGRAM_H_
