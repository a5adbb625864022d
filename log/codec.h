// SPDX-License-Identifier: Apache-2.0
// The bytes of frames and reports (docs/design/0062-the-log.md), payloads of one frame of a link
// each. A varint is as in varint.h. Decoders refuse, with INVALID_ARGUMENT and what was expected,
// all that an encoder does not write; what they allocate is bounded by the bytes that are there.
// No state; any thread.
//
//   frame   version, count, ranges {first minus the last before (0 at the beginning), last minus
//           first}, then entries to its end {number minus the number before (0 at the beginning),
//           set, kind + 16 * flags, bytes of the body, the body}
//   report  version, applied, count, ranges
#ifndef FAIRWAY_LOG_CODEC_H_
#define FAIRWAY_LOG_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "log/entry.h"
#include "log/ranges.h"

namespace fairway {

// Of one frame or report, so that small bytes do not become large values.
inline constexpr size_t kMaxFrameRanges = 1 << 16;
inline constexpr size_t kMaxFrameEntries = 1 << 16;
inline constexpr size_t kMaxLogReportBytes = 2 << 20;

// From a parent to a child.
struct LogFrame {
  struct Received {
    EntryHeader header;
    std::string_view body;  // in the bytes that were decoded
  };
  // R3: of the tree. The first frame of a version tells the child of it.
  uint64_t version = 0;
  // R2: all executors that they concern have ended these, so results that were kept for them may
  // go. Also numbers that do not concern the child.
  LogRanges concluded;
  std::vector<Received> entries;  // numbers ascending
};

// From a child to its parent.
struct LogReport {
  // R3: who gets a report of an older version than its own lets it count for nothing.
  uint64_t version = 0;
  // Every entry up to this number that concerns the child has come to it. Says from where on to
  // replay, and what its link still holds; ends nothing.
  LogNumber applied = 0;
  // R2: numbers that all executors below the child which they concern have ended. Only numbers that
  // do concern it; in a version's first reports all that it does not know to be concluded, then
  // the newly ended ones. Told twice is no error.
  LogRanges ended;
};

class LogFrameWriter {
 public:
  // `concluded`: at most kMaxFrameRanges.
  LogFrameWriter(uint64_t version, const LogRanges& concluded);
  // How many bytes the frame would have with this entry.
  size_t BytesWith(const EntryHeader& header, size_t body_bytes) const;
  // Numbers ascending; at most kMaxFrameEntries.
  void Add(const EntryHeader& header, std::string_view body);
  size_t entries() const { return entries_; }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
  LogNumber previous_ = 0;
  size_t entries_ = 0;
};

// `bytes` must live as long as the bodies are used.
absl::StatusOr<LogFrame> DecodeLogFrame(std::string_view bytes);

// `report.ended`: at most kMaxFrameRanges.
std::string EncodeLogReport(const LogReport& report);
absl::StatusOr<LogReport> DecodeLogReport(std::string_view bytes);

}  // namespace fairway

#endif  // FAIRWAY_LOG_CODEC_H_
