// SPDX-License-Identifier: Apache-2.0
#include "controller/native/uploads.h"

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
