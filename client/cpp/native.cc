// SPDX-License-Identifier: Apache-2.0
#include "fairway/native.h"

#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"
#include "client/cpp/access.h"

namespace fairway::client {

struct NativeProgram::State {
  v1::NativeProgram proto;
  Status error;  // the first error
};

const v1::NativeProgram& Access::Of(const NativeProgram& program) { return program.state_->proto; }
const Status& Access::ErrorOf(const NativeProgram& program) { return program.state_->error; }

NativeProgram::NativeProgram(std::string name) : state_(std::make_unique<State>()) {
  state_->proto.set_name(ValidUtf8(name));
}
NativeProgram::~NativeProgram() = default;
NativeProgram::NativeProgram(const NativeProgram& other)
    : state_(std::make_unique<State>(*other.state_)) {}
NativeProgram& NativeProgram::operator=(const NativeProgram& other) {
  *state_ = *other.state_;
  return *this;
}

NativeProgram::Value NativeProgram::Parameter(DType dtype, Shape shape, std::vector<int64_t> tiles,
                                              bool donated) {
  const v1::NativeProgram& proto = state_->proto;
  if (proto.steps_size() > 0 && state_->error.ok()) {
    state_->error = Status(
        StatusCode::kInvalidArgument,
        fmt::format("native program '{}': parameter {} was declared after step {} ({}): declare "
                    "all parameters before the first step, since the values of steps are numbered "
                    "after them",
                    proto.name(), proto.parameters_size(), proto.steps_size() - 1,
                    proto.steps().rbegin()->kernel()));
  }
  v1::NativeParameter* parameter = state_->proto.add_parameters();
  parameter->set_dtype(static_cast<int32_t>(dtype));
  parameter->mutable_global_dims()->Assign(shape.begin(), shape.end());
  parameter->mutable_tiles()->Assign(tiles.begin(), tiles.end());
  parameter->set_donated(donated);
  return {static_cast<uint32_t>(state_->proto.parameters_size() - 1)};
}

NativeProgram::Value NativeProgram::Step(const char* kernel, const std::vector<Value>& operands) {
  v1::NativeProgram& proto = state_->proto;
  v1::NativeStep* step = proto.add_steps();
  step->set_kernel(kernel);
  for (const Value& operand : operands) step->add_operands(operand.number);
  return {static_cast<uint32_t>(proto.parameters_size() + proto.steps_size() - 1)};
}

NativeProgram::Value NativeProgram::Add(const std::vector<Value>& operands) {
  return Step("add", operands);
}

NativeProgram::Value NativeProgram::Scale(Value operand, double factor) {
  const Value made = Step("scale", {operand});
  state_->proto.mutable_steps()->rbegin()->set_factor(factor);
  return made;
}

NativeProgram::Value NativeProgram::Matmul(Value left, Value right) {
  return Step("matmul", {left, right});
}

NativeProgram::Value NativeProgram::AllReduce(Value operand) {
  return Step("all_reduce", {operand});
}

NativeProgram::Value NativeProgram::BusyWait(Value operand, std::chrono::nanoseconds time) {
  const Value made = Step("busy_wait", {operand});
  state_->proto.mutable_steps()->rbegin()->set_nanoseconds(time.count());
  return made;
}

NativeProgram::Value NativeProgram::Sleep(Value operand, std::chrono::nanoseconds time) {
  const Value made = Step("sleep", {operand});
  state_->proto.mutable_steps()->rbegin()->set_nanoseconds(time.count());
  return made;
}

void NativeProgram::Result(Value value, std::vector<int64_t> tiles) {
  v1::NativeResult* result = state_->proto.add_results();
  result->set_value(value.number);
  result->mutable_tiles()->Assign(tiles.begin(), tiles.end());
}

void NativeProgram::Repeat(uint32_t times) { state_->proto.set_repeat(times); }

}  // namespace fairway::client
