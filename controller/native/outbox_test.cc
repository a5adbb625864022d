// SPDX-License-Identifier: Apache-2.0
#include "controller/native/outbox.h"

#include <map>
#include <string>
#include <vector>

#include <grpcpp/support/proto_buffer_reader.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

v1::ServerMessage Parsed(grpc::ByteBuffer* bytes) {
  v1::ServerMessage message;
  grpc::ProtoBufferReader reader(bytes);
  EXPECT_TRUE(message.ParseFromZeroCopyStream(&reader));
  return message;
}

TEST(OutboxTest, SmallAnswersGoTogether) {
  Outbox outbox;
  size_t weight = 0;
  for (uint64_t id = 1; id <= 3; ++id) {
    v1::Answer answer;
    answer.set_id(id);
    weight += outbox.Add(std::move(answer));
  }
  weight += outbox.Add(4, 2, Blob::Copy("bytes"));
  Outbox::Message message = outbox.Next();
  EXPECT_EQ(message.weight, weight);
  EXPECT_EQ(Parsed(message.bytes.get()).ShortDebugString(),
            "answers { id: 1 } answers { id: 2 } answers { id: 3 } "
            "answers { id: 4 fetched { index: 2 size: 5 data: \"bytes\" } }");
  EXPECT_EQ(outbox.Next().bytes, nullptr);
}

TEST(OutboxTest, ASerializedAnswerKeepsItsPlaceAndIsNotCopied) {
  Outbox outbox;
  v1::Answer answer;
  answer.set_id(1);
  size_t weight = outbox.Add(answer);
  v1::ServerMessage large;
  large.add_answers()->set_id(2);
  large.mutable_answers(0)->mutable_fetched()->set_data(std::string(1 << 20, 'x'));
  std::string serialized = large.SerializeAsString();
  const char* const bytes = serialized.data();
  weight += outbox.AddSerialized(std::move(serialized));
  answer.set_id(3);
  weight += outbox.Add(answer);
  std::vector<uint64_t> ids;
  for (auto message = outbox.Next(); message.bytes != nullptr; message = outbox.Next()) {
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(message.bytes->Dump(&slices).ok());
    if (ids.size() == 1) {
      EXPECT_EQ(reinterpret_cast<const char*>(slices.at(0).begin()), bytes);
    }
    const v1::ServerMessage parsed = Parsed(message.bytes.get());
    for (const v1::Answer& one : parsed.answers()) ids.push_back(one.id());
    weight -= message.weight;
  }
  EXPECT_EQ(ids, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(weight, 0u);
}

// So they count as fetched until then, and many cost their session's turn no copy.
TEST(OutboxTest, ASmallArrayIsHeldAndNotCopiedUntilItIsSent) {
  Outbox outbox;
  const std::shared_ptr<const Blob> bytes = Blob::Copy("bytes");
  const size_t weight = outbox.Add(1, 0, bytes);
  EXPECT_EQ(bytes.use_count(), 2);
  EXPECT_EQ(outbox.Next().weight, weight);
  EXPECT_EQ(bytes.use_count(), 1);
}

TEST(OutboxTest, LargeArraysGoInPiecesByTurns) {
  Outbox outbox;
  std::map<uint64_t, std::string> sent;
  sent[5] = std::string((3 << 20) + 7, 'x');
  sent[6] = std::string((1 << 20) + 1, 'y');
  size_t weight = 0;
  for (const auto& [id, bytes] : sent) weight += outbox.Add(id, 0, Blob::Copy(bytes));
  std::map<uint64_t, std::string> come;
  int messages = 0;
  for (auto message = outbox.Next(); message.bytes != nullptr; message = outbox.Next()) {
    const v1::ServerMessage parsed = Parsed(message.bytes.get());
    for (const v1::Answer& answer : parsed.answers()) {
      come[answer.id()] += answer.fetched().data();
      EXPECT_EQ(answer.fetched().size(), static_cast<int64_t>(sent[answer.id()].size()));
    }
    ++messages;
    if (messages == 2) {
      EXPECT_EQ(come[5].size(), come[6].size());
    }
    weight -= message.weight;
  }
  EXPECT_EQ(messages, 6);
  EXPECT_EQ(weight, 0u);
  EXPECT_EQ(come, sent);
}

}  // namespace
}  // namespace fairway
