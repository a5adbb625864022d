// SPDX-License-Identifier: Apache-2.0
// Control messages between controller, supervisors, executors and compile processes, in both
// directions. An accepted message must survive being written and read again.
#include <string>
#include <string_view>

#include "fairway/v1/compiler.pb.h"
#include "fairway/v1/link.pb.h"
#include "tests/fuzz/fuzz.h"
#include "wire/link_codec.h"
#include "worker/compiler/compile_wire.h"

namespace fairway::fuzz {
namespace {

enum Kind : uint8_t {
  kToController = 0,    // ToController
  kFromController = 1,  // FromController
  kCompileAnswer = 2,   // CompileResponse
  // byte: the size of the pieces in which the bytes come. All numbers that are not named mean it.
  kCompileStream = 3,
  kCommand = 4,  // the body of a COMMAND of the log
};

Frame FrameWith(std::string_view payload) {
  Frame frame;
  frame.type = 1;
  frame.payload = payload;
  return frame;
}

// Returns the bytes of a value that was read; another round must give the same.
template <typename Message, typename Read, typename Write>
void RoundTrip(Message& in, Read read, Write write) {
  const auto value = read(in);
  if (!value.ok()) return;
  Message first;
  write(*value, &first);
  Message copy = first;
  const auto again = read(copy);
  FUZZ_CHECK(again.ok());
  Message second;
  write(*again, &second);
  FUZZ_CHECK(first.SerializeAsString() == second.SerializeAsString());
}

void OnToController(std::string_view bytes) {
  v1::ToController message;
  if (!UnpackFrame(FrameWith(bytes), &message).ok()) return;
  if (message.has_register_executor()) {
    RoundTrip(*message.mutable_register_executor()->mutable_spec(), ExecutorSpecFromProto,
              [](const ExecutorSpec& spec, v1::ExecutorSpec* out) { ToProto(spec, out); });
  } else if (message.has_report()) {
    RoundTrip(*message.mutable_report(), ReportFromProto,
              [](const Report& report, v1::Report* out) { ToProto(report, Incarnation(1), out); });
  } else if (message.has_callback()) {
    RoundTrip(*message.mutable_callback(), CallbackFromProto,
              [](const CallbackCall& call, v1::LinkCallback* out) { ToProto(call, out); });
  } else if (message.has_compile_response()) {
    (void)StatusFromProto(message.compile_response().status());
  }
}

void OnFromController(std::string_view bytes) {
  v1::FromController message;
  if (!UnpackFrame(FrameWith(bytes), &message).ok()) return;
  if (message.has_callback_answer())
    RoundTrip(
        *message.mutable_callback_answer(), CallbackAnswerFromProto,
        [](const CallbackAnswer& answer, v1::LinkCallbackAnswer* out) { ToProto(answer, out); });
  if (message.has_revoked_workers()) {
    RoundTrip(*message.mutable_revoked_workers(), RevocationsFromProto,
              [](const std::vector<Revocation>& all, v1::RevokedWorkers* out) {
                for (const Revocation& one : all) ToProto(one, out->add_workers());
              });
  }
}

void OnCommand(std::string_view bytes) {
  const auto command = DecodeCommand(bytes);
  if (!command.ok()) return;
  const std::string first = EncodeCommand(*command).value();
  const auto again = DecodeCommand(first);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(EncodeCommand(*again).value() == first);
}

void OnCompileAnswer(std::string_view bytes) {
  v1::CompileResponse response;
  if (!response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const bool ok = response.status_code() == 0;
  const auto result = ResultOf(std::move(response));
  if (!ok) FUZZ_CHECK(!result.ok());
  // In the form in which it goes on to the controller.
  if (!result.ok()) (void)StatusFromProto(ToProto(result.status()));
}

void OnCompileStream(Reader in) {
  const size_t piece = 1 + in.Byte();
  std::string_view bytes = in.Rest();
  FrameBuffer frames;
  size_t taken = 0;
  const size_t all = bytes.size();
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    frames.Append(bytes.data(), std::min(piece, bytes.size()));
    while (true) {
      const auto payload = frames.Next();
      if (!payload.ok()) return;
      if (!payload->has_value()) break;
      taken += 4 + (*payload)->size();
      FUZZ_CHECK(taken <= all);
      OnCompileAnswer(**payload);
    }
  }
}

}  // namespace

const google::protobuf::Message* Prototype(uint8_t kind) {
  switch (kind) {
    case kToController:
      return &v1::ToController::default_instance();
    case kFromController:
      return &v1::FromController::default_instance();
    case kCompileAnswer:
      return &v1::CompileResponse::default_instance();
    case kCommand:
      return &v1::Command::default_instance();
    default:
      return nullptr;
  }
}

}  // namespace fairway::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fairway::fuzz;
  for (const Record& record : Cut({reinterpret_cast<const char*>(data), size})) {
    switch (record.kind) {
      case kToController:
        OnToController(record.payload);
        break;
      case kFromController:
        OnFromController(record.payload);
        break;
      case kCompileAnswer:
        OnCompileAnswer(record.payload);
        break;
      case kCommand:
        OnCommand(record.payload);
        break;
      default:
        OnCompileStream(Reader(record.payload));
    }
  }
  return 0;
}
