// SPDX-License-Identifier: Apache-2.0
#include "controller/native/dialogue.h"

#include <regex>
#include <sstream>
#include <utility>

#include <fmt/ranges.h>
#include <google/protobuf/text_format.h>

#include "controller/cluster/inspection.h"
#include "wire/client_values.h"

namespace fairway {
namespace {

std::vector<int> Numbers(const std::string& text) {
  std::istringstream in(text);
  std::vector<int> out;
  for (int n = 0; in >> n;) out.push_back(n);
  return out;
}

std::string Expand(const std::string& word, const std::string& argument) {
  const size_t bar = argument.find('|');
  const std::vector<int> dims = Numbers(argument.substr(0, bar));
  const std::vector<int> devices = Numbers(argument.substr(bar + 1));
  std::string tiles;
  if (word == "cut") {
    std::vector<size_t> pieces(dims.size(), 1);
    pieces[0] = devices.size();
    tiles = fmt::format("tiles: [{}]", fmt::join(pieces, ", "));
  }
  return fmt::format("spec {{ dtype: 11 dims: [{}] sharding {{ devices: [{}] {} }} }}",
                     fmt::join(dims, ", "), fmt::join(devices, ", "), tiles);
}

std::string Expanded(std::string text) {
  static const std::regex kShorthand(R"(@(\w+)\(([^()]*)\))");
  for (std::smatch match; std::regex_search(text, match, kShorthand);)
    text = match.prefix().str() + Expand(match[1], match[2]) + match.suffix().str();
  return text;
}

}  // namespace

NativeDialogue::NativeDialogue()
    : door_(&cluster_.cluster(), &cluster_.compiler(), {.caps = {}, .server = "test"}) {
  session_ = door_.Open("tenant", this).value();
}

void NativeDialogue::TearDown() {
  Run();
  door_.Close(session_->session());
  Run();
  EXPECT_EQ(Describe(cluster_.cluster().inspection().CheckInvariants()), "OK");
  EXPECT_EQ(cluster_.cluster().inspection().counts().arrays, 0u);
  EXPECT_EQ(cluster_.cluster().inspection().counts().groups, 0u);
  EXPECT_EQ(cluster_.cluster().inspection().counts().nodes, 0u);
}

void NativeDialogue::Send(v1::Answer answer) {
  std::string line = fmt::format("{} ", answer.id());
  answer.clear_id();
  if (answer.has_error()) {
    EXPECT_EQ(answer.result_case(), v1::Answer::RESULT_NOT_SET);
    line += Describe(StatusFromError(answer.error()));
  } else {
    line += answer.result_case() == v1::Answer::RESULT_NOT_SET ? "done" : answer.ShortDebugString();
  }
  lines_.push_back(std::move(line));
}

void NativeDialogue::SendSerialized(std::string message) {
  v1::ServerMessage parsed;
  EXPECT_TRUE(parsed.ParseFromString(message));
  for (const v1::Answer& answer : parsed.answers()) Send(answer);
  ++serialized_;
}

void NativeDialogue::SendBytes(uint64_t id, int32_t index, BytesRef bytes) {
  lines_.push_back(fmt::format("{} bytes {}: {}", id, index, std::string(bytes->view())));
  last_bytes_ = std::move(bytes);
}

void NativeDialogue::RunOffLoop(std::function<void()> work, std::function<void()> then) {
  cluster_.RunOffLoop(std::move(work), std::move(then));
}

std::string NativeDialogue::Ask(const std::string& text) {
  v1::Request request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(Expanded(text), &request))
      << Expanded(text);
  if (text.find("id: 0") == std::string::npos) request.set_id(next_id_);
  ++next_id_;
  session_->Handle(request);
  return Take();
}

std::string NativeDialogue::Take() {
  return fmt::format("{}", fmt::join(std::exchange(lines_, {}), "\n"));
}

std::string NativeDialogue::Run() {
  cluster_.RunAll();
  return Take();
}

void NativeDialogue::Put(uint64_t array, int device, const std::string& bytes) {
  Ask(fmt::format("id: 0 put {{ array: {} @f32({} | {}) bytes {{ data: \"{}\" }} }}", array,
                  bytes.size() / 4, device, bytes));
  Run();
}

void NativeDialogue::Compiled(uint64_t handle, const std::string& devices, int arguments,
                              int results, std::vector<int> donated) {
  const std::vector<int> numbers = Numbers(devices);
  Ask(
      fmt::format("id: 0 compile {{ executable: {} stablehlo: \"a program of {} and {}\" devices: "
                  "[{}] }}",
                  handle, arguments, results, fmt::join(numbers, ", ")));
  if (cluster_.open_compilations() > 0)
    cluster_.AnswerCompile(
        TestCode(arguments, results, static_cast<int>(numbers.size()), std::move(donated)));
}

}  // namespace fairway
