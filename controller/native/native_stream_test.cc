// SPDX-License-Identifier: Apache-2.0
#include "controller/native/native_stream.h"

#include <algorithm>
#include <initializer_list>
#include <set>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Adds all kinds of messages that such a message may hold, and itself.
void AddAll(const Descriptor* kind, std::set<const Descriptor*>& all) {
  if (!all.insert(kind).second) return;
  for (int i = 0; i < kind->field_count(); ++i) {
    if (kind->field(i)->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
      AddAll(kind->field(i)->message_type(), all);
  }
}

// An empty message within another has two bytes on the wire at least.
TEST(MemoryOfTest, NoKindOfMessageTakesMoreThanAShortMessageCountsFor) {
  constexpr size_t kOnWire = 2, kOfList = 48;  // with the list's head and its least room
  std::set<const Descriptor*> all;
  AddAll(v1::ClientMessage::descriptor(), all);
  ASSERT_GT(all.size(), 20u);
  for (const Descriptor* kind : all) {
    EXPECT_FALSE(kind->options().map_entry()) << kind->full_name();
    const google::protobuf::Message* empty =
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(kind);
    EXPECT_LE(empty->SpaceUsedLong() + kOfList, kMostOfByte * kOnWire) << kind->full_name();
  }
}

TEST(MemoryOfTest, AMessageCountsAtLeastWhatItTakes) {
  for (const int requests : {0, 1, 10, 1000, 10000}) {
    v1::ClientMessage message;
    for (int i = 0; i < requests; ++i) {
      message.add_requests()->mutable_call()->add_arguments(1);
      message.add_requests()->mutable_put();
      message.add_requests();
    }
    const std::string bytes = message.SerializeAsString();
    v1::ClientMessage parsed;
    ASSERT_TRUE(parsed.ParseFromString(bytes));
    EXPECT_GE(MemoryOf(parsed, bytes.size()), parsed.SpaceUsedLong()) << requests;
  }
}

// Lists of numbers are counted, not walked; fields that we do not know are.
TEST(MemoryOfTest, CallsAndReleasesCountAtLeastWhatTheyTake) {
  for (const int numbers : {0, 1, 5, 100, 1000, 100000}) {
    for (const bool unknown : {false, true}) {
      v1::ClientMessage message;
      for (int i = 0; i <= 100000 / std::max(numbers, 50); ++i) {
        v1::Call& call = *message.add_requests()->mutable_call();
        v1::Release& release = *message.add_requests()->mutable_release();
        for (int n = 0; n < numbers; ++n) {
          call.add_arguments(n % 100);
          call.add_results(n % 100);
          call.add_non_donatable(n % 100);
          release.add_arrays(n % 100);
          release.add_executables(n % 100);
        }
        for (int n = 0; unknown && n < numbers; ++n) {
          for (google::protobuf::Message* const at :
               std::initializer_list<google::protobuf::Message*>{&call, &release, &message})
            at->GetReflection()->MutableUnknownFields(at)->AddLengthDelimited(15, "");
        }
      }
      const std::string bytes = message.SerializeAsString();
      v1::ClientMessage parsed;
      ASSERT_TRUE(parsed.ParseFromString(bytes));
      EXPECT_GE(MemoryOf(parsed, bytes.size()), parsed.SpaceUsedLong()) << numbers << unknown;
      if (!unknown && numbers > 10) {
        EXPECT_LE(MemoryOf(parsed, bytes.size()), 3 * parsed.SpaceUsedLong()) << numbers;
      }
    }
  }
}

}  // namespace
}  // namespace fairway
