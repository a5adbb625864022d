// SPDX-License-Identifier: Apache-2.0
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_FAKE_FAKE_PROGRAM_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_FAKE_FAKE_PROGRAM_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/dtype.h"
#include "core/shape.h"

namespace fairway {

// What the fake runtime runs: one operation with a signature, written as text, one item per line:
//   fake allreduce               the operation, below
//   name step                    for logs and metadata; the operation's name when missing
//   devices 0,1,2,3              where it runs, in order; "devices any": one device, chosen at
//   launch in f32[4,2] donated          a parameter on one device; "donated": taken over in
//   f32[4,2] tiles 4,1        cut from a global f32[16,2]; without tiles each device has the whole
//   out f32[4,2]                 a result
//   separable                    the launches of a gang may be given inputs still to come
//   brief                        a thread that must not be held up may launch it
//   error 14 island lost         what operation fail ends with: a status code and a text
// Operations: identity (output i is input i), add (output 0 is the sum of all inputs), allreduce
// (output 0 is the sum of input 0 over the devices), fail, block (as identity, but ends only when
// told to). Sums are for f32 and s32.
struct FakeProgram {
  struct Value {
    DType dtype = DType::kInvalid;
    Shape shape;
    bool donated = false;
    std::vector<int64_t> tiles;
  };

  std::string op;
  std::string name;
  std::vector<int> devices;  // empty: any one
  std::vector<Value> inputs;
  std::vector<Value> outputs;
  bool separable = false;
  bool brief = false;
  absl::Status error;

  std::string ToText() const;
  // INVALID_ARGUMENT: not such a text, or a signature that does not fit the operation.
  static absl::StatusOr<FakeProgram> Parse(std::string_view text);
};

}  // namespace fairway

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_FAKE_FAKE_PROGRAM_H_
