// SPDX-License-Identifier: Apache-2.0
// Frames and reports of an island's log. An accepted one has a single encoding. An executor's end
// and the controller's end keep their rules, whatever comes.
#include <string>
#include <string_view>
#include <utility>

#include "log/follower.h"
#include "log/head.h"
#include "tests/fuzz/fuzz.h"

namespace fairway::fuzz {
namespace {

constexpr uint32_t kChildren = 3;

enum Kind : uint8_t {
  kFrame = 0,   // for executor 0
  kReport = 1,  // byte: the child; its report
  kAppend = 2,  // byte: an executor, or from 3 on 0 and 1; byte: flags; the body
  kSend = 3,    // byte: the child whose next frame leaves; executor 0 gets the first child's
  kAttach = 4,  // byte: the child; byte: what it claims to have received
  kBegin = 5,   // a new version
  kEnd = 6,     // byte: the entry of executor 0 that runs
};

std::string Encoded(const LogFrame& frame) {
  LogFrameWriter writer(frame.version, frame.concluded);
  for (const LogFrame::Received& entry : frame.entries) writer.Add(entry.header, entry.body);
  return writer.Take();
}

class Island {
 public:
  Island() { Begin(); }

  void On(const Record& record) {
    Reader in(record.payload);
    switch (record.kind) {
      case kFrame:
        return OnFrame(in.Rest());
      case kReport: {
        const uint32_t child = in.Byte();
        return OnReport(child, in.Rest());
      }
      case kAppend:
        return Append(in);
      case kSend:
        return Send(in.Byte() % kChildren);
      case kAttach: {
        const uint32_t child = in.Byte();
        return (void)head_.Attach(child, in.Byte());
      }
      case kBegin:
        return Begin();
      default:
        if (!follower_.running().empty()) (void)follower_.Ended(in.Byte());
    }
  }

  void Check() {
    FUZZ_CHECK(head_.CheckInvariants().ok());
    FUZZ_CHECK(follower_.CheckInvariants().ok());
  }

 private:
  void Begin() { FUZZ_CHECK(head_.Begin({{{{0, 0}}}, {{{1, 0}}}, {{{2, 0}}}}).ok()); }

  void OnFrame(std::string_view bytes) {
    const auto frame = DecodeLogFrame(bytes);
    if (!frame.ok()) return;
    FUZZ_CHECK(Encoded(*frame) == bytes);
    const auto fresh = follower_.Take(*frame);
    if (!fresh.ok()) return;
    FUZZ_CHECK(fresh->size() <= frame->entries.size());
  }

  void OnReport(uint32_t child, std::string_view bytes) {
    const auto report = DecodeLogReport(bytes);
    if (!report.ok()) return;
    FUZZ_CHECK(EncodeLogReport(*report) == bytes);
    const size_t before = head_.log().open().size();
    (void)head_.Take(child, *report);
    FUZZ_CHECK(head_.log().open().size() + head_.TakeConcluded().size() == before);
  }

  void Append(Reader in) {
    const uint8_t to = in.Byte() % 4;
    NewLogEntry entry;
    entry.session = SessionId(1);
    entry.span = to < kChildren ? LogSpan::One(to) : LogSpan{0, 1};
    entry.kind = EntryKind::kRun;
    entry.flags = in.Byte() & kAllEntryFlags & ~kBulkEntry;
    entry.body = in.Rest();
    (void)head_.Append(std::move(entry));
  }

  void Send(uint32_t child) {
    if (!head_.outbox(child).HasNews()) return;
    const std::string bytes = head_.Next(child);
    FUZZ_CHECK(DecodeLogFrame(bytes).ok());
    if (child == 0) OnFrame(bytes);
  }

  LogHead head_{LogLimits{1 << 16, 1 << 16, 1 << 10}};
  LogFollower follower_{0};
};

}  // namespace

const google::protobuf::Message* Prototype(uint8_t) { return nullptr; }

}  // namespace fairway::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fairway::fuzz;
  Island island;
  for (const Record& record : Cut({reinterpret_cast<const char*>(data), size})) {
    island.On(record);
    island.Check();
  }
  return 0;
}
