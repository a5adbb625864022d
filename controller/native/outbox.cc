// SPDX-License-Identifier: Apache-2.0
#include "controller/native/outbox.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

namespace fairway {
namespace {

constexpr size_t kPieceBytes = 1 << 20;      // a piece of a larger array
constexpr size_t kAnswersBytes = 256 << 10;  // all answers in one message
constexpr size_t kAnswerWeight = 128;        // added to the bytes of an answer

using google::protobuf::io::CodedOutputStream;

size_t WeightOf(const v1::Answer& answer) { return kAnswerWeight + answer.ByteSizeLong(); }
size_t WeightOfArray(size_t bytes) { return kAnswerWeight + bytes; }

// The tag of a bytes or message field.
uint32_t Tag(int field) { return static_cast<uint32_t>(field) << 3 | 2; }

size_t SizeOfField(int field, size_t length) {
  return CodedOutputStream::VarintSize32(Tag(field)) + CodedOutputStream::VarintSize64(length) +
         length;
}

// A ServerMessage with one answer, up to the `length` bytes of Fetched.data, which come last.
std::string BeforeData(uint64_t id, int32_t index, int64_t size, size_t length) {
  v1::Answer answer;
  answer.set_id(id);
  v1::Fetched fetched;
  fetched.set_index(index);
  fetched.set_size(size);
  const size_t fetched_size =
      fetched.ByteSizeLong() + SizeOfField(v1::Fetched::kDataFieldNumber, length);
  const size_t answer_size =
      answer.ByteSizeLong() + SizeOfField(v1::Answer::kFetchedFieldNumber, fetched_size);
  std::string out;
  google::protobuf::io::StringOutputStream stream(&out);
  CodedOutputStream coded(&stream);
  coded.WriteVarint32(Tag(v1::ServerMessage::kAnswersFieldNumber));
  coded.WriteVarint64(answer_size);
  answer.SerializeToCodedStream(&coded);
  coded.WriteVarint32(Tag(v1::Answer::kFetchedFieldNumber));
  coded.WriteVarint64(fetched_size);
  fetched.SerializeToCodedStream(&coded);
  coded.WriteVarint32(Tag(v1::Fetched::kDataFieldNumber));
  coded.WriteVarint64(length);
  coded.Trim();
  return out;
}

void AddTo(v1::ServerMessage& message, uint64_t id, int32_t index, const Blob& bytes) {
  v1::Answer* answer = message.add_answers();
  answer->set_id(id);
  v1::Fetched* fetched = answer->mutable_fetched();
  fetched->set_index(index);
  fetched->set_size(static_cast<int64_t>(bytes.size()));
  fetched->set_data(bytes.data(), bytes.size());
}

// The bytes of `bytes` from `offset` on; holds a reference until gRPC has sent them.
grpc::Slice SliceOf(const std::shared_ptr<const Blob>& bytes, size_t offset, size_t length) {
  return grpc::Slice(
      const_cast<char*>(bytes->data()) + offset, length,
      [](void* held) { delete static_cast<std::shared_ptr<const Blob>*>(held); },
      new std::shared_ptr<const Blob>(bytes));
}

// The bytes of `text` itself, held until gRPC has sent them.
grpc::Slice SliceOf(std::string text) {
  auto* const held = new std::string(std::move(text));
  return grpc::Slice(
      held->data(), held->size(), [](void* text) { delete static_cast<std::string*>(text); }, held);
}

}  // namespace

size_t Outbox::Add(v1::Answer answer) {
  const size_t weight = WeightOf(answer);
  answers_.emplace_back(std::move(answer));
  return weight;
}

size_t Outbox::AddSerialized(std::string message) {
  const size_t weight = message.size();
  answers_.emplace_back(std::move(message));
  return weight;
}

size_t Outbox::Add(uint64_t id, int32_t index, std::shared_ptr<const Blob> bytes) {
  const size_t size = bytes->size();
  if (size <= kSmallBytes) {
    answers_.emplace_back(Array{id, index, std::move(bytes), 0});
    return WeightOfArray(size);
  }
  arrays_.push_back({id, index, std::move(bytes), 0});
  return size;
}

Outbox::Message Outbox::Next() {
  Message out;
  std::vector<grpc::Slice> slices;
  v1::ServerMessage message;
  while (!answers_.empty() && out.weight < kAnswersBytes) {
    if (auto* const answer = std::get_if<v1::Answer>(&answers_.front())) {
      out.weight += WeightOf(*answer);
      *message.add_answers() = std::move(*answer);
    } else if (const auto* const array = std::get_if<Array>(&answers_.front())) {
      out.weight += WeightOfArray(array->bytes->size());
      AddTo(message, array->id, array->index, *array->bytes);
    } else {
      break;
    }
    answers_.pop_front();
  }
  if (message.answers_size() > 0) {
    slices.emplace_back(message.SerializeAsString());
  } else if (!answers_.empty()) {
    auto& serialized = std::get<std::string>(answers_.front());
    out.weight = serialized.size();
    slices.push_back(SliceOf(std::move(serialized)));
    answers_.pop_front();
  }
  if (!arrays_.empty()) {
    Array array = std::move(arrays_.front());
    arrays_.pop_front();
    const size_t length = std::min(kPieceBytes, array.bytes->size() - array.sent);
    slices.emplace_back(
        BeforeData(array.id, array.index, static_cast<int64_t>(array.bytes->size()), length));
    slices.push_back(SliceOf(array.bytes, array.sent, length));
    array.sent += length;
    out.weight += length;
    out.shared = length;
    if (array.sent < array.bytes->size()) arrays_.push_back(std::move(array));
  }
  if (!slices.empty()) out.bytes = std::make_unique<grpc::ByteBuffer>(slices.data(), slices.size());
  return out;
}

void Outbox::Clear() {
  answers_.clear();
  arrays_.clear();
}

}  // namespace fairway
