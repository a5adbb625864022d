// SPDX-License-Identifier: Apache-2.0
#include "controller/native/uploads.h"

#include <limits>

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

// Formats the uploads that a message completed as "71=aaaabbbb 72=...", or the error.
class UploadsTest : public testing::Test {
 protected:
  std::string Take(const std::string& text) {
    v1::ClientMessage message;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
    const auto done = uploads_.Take(message);
    if (!done.ok()) return Describe(done.status());
    std::string out;
    for (const Uploaded& uploaded : *done)
      out += fmt::format("{}={} ", uploaded.upload,
                         uploaded.bytes.ok() ? std::string((*uploaded.bytes)->view())
                                             : Describe(uploaded.bytes.status()));
    for (const v1::Request& request : message.requests())
      EXPECT_TRUE(request.chunk().data().empty());  // only the upload holds the bytes
    return out;
  }
  Uploads uploads_{Spool{std::make_shared<MemoryBudget>(1 << 20), "/tmp"}};
};

TEST_F(UploadsTest, ChunksOfSeveralUploadsMayBeMixed) {
  EXPECT_EQ(Take("requests { put { bytes { upload: 71 size: 4 } bytes { upload: 72 size: 2 } } } "
                 "requests { chunk { upload: 71 data: \"aa\" } }"),
            "");
  EXPECT_EQ(uploads_.open(), 2u);
  EXPECT_EQ(Take("requests { chunk { upload: 72 data: \"bb\" } } requests { ping {} } "
                 "requests { chunk { upload: 71 data: \"cc\" } }"),
            "72=bb 71=aacc ");
  EXPECT_EQ(uploads_.open(), 0u);
}

TEST_F(UploadsTest, AnEmptyUploadIsCompleteAtOnce) {
  EXPECT_EQ(Take("requests { put { bytes { upload: 71 } bytes { data: \"inline\" } } }"), "71= ");
}

// The thread that has all calls asks it before it lets an upload wait for a disk.
TEST_F(UploadsTest, OnlyBytesThatTheMemoryHasNoRoomForMayWaitForTheDisk) {
  const auto message = [](int64_t announced, int64_t bytes) {
    v1::ClientMessage out;
    if (announced > 0) {
      v1::HostBytes& of = *out.add_requests()->mutable_put()->add_bytes();
      of.set_upload(71);
      of.set_size(announced);
    }
    v1::Chunk& chunk = *out.add_requests()->mutable_chunk();
    chunk.set_upload(71);
    chunk.set_data(std::string(bytes, 'x'));
    return out;
  };
  EXPECT_FALSE(uploads_.MayWait(message(1000, 1000)));
  EXPECT_TRUE(uploads_.MayWait(message(2 << 20, 1000)));  // the memory has 1 MiB
  v1::ClientMessage huge = message(std::numeric_limits<int64_t>::max(), 1000);
  *huge.add_requests() = huge.requests(0);
  EXPECT_TRUE(uploads_.MayWait(huge));  // together they are more than an int64_t holds
  EXPECT_FALSE(uploads_.MayWait(message(-1, 1000)));  // Take refuses it
  v1::ClientMessage first = message(2 << 20, 1000);
  ASSERT_TRUE(uploads_.Take(first).ok());
  EXPECT_TRUE(uploads_.MayWait(message(0, 1000)));  // it is in a file by now
  v1::ClientMessage puts;
  puts.add_requests()->mutable_put()->add_bytes()->set_size(2 << 20);
  EXPECT_FALSE(uploads_.MayWait(puts));
}

TEST_F(UploadsTest, WhatBreaksTheOrderIsNamed) {
  EXPECT_EQ(Take("requests { chunk { upload: 71 data: \"aa\" } }"),
            "INVALID_ARGUMENT: a chunk of upload 71, which was not announced or is complete");
  Take("requests { put { bytes { upload: 71 size: 4 } } }");
  EXPECT_EQ(Take("requests { put { bytes { upload: 71 size: 4 } } }"),
            "INVALID_ARGUMENT: upload 71 is announced twice");
  EXPECT_EQ(Take("requests { put { bytes { upload: 72 size: -1 } } }"),
            "INVALID_ARGUMENT: upload 72 is announced with -1 bytes");
  EXPECT_EQ(Take("requests { chunk { upload: 71 data: \"aaaaa\" } }"),
            "INVALID_ARGUMENT: a chunk of 5 bytes for upload 71, of which 4 are missing");
}

}  // namespace
}  // namespace fairway
