// SPDX-License-Identifier: Apache-2.0
#include "transport/kept_frames.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Frame Of(std::string payload) {
  Frame frame;
  frame.type = 1;
  frame.payload = std::move(payload);
  return frame;
}

// Two ends of a registration, and a connection between them.
struct Ends {
  KeptFrames near, far;
  std::string got;  // by the far end

  void Arrive(Frame frame) {
    near.Stamp(frame);
    const auto fresh = far.Take(frame);
    ASSERT_TRUE(fresh.ok()) << fresh.status();
    if (*fresh) got += frame.payload;
  }
  void Acknowledge() {
    Frame frame = Of("");
    far.Stamp(frame);
    ASSERT_TRUE(near.Take(frame).ok());
  }
};

TEST(KeptFramesTest, WhatWasLostWithAConnectionIsSentAgainOnce) {
  Ends ends;
  ends.Arrive(ends.near.Keep(Of("a")));
  ends.near.Keep(Of("b"));  // lost
  ends.near.Keep(Of("c"));  // lost
  const auto again = ends.near.Resume(ends.far.taken());
  ASSERT_TRUE(again.ok());
  for (const Frame& frame : *again) ends.Arrive(frame);
  ends.Arrive(ends.near.Keep(Of("d")));
  EXPECT_EQ(ends.got, "abcd");
}

TEST(KeptFramesTest, AFrameIsKeptUntilTheOtherEndSaysThatItTookIt) {
  Ends ends;
  ends.Arrive(ends.near.Keep(Of("abc")));
  EXPECT_EQ(ends.near.Resume(0)->size(), 1u);
  ends.Acknowledge();
  EXPECT_FALSE(ends.near.Resume(0).ok());  // it is gone
  EXPECT_THAT(*ends.near.Resume(1), IsEmpty());
}

TEST(KeptFramesTest, AFrameThatComesAgainIsNotTakenAgain) {
  Ends ends;
  const Frame frame = ends.near.Keep(Of("a"));
  ends.Arrive(frame);
  ends.Arrive(frame);
  EXPECT_EQ(ends.got, "a");
}

TEST(KeptFramesTest, FramesWithoutANumberAreTakenAsTheyCome) {
  Ends ends;
  ends.Arrive(Of("x"));
  ends.Arrive(Of("y"));
  EXPECT_EQ(ends.got, "xy");
  EXPECT_EQ(ends.far.taken(), 0u);
}

TEST(KeptFramesTest, AGapIsAnError) {
  Ends ends;
  ends.near.Keep(Of("lost"));
  const auto taken = ends.far.Take(ends.near.Keep(Of("b")));
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("message 2 comes after 0"));
  EXPECT_EQ(ends.far.taken(), 0u);
}

TEST(KeptFramesTest, NobodyAcknowledgesWhatWasNotSent) {
  KeptFrames end;
  Frame frame = Of("");
  frame.offset = 1;
  EXPECT_THAT(std::string(end.Take(frame).status().message()),
              HasSubstr("the other end has taken message 1, expected 0 to 0"));
  EXPECT_FALSE(end.Resume(1).ok());
}

TEST(KeptFramesTest, AnEndThatHasForgottenWhatItTookIsAnotherOne) {
  Ends ends;
  ends.Arrive(ends.near.Keep(Of("a")));
  ends.Acknowledge();
  EXPECT_THAT(std::string(ends.near.Resume(0).status().message()),
              HasSubstr("has taken message 0, expected 1 to 1"));
}

}  // namespace
}  // namespace fairway
