// SPDX-License-Identifier: Apache-2.0
// Dataflow programs: many computations on several slices, run by one call (Pathways, MLSys 2022,
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

// Builds a program; Session::Bind gives it devices. Nothing is checked before that: errors come
// with the answer, and name the node. A value; not thread-safe.
class ProgramBuilder {
 public:
  // A place of the program, of `devices` devices.
  struct Slice {
    int number = 0;
    int devices = 1;
  };
  // Of this program only; inside a body, only values of that body.
  struct Value {
    int node = -1;
    int output = 0;
  };
  using Values = std::vector<Value>;
  // A value's type without its place: `tiles` as in Sharding, over the devices of a slice.
  struct Type {
    DType dtype = DType::kInvalid;
    Shape shape;
    std::vector<int64_t> tiles = {};
  };
  // Of this program, and of copies made of it since.
  struct Computation {
    int number = 0;
    int results = 0;       // how many a call makes
    uint64_t builder = 0;  // 0: none
  };
  using Body = std::function<Values(const Values& arguments)>;

  FAIRWAY_API explicit ProgramBuilder(std::string name);
  FAIRWAY_API ~ProgramBuilder();
  FAIRWAY_API ProgramBuilder(const ProgramBuilder& other);
  FAIRWAY_API ProgramBuilder& operator=(const ProgramBuilder& other);

  FAIRWAY_API Slice AddSlice(std::string name, int devices);

  // Code that calls run, sent once however many do. `results`: what it makes, on `devices` devices.
  FAIRWAY_API Computation AddNative(const NativeProgram& program, int devices,
                                    std::vector<Type> results);
  // A portable artifact, as jax.export makes it, of as many partitions as devices.
  FAIRWAY_API Computation AddStableHlo(std::string name, std::string_view artifact, int devices,
                                       std::vector<Type> parameters, std::vector<Type> results,
                                       bool shardy = true);

  // Names the next node, and where it stands in the user's code, for messages.
  FAIRWAY_API ProgramBuilder& At(std::string name, std::string source = "");

  // The next argument of the program. Donated: the program takes the array over.
  FAIRWAY_API Value Argument(Slice slice, Type type, bool donated = false);
  // Put on its devices when the program is bound. `bytes`: of the whole array, dense.
  FAIRWAY_API Value Constant(Slice slice, Type type, std::string_view bytes);
  // Inputs that lie on another slice, or are cut in another way, are moved.
  FAIRWAY_API Values Call(Computation computation, Slice slice, const Values& inputs);
  FAIRWAY_API Value Transfer(Value input, Slice slice, std::vector<int64_t> tiles = {});
  // values = body(values), `count` times, without a word to the client.
  FAIRWAY_API Values Loop(int64_t count, const Values& inputs, const Body& body);
  // One of the bodies, by a scalar that the program computes: below 0 the first, too high the last.
  // All of them must be computations on one slice, and make values of the same types.
  FAIRWAY_API Values Branch(Value index, const Values& inputs, const std::vector<Body>& bodies);
  // The next result of the program.
  FAIRWAY_API void Result(Value value);

 private:
  friend class Access;
  struct State;
  int NewBody(const Values& inputs, const Body& body);
  std::unique_ptr<State> state_;
};

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_INCLUDE_FAIRWAY_PROGRAM_H_
