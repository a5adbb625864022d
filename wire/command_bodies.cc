// SPDX-License-Identifier: Apache-2.0
// Encodes commands as bodies of log entries, and decodes them.
#include <cstddef>
#include <string>
#include <utility>

#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "wire/link_codec.h"

namespace fairway {
namespace {

// A message whose small parts need no allocations of their own.
class CommandArena {
 public:
  CommandArena() : arena_(block_, sizeof(block_)) {}
  v1::Command* message() { return message_; }

 private:
  alignas(std::max_align_t) char block_[4096];
  google::protobuf::Arena arena_;
  v1::Command* const message_ = google::protobuf::Arena::CreateMessage<v1::Command>(&arena_);
};

}  // namespace

absl::StatusOr<std::string> EncodeCommand(const Command& command, size_t most) {
  CommandArena arena;
  ToProto(command, arena.message());
  const size_t bytes = arena.message()->ByteSizeLong();
  if (bytes > most)
    return Error(absl::StatusCode::kResourceExhausted,
                 "a command of {} bytes, a message has room for {}", bytes, most);
  std::string out(bytes, '\0');
  arena.message()->SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(out.data()));
  return out;
}

absl::StatusOr<EncodedCommand> EncodeToSend(const Command& command, size_t most) {
  using google::protobuf::io::CodedOutputStream;
  const auto* const install = std::get_if<InstallExecutable>(&command);
  if (install == nullptr || install->code == nullptr || install->code->size() < kSharedCodeBytes) {
    FAIRWAY_ASSIGN_OR_RETURN(std::string body, EncodeCommand(command, most));
    return EncodedCommand{std::move(body)};
  }
  InstallExecutable without = *install;
  without.code = nullptr;
  v1::Command message;
  ToProto(without, &message);
  const v1::InstallExecutable& rest = message.install();
  const auto tag = [](int field) { return static_cast<uint32_t>(field) << 3 | 2; };  // of bytes
  const uint32_t code_tag = tag(v1::InstallExecutable::kCodeFieldNumber);
  const size_t code = install->code->size();
  const size_t size = rest.ByteSizeLong() + CodedOutputStream::VarintSize32(code_tag) +
                      CodedOutputStream::VarintSize64(code) + code;
  EncodedCommand out;
  {
    google::protobuf::io::StringOutputStream stream(&out.body);
    CodedOutputStream coded(&stream);
    coded.WriteVarint32(tag(v1::Command::kInstallFieldNumber));
    coded.WriteVarint64(size);
    rest.SerializeToCodedStream(&coded);
    coded.WriteVarint32(code_tag);
    coded.WriteVarint64(code);
  }
  out.tail = {install->code, install->code_crc};
  if (out.bytes() > most)
    return Error(absl::StatusCode::kResourceExhausted,
                 "a command of {} bytes, a message has room for {}", out.bytes(), most);
  return out;
}

absl::StatusOr<Command> DecodeCommand(std::string_view bytes) {
  CommandArena arena;
  if (!arena.message()->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return InvalidArgument("bad command: {} bytes are none", bytes.size());
  return CommandFromProto(*arena.message());
}

}  // namespace fairway
