// SPDX-License-Identifier: Apache-2.0
#include "log/codec.h"

#include <string>

#include <gtest/gtest.h>

#include "log/varint.h"

namespace fairway {
namespace {

std::string Bytes(std::initializer_list<uint64_t> values) {
  std::string out;
  for (const uint64_t value : values) PutVarint(value, &out);
  return out;
}

// The decoder's error. It must tell what was expected, or where the bytes end.
std::string FrameError(const std::string& bytes) {
  const auto frame = DecodeLogFrame(bytes);
  if (frame.ok()) return "";
  EXPECT_EQ(frame.status().code(), absl::StatusCode::kInvalidArgument);
  return Text(frame.status());
}

std::string ReportError(const std::string& bytes) {
  const auto report = DecodeLogReport(bytes);
  if (report.ok()) return "";
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  return Text(report.status());
}

TEST(LogCodecTest, AFrameHasTheBytesOfTheDocument) {
  LogFrameWriter writer(3, {{1, 5}, {8, 8}});
  const EntryHeader command{300, LogSpan::One(4), EntryKind::kCommand, kNeverWaits};
  EXPECT_EQ(writer.BytesWith(command, 2), 6u + 5 + 2);
  writer.Add(command, "ab");
  writer.Add({301, LogSpan{2, 300}, EntryKind::kRun, kEndsLater}, "");
  const std::string bytes = writer.Take();
  EXPECT_EQ(bytes, std::string("\x03\x02\x01\x04\x03\x00"
                               "\xac\x02\x08\x21\x02"
                               "ab"
                               "\x01\x05\xaa\x02\x85\x01\x00",
                               20));
  const auto frame = DecodeLogFrame(bytes);
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->version, 3u);
  EXPECT_EQ(frame->concluded, (LogRanges{{1, 5}, {8, 8}}));
  ASSERT_EQ(frame->entries.size(), 2u);
  EXPECT_EQ(frame->entries[0].header, command);
  EXPECT_EQ(frame->entries[0].body, "ab");
  EXPECT_EQ(frame->entries[1].header.span, (LogSpan{2, 300}));
  EXPECT_EQ(frame->entries[1].header.flags, kEndsLater);
}

TEST(LogCodecTest, AReportIsTheSameAfterItsBytes) {
  const LogReport report{7, 1000, {{3, 900}, {1000, 1000}}};
  const std::string bytes = EncodeLogReport(report);
  EXPECT_EQ(bytes.size(), 1u + 2 + 1 + 3 + 2);
  const auto read = DecodeLogReport(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->version, 7u);
  EXPECT_EQ(read->applied, 1000u);
  EXPECT_EQ(read->ended, report.ended);
}

TEST(LogCodecTest, EveryCutOfAReportAndOfAFrameWithinAnEntryIsRefused) {
  const std::string report = EncodeLogReport({7, 1000, {{3, 900}, {1000, 1000}}});
  for (size_t size = 0; size < report.size(); ++size)
    EXPECT_NE(ReportError(report.substr(0, size)), "") << size;
  EXPECT_EQ(ReportError(report + "x"), "1 bytes after a report, expected none");
  LogFrameWriter writer(3, {{1, 5}});
  writer.Add({9, LogSpan::One(4), EntryKind::kCommand, 0}, "abc");
  const std::string frame = writer.Take();
  for (size_t size = 0; size < frame.size(); ++size) {
    const bool whole = size == 4;  // a frame without entries
    EXPECT_EQ(FrameError(frame.substr(0, size)) == "", whole) << size;
  }
}

TEST(LogCodecTest, VersionsNumbersAndRangesAreChecked) {
  EXPECT_EQ(FrameError(Bytes({0, 0})), "version 0, expected 1 or more");
  // The first range begins with 0; the second one touches or overlaps the first.
  EXPECT_EQ(FrameError(Bytes({1, 1, 0, 1})),
            "a range 0 after 0, expected 1 to 4611686018427387904");
  EXPECT_NE(FrameError(Bytes({1, 2, 1, 1, 0, 1})), "");
  EXPECT_NE(FrameError(Bytes({1, 2, 1, 1, 1, 1})), "");
  EXPECT_EQ(FrameError(Bytes({1, 2, 1, 1, 2, 1})), "");
  // Beyond the largest number, also by overflow.
  EXPECT_NE(FrameError(Bytes({1, 1, 1, kMaxLogNumber})), "");
  EXPECT_NE(FrameError(Bytes({1, 2, 1, 5, ~uint64_t{0}, 0})), "");
  EXPECT_NE(FrameError(Bytes({1, 2, 1, ~uint64_t{0}, 2, 0})), "");
  EXPECT_NE(ReportError(Bytes({1, kMaxLogNumber + 1, 0})), "");
  // Entries: the same number again, and one that overflows.
  EXPECT_EQ(FrameError(Bytes({1, 0, 5, 0, 1, 0, 0, 0, 1, 0})),
            "an entry 0 after number 5, expected 1 to 4611686018427387899");
  EXPECT_NE(FrameError(Bytes({1, 0, 5, 0, 1, 0, ~uint64_t{0} - 3, 0, 1, 0})), "");
}

TEST(LogCodecTest, CountsAndLengthsAreNotBelieved) {
  EXPECT_EQ(FrameError(Bytes({1, 3, 1, 1, 2, 1})), "3 ranges in 4 bytes, expected at most 2");
  EXPECT_EQ(ReportError(Bytes({1, 1, uint64_t{1} << 60})),
            "1152921504606846976 ranges in 0 bytes, expected at most 0");
  EXPECT_EQ(FrameError(Bytes({1, 0, 5, 0, 1, 4}) + "abc"),
            "a body of 4 bytes, expected at most the 3 that are left");
  EXPECT_NE(FrameError(Bytes({1, 0, 5, 0, 1, ~uint64_t{0}})), "");
  std::string many = Bytes({1, kMaxFrameRanges + 1});
  for (size_t i = 0; i <= kMaxFrameRanges; ++i) many += Bytes({2, 0});
  EXPECT_NE(FrameError(many), "");
  many = Bytes({1, 0});
  for (size_t i = 0; i < kMaxFrameEntries; ++i) many += Bytes({1, 2, 5, 0});
  EXPECT_EQ(FrameError(many), "");
  EXPECT_EQ(FrameError(many + Bytes({1, 2, 5, 0})),
            "4 bytes after 65536 entries, expected the end of the frame");
  EXPECT_NE(ReportError(std::string(kMaxLogReportBytes + 1, 1)), "");
}

TEST(LogCodecTest, KindsFlagsExecutorsAndSizesAreChecked) {
  EXPECT_EQ(FrameError(Bytes({1, 0, 5, 0, 0, 0})), "an entry of kind 0, expected 1 to 11");
  EXPECT_EQ(FrameError(Bytes({1, 0, 5, 0, 12, 0})), "an entry of kind 12, expected 1 to 11");
  EXPECT_EQ(FrameError(Bytes({1, 0, 5, 0, 1 + 16 * 16, 0})),
            "an entry with flags 16, expected at most 15");
  EXPECT_EQ(FrameError(Bytes({1, 0, 5, uint64_t{1} << 33, 5, 0})),
            "executor 4294967296, expected less than 2^32");
  EXPECT_EQ(FrameError(Bytes({1, 0, 5, 2 * 7 + 1, 0, 1, 0})),
            "0 executors after executor 7, expected 1 to 4294967288");
  EXPECT_EQ(FrameError(Bytes({1, 0, 5, (uint64_t{1} << 33) - 3, 2, 1, 0})),
            "2 executors after executor 4294967294, expected 1 to 1");
  EXPECT_EQ(FrameError(Bytes({1, 0, 5, (uint64_t{1} << 33) - 3, 1, 1, 0})), "");
  EXPECT_EQ(FrameError(Bytes({1, 0, 5, 0, 5 + 16 * kBulkEntry, 0})),
            "a RUN in bulk, expected only COMMAND to be");
  const std::string large(kMaxEntryBytes + 1, 'x');
  EXPECT_EQ(FrameError(Bytes({1, 0, 5, 0, 1, large.size()}) + large),
            "a COMMAND of 262145 bytes, expected at most 262144");
  EXPECT_EQ(FrameError(Bytes({1, 0, 5, 0, 1 + 16 * kBulkEntry, large.size()}) + large), "");
}

TEST(LogCodecTest, OnlyTheShortestFormOfANumberIsAccepted) {
  EXPECT_EQ(ReportError(std::string("\x81\x00\x00\x00", 4)),
            "a version of 2 bytes, expected its shortest form");
  EXPECT_EQ(ReportError(std::string(9, '\xff') + "\x02"), "a version has more than 64 bits");
  EXPECT_EQ(ReportError(std::string(11, '\xff')), "a version has more than 64 bits");
  EXPECT_EQ(ReportError(std::string(9, '\xff')), "a version is cut off after 9 bytes");
  std::string all;
  for (int bits = 0; bits < 64; ++bits) {
    all.clear();
    PutVarint(~uint64_t{0} >> bits, &all);
    EXPECT_EQ(all.size(), VarintBytes(~uint64_t{0} >> bits));
    VarintReader in(all);
    const auto value = in.Take("a number");
    ASSERT_TRUE(value.ok());
    EXPECT_EQ(*value, ~uint64_t{0} >> bits);
    EXPECT_EQ(in.left(), 0u);
  }
}

}  // namespace
}  // namespace fairway
