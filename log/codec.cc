// SPDX-License-Identifier: Apache-2.0
#include "log/codec.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "log/varint.h"

namespace fairway {
namespace {

constexpr int kKindBits = 4;
constexpr size_t kLeastRangeBytes = 2;

uint64_t WireOf(LogSpan span) { return uint64_t{span.first} << 1 | (span.is_one() ? 0 : 1); }

uint64_t WireOfKind(const EntryHeader& header) {
  return static_cast<uint64_t>(header.kind) | uint64_t{header.flags} << kKindBits;
}

void PutRanges(const LogRanges& ranges, std::string* out) {
  PutVarint(ranges.size(), out);
  LogNumber previous = 0;
  for (const LogRange& range : ranges) {
    PutVarint(range.first - previous, out);
    PutVarint(range.last - range.first, out);
    previous = range.last;
  }
}

absl::StatusOr<LogRanges> TakeRanges(VarintReader& in) {
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t count, in.Take("a count of ranges"));
  if (count > kMaxFrameRanges || count > in.left() / kLeastRangeBytes)
    return InvalidArgument("{} ranges in {} bytes, expected at most {}", count, in.left(),
                           std::min(kMaxFrameRanges, in.left() / kLeastRangeBytes));
  LogRanges out;
  LogNumber previous = 0;
  for (uint64_t i = 0; i < count; ++i) {
    FAIRWAY_ASSIGN_OR_RETURN(const uint64_t gap, in.Take("the begin of a range"));
    const uint64_t least = previous == 0 ? 1 : 2;
    if (gap < least || gap > kMaxLogNumber - previous)
      return InvalidArgument("a range {} after {}, expected {} to {}", gap, previous, least,
                             kMaxLogNumber - previous);
    const LogNumber first = previous + gap;
    FAIRWAY_ASSIGN_OR_RETURN(const uint64_t length, in.Take("the length of a range"));
    if (length > kMaxLogNumber - first)
      return InvalidArgument("a range of {} numbers beyond {}, expected at most {}", length, first,
                             kMaxLogNumber - first);
    previous = first + length;
    out.push_back({first, previous});
  }
  return out;
}

absl::StatusOr<uint64_t> TakeVersion(VarintReader& in) {
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t version, in.Take("a version"));
  if (version == 0) return InvalidArgument("version 0, expected 1 or more");
  return version;
}

absl::StatusOr<LogSpan> TakeSpan(VarintReader& in) {
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t begin, in.Take("the executor of an entry"));
  if (begin >> 33 != 0) return InvalidArgument("executor {}, expected less than 2^32", begin >> 1);
  const auto first = static_cast<ExecutorIndex>(begin >> 1);
  if ((begin & 1) == 0) return LogSpan::One(first);
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t more, in.Take("the number of executors of an entry"));
  const ExecutorIndex most = std::numeric_limits<ExecutorIndex>::max() - first;
  if (more == 0 || more > most)
    return InvalidArgument("{} executors after executor {}, expected 1 to {}", more, first, most);
  return LogSpan{first, first + static_cast<ExecutorIndex>(more)};
}

absl::StatusOr<LogFrame::Received> TakeEntry(VarintReader& in, LogNumber previous) {
  LogFrame::Received out;
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t delta, in.Take("the number of an entry"));
  if (delta == 0 || delta > kMaxLogNumber - previous)
    return InvalidArgument("an entry {} after number {}, expected 1 to {}", delta, previous,
                           kMaxLogNumber - previous);
  out.header.number = previous + delta;
  FAIRWAY_ASSIGN_OR_RETURN(out.header.span, TakeSpan(in));
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t what, in.Take("the kind of an entry"));
  const uint64_t kind = what & ((1 << kKindBits) - 1);
  if (kind == 0 || kind > kMaxEntryKind)
    return InvalidArgument("an entry of kind {}, expected 1 to {}", kind, kMaxEntryKind);
  if (what >> kKindBits > kAllEntryFlags)
    return InvalidArgument("an entry with flags {}, expected at most {}", what >> kKindBits,
                           static_cast<int>(kAllEntryFlags));
  out.header.kind = static_cast<EntryKind>(kind);
  out.header.flags = static_cast<uint8_t>(what >> kKindBits);
  FAIRWAY_ASSIGN_OR_RETURN(const uint64_t size, in.Take("the length of an entry"));
  if (size > in.left())
    return InvalidArgument("a body of {} bytes, expected at most the {} that are left", size,
                           in.left());
  FAIRWAY_RETURN_IF_ERROR(CheckEntry(out.header.kind, out.header.flags, static_cast<size_t>(size)));
  out.body = in.TakeBytes(static_cast<size_t>(size));
  return out;
}

}  // namespace

LogFrameWriter::LogFrameWriter(uint64_t version, const LogRanges& concluded) {
  PutVarint(version, &bytes_);
  PutRanges(concluded, &bytes_);
}

size_t LogFrameWriter::BytesWith(const EntryHeader& header, size_t body_bytes) const {
  const size_t span =
      VarintBytes(WireOf(header.span)) +
      (header.span.is_one() ? 0 : VarintBytes(header.span.last - header.span.first));
  return bytes_.size() + VarintBytes(header.number - previous_) + span +
         VarintBytes(WireOfKind(header)) + VarintBytes(body_bytes) + body_bytes;
}

void LogFrameWriter::Add(const EntryHeader& header, std::string_view body, size_t more) {
  char numbers[5 * kMaxVarintBytes];
  char* end = PutVarint(header.number - previous_, numbers);
  end = PutVarint(WireOf(header.span), end);
  if (!header.span.is_one()) end = PutVarint(header.span.last - header.span.first, end);
  end = PutVarint(WireOfKind(header), end);
  end = PutVarint(body.size() + more, end);
  bytes_.append(numbers, end).append(body);
  previous_ = header.number;
  ++entries_;
}

absl::StatusOr<LogFrame> DecodeLogFrame(std::string_view bytes) {
  if (bytes.size() > kMaxLogFrameBytes)
    return InvalidArgument("a frame of {} bytes, expected at most {}", bytes.size(),
                           kMaxLogFrameBytes);
  VarintReader in(bytes);
  LogFrame out;
  FAIRWAY_ASSIGN_OR_RETURN(out.version, TakeVersion(in));
  FAIRWAY_ASSIGN_OR_RETURN(out.concluded, TakeRanges(in));
  LogNumber previous = 0;
  while (in.left() > 0) {
    if (out.entries.size() == kMaxFrameEntries)
      return InvalidArgument("{} bytes after {} entries, expected the end of the frame", in.left(),
                             out.entries.size());
    FAIRWAY_ASSIGN_OR_RETURN(LogFrame::Received entry, TakeEntry(in, previous));
    previous = entry.header.number;
    out.entries.push_back(entry);
  }
  return out;
}

std::string EncodeLogReport(const LogReport& report) {
  std::string out;
  PutVarint(report.version, &out);
  PutVarint(report.applied, &out);
  PutRanges(report.ended, &out);
  return out;
}

absl::StatusOr<LogReport> DecodeLogReport(std::string_view bytes) {
  if (bytes.size() > kMaxLogReportBytes)
    return InvalidArgument("a report of {} bytes, expected at most {}", bytes.size(),
                           kMaxLogReportBytes);
  VarintReader in(bytes);
  LogReport out;
  FAIRWAY_ASSIGN_OR_RETURN(out.version, TakeVersion(in));
  FAIRWAY_ASSIGN_OR_RETURN(out.applied, in.Take("what was applied"));
  if (out.applied > kMaxLogNumber)
    return InvalidArgument("applied up to {}, expected at most {}", out.applied, kMaxLogNumber);
  FAIRWAY_ASSIGN_OR_RETURN(out.ended, TakeRanges(in));
  if (in.left() > 0) return InvalidArgument("{} bytes after a report, expected none", in.left());
  return out;
}

}  // namespace fairway
