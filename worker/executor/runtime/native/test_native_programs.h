// SPDX-License-Identifier: Apache-2.0
// Native programs in protobuf text form, for tests.
#ifndef FAIRWAY_WORKER_EXECUTOR_RUNTIME_NATIVE_TEST_NATIVE_PROGRAMS_H_
#define FAIRWAY_WORKER_EXECUTOR_RUNTIME_NATIVE_TEST_NATIVE_PROGRAMS_H_

#include <string>

#include <fmt/format.h>
#include <google/protobuf/text_format.h>

#include "core/dtype.h"
#include "fairway/v1/native.pb.h"

namespace fairway::test {

inline v1::NativeProgram NativeFromText(const std::string& text) {
  v1::NativeProgram program;
  if (!google::protobuf::TextFormat::ParseFromString(text, &program))
    program.set_name("UNREADABLE");
  return program;
}

// "parameters { dtype: .. global_dims: [..] tiles: [..] donated: .. }"; lists as text, "2, 3".
inline std::string Parameter(DType dtype, const std::string& dims, const std::string& tiles = "",
                             bool donated = false) {
  return fmt::format("parameters {{ dtype: {} global_dims: [{}] tiles: [{}] donated: {} }} ",
                     static_cast<int>(dtype), dims, tiles, donated);
}
inline std::string Step(const std::string& kernel, const std::string& operands,
                        const std::string& more = "") {
  return fmt::format("steps {{ kernel: '{}' operands: [{}] {} }} ", kernel, operands, more);
}
inline std::string Result(int value, const std::string& tiles = "") {
  return fmt::format("results {{ value: {} tiles: [{}] }} ", value, tiles);
}

}  // namespace fairway::test

#endif  // FAIRWAY_WORKER_EXECUTOR_RUNTIME_NATIVE_TEST_NATIVE_PROGRAMS_H_
