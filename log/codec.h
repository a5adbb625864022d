// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes frames and reports (docs/design/0062-the-log.md). Each is the payload of one
// frame of a link. Varints are as in varint.h. Decoders refuse what no encoder writes:
// INVALID_ARGUMENT, with what was expected. They allocate no more than the given bytes justify. No
// state; any thread.
//
//   frame   version, count, ranges {first minus the last before (0 at the beginning), last minus
//           first}, then entries to its end {number minus the number before (0 at the beginning),
//           2 * first executor + 1 if there are several, if so the last minus the first, kind +
//           16 * flags, bytes of the body, the body}
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

// Limits of one frame or report: few bytes must not become large values.
inline constexpr size_t kMaxFrameRanges = 1 << 16;
inline constexpr size_t kMaxFrameEntries = 1 << 16;
inline constexpr size_t kMaxLogReportBytes = 2 << 20;

// From a parent to a child.
struct LogFrame {
  struct Received {
    EntryHeader header;
    std::string_view body;  // points into the decoded bytes
  };
  // R3: the tree's version. The first frame of a version announces it to the child.
  uint64_t version = 0;
  // R2: concluded entries, for which no results need to be kept any more. Some may not concern the
  // child.
  LogRanges concluded;
  std::vector<Received> entries;  // numbers ascending
};

// From a child to its parent.
struct LogReport {
  // R3: a parent ignores reports of versions older than its own.
  uint64_t version = 0;
  // Every entry up to this number that concerns the child has come to it. Replay goes on after it,
  // and later entries may still be on the link. It says nothing about ends.
  LogNumber applied = 0;
  // R2: entries that have ended on all executors below the child that they concern. Each concerns
  // the child. The first reports of a version name all that the child does not know to be
  // concluded; later ones name newly ended entries. Naming one twice is no error.
  LogRanges ended;
};

class LogFrameWriter {
 public:
  // `concluded`: at most kMaxFrameRanges.
  LogFrameWriter(uint64_t version, const LogRanges& concluded);
  // The bytes of the frame if this entry is added.
  size_t BytesWith(const EntryHeader& header, size_t body_bytes) const;
  // Numbers must ascend; at most kMaxFrameEntries. `more`: bytes of the body that the caller sends
  // behind the frame; no entry may follow.
  void Add(const EntryHeader& header, std::string_view body, size_t more = 0);
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
