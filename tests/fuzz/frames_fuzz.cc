// SPDX-License-Identifier: Apache-2.0
// The bytes of framed links and of the data plane, both sides of it, through real sockets. Whatever
// frames claim to be, they are cut, checked and put where they belong.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "async/event_loop.h"
#include "base/crc32c.h"
#include "tests/fuzz/fuzz.h"
#include "transport/data_client.h"
#include "transport/data_server.h"
#include "transport/frame.h"
#include "transport/link.h"

namespace fairway::fuzz {
namespace {

constexpr Incarnation kHere{7};
constexpr PortKey kKey{1, 2};
constexpr int64_t kLargest = 1 << 18;  // bytes of one shard

// The kind of the first record names the reader: kLink, kServer or kClient. Later records:
enum Kind : uint8_t {
  kFrame = 0,  // byte: type; byte: flags; byte: id; byte: 1 = offset is a long, else 0; payload
  kRaw = 1,    // bytes as they are
  kPull = 2,   // the client pulls this many bytes: short, times 16
  kAnswer =
      3,  // the server answers its oldest request: byte 0 = an error, else the bytes asked for
  kBroken = 4,  // as kFrame, with a wrong checksum
  kHalf = 5,    // as kFrame; its second half comes with the next record
  // Of a server: a pull, as short: bytes, times 16; byte: id; byte: 1 = of a round; byte: 1 = with
  // a wrong ticket; byte: 1 = without any
  kAsk = 6,
  kPush = 7,  // of a server: as kAsk, but a push of the rest
};

// The tested side has one end, and the fuzzer has the other.
struct Pair {
  Pair() {
    int fds[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    theirs = fds[0];
    ours = fds[1];
  }
  ~Pair() { close(ours); }
  int theirs, ours;
};

std::string FrameBytes(Reader in, bool broken) {
  FrameHeader header;
  header.type = in.Byte();
  header.flags = in.Byte();
  header.id = in.Byte();
  if (in.Byte() == 1) header.offset = static_cast<uint64_t>(in.Long());
  const std::string_view payload = in.Rest();
  header.length = static_cast<uint32_t>(payload.size());
  header.crc = Crc32c(payload) + (broken ? 1 : 0);
  std::string out(kFrameHeaderBytes, '\0');
  EncodeFrameHeader(header, out.data());
  return out.append(payload);
}

std::string FrameOf(uint8_t type, uint64_t id, std::string_view payload) {
  FrameHeader header;
  header.type = type;
  header.id = id;
  header.length = static_cast<uint32_t>(payload.size());
  header.crc = Crc32c(payload);
  std::string out(kFrameHeaderBytes, '\0');
  EncodeFrameHeader(header, out.data());
  return out.append(payload);
}

Ticket Shown(Reader& in, Ticket right) {
  if (in.Byte() == 1) right.second ^= 1;
  return in.Byte() == 1 ? Ticket() : right;
}

std::string AskBytes(Reader in) {
  data::WireRequest asked;
  asked.incarnation = kHere;
  asked.bytes = 16 * in.Short() % kLargest;
  const uint8_t id = in.Byte();
  asked.request.transfer = TransferId(id);
  asked.request.from = Incarnation(8);
  asked.request.round = in.Byte() == 1 ? 1 : 0;
  asked.request.ticket = Shown(
      in, asked.request.round != 0 ? GangTicket(kKey)
                                   : TicketFor(kKey, asked.request.transfer, asked.request.from));
  return FrameOf(data::kPull, id, data::Encode(asked));
}

std::string PushBytes(Reader in) {
  data::WirePush push;
  push.to = kHere;
  push.name.launch = in.Short();
  push.name.part = in.Byte();
  push.name.round = in.Byte();
  push.ticket = Shown(in, GangTicket(kKey));
  return FrameOf(data::kPush, 0, data::Encode(push, in.Rest()));
}

// The bytes that the peer sends for `record`; `rest` is what an earlier one left.
std::string BytesOf(const Record& record, std::string& rest) {
  std::string out = std::exchange(rest, {});
  switch (record.kind) {
    case kRaw:
      return out += record.payload;
    case kFrame:
    case kBroken:
      return out += FrameBytes(Reader(record.payload), record.kind == kBroken);
    case kAsk:
      return out += AskBytes(Reader(record.payload));
    case kPush:
      return out += PushBytes(Reader(record.payload));
    case kHalf: {
      const std::string frame = FrameBytes(Reader(record.payload), false);
      rest = frame.substr(frame.size() / 2);
      return out += frame.substr(0, frame.size() / 2);
    }
    default:
      return out;
  }
}

// Writes as much as fits, and reads what the other side sent, so that it never blocks.
void Say(int fd, const std::string& bytes) {
  (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  char said[4096];
  while (recv(fd, said, sizeof said, 0) > 0) continue;
}

void TestLink(const std::vector<Record>& records) {
  EventLoop loop;
  Pair pair;
  auto link = AdoptSocket(loop, pair.theirs);
  size_t received = 0, sent = 0;
  bool closed = false;
  link->on_frame = [&](Frame frame) {
    FUZZ_CHECK(!closed);
    received += kFrameHeaderBytes + frame.payload.size();
  };
  link->on_closed = [&](absl::Status) {
    FUZZ_CHECK(!closed);
    closed = true;
  };
  std::string rest;
  for (const Record& record : records) {
    const std::string bytes = BytesOf(record, rest);
    sent += bytes.size();
    Say(pair.ours, bytes);
    loop.io_context().restart();
    loop.io_context().poll();
  }
  shutdown(pair.ours, SHUT_WR);
  loop.io_context().restart();
  loop.io_context().poll();
  FUZZ_CHECK(closed);
  FUZZ_CHECK(received <= sent);
}

StreamSocket Adopt(boost::asio::io_context& io, int fd) {
  StreamSocket socket(io);
  socket.assign(boost::asio::generic::stream_protocol(AF_UNIX, 0), fd);
  return socket;
}

void Poll(boost::asio::io_context& io) {
  io.restart();
  io.poll();
}

void TestServer(const std::vector<Record>& records) {
  boost::asio::io_context io(1);
  Pair pair;
  std::vector<uint64_t> asked;
  uint64_t offered = 0;
  bool ended = false;
  auto stream = std::make_shared<data::ServerStream>(
      Adopt(io, pair.theirs), kHere, kKey,
      [&](std::shared_ptr<data::ServerStream>, uint64_t id, PullRequest request) {
        FUZZ_CHECK(!ended);
        const Ticket right =
            request.round != 0 ? GangTicket(kKey) : TicketFor(kKey, request.transfer, request.from);
        FUZZ_CHECK(request.ticket == right);
        asked.push_back(id);
      },
      [&](data::ServerStream*) { ended = true; }, std::make_shared<std::atomic<uint64_t>>(0),
      [&](const PushName&, std::shared_ptr<Blob>& pushed) {
        FUZZ_CHECK(!ended && pushed != nullptr && pushed->size() <= kMaxPushBytes);
        return ++offered % 2 == 0;
      });
  stream->Start();
  const auto bytes = std::make_shared<std::string>(kLargest, 'b');
  std::string rest;
  for (const Record& record : records) {
    if (record.kind == kAnswer && !asked.empty()) {
      Reader in(record.payload);
      if (in.Byte() == 0) {
        stream->Answer(asked.front(), absl::NotFoundError("gone"));
      } else {
        stream->Answer(
            asked.front(),
            DataView{std::string_view(*bytes).substr(0, 16 * in.Short() % kLargest), bytes});
      }
      asked.erase(asked.begin());
    }
    Say(pair.ours, BytesOf(record, rest));
    Poll(io);
    if (!stream->closed()) stream->RetryPush();
  }
  shutdown(pair.ours, SHUT_WR);
  Poll(io);
  stream->CloseNow();
  Poll(io);
}

void TestClient(const std::vector<Record>& records) {
  boost::asio::io_context io(1);
  Pair pair;
  const auto pulled = std::make_shared<std::atomic<uint64_t>>(0);
  bool ended = false;
  auto stream = std::make_shared<data::ClientStream>(
      Adopt(io, pair.theirs), "peer", pulled, BlockPool::Make(1 << 20),
      [&](std::vector<data::PendingPull> unheard, const absl::Status& why) {
        ended = true;
        for (data::PendingPull& pull : unheard) pull.done(why);
      });
  stream->Start();
  size_t begun = 0, done = 0;
  std::string rest;
  for (const Record& record : records) {
    if (record.kind == kPull && !stream->closed()) {
      data::PendingPull pull;
      pull.request.incarnation = kHere;
      pull.request.bytes = 16 * Reader(record.payload).Short() % kLargest;
      pull.done = [&, bytes = pull.request.bytes](absl::StatusOr<std::shared_ptr<Blob>> blob) {
        ++done;
        if (blob.ok()) FUZZ_CHECK(static_cast<int64_t>((*blob)->size()) == bytes);
      };
      ++begun;
      stream->Pull(std::move(pull));
    }
    Say(pair.ours, BytesOf(record, rest));
    Poll(io);
  }
  shutdown(pair.ours, SHUT_WR);
  Poll(io);
  FUZZ_CHECK(stream->closed() && ended);
  FUZZ_CHECK(done == begun);
}

}  // namespace

const google::protobuf::Message* Prototype(uint8_t) { return nullptr; }

}  // namespace fairway::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fairway::fuzz;
  std::vector<Record> records = Cut({reinterpret_cast<const char*>(data), size});
  if (records.empty()) return 0;
  const int who = records.front().kind % 3;
  records.erase(records.begin());
  if (who == 0) TestLink(records);
  if (who == 1) TestServer(records);
  if (who == 2) TestClient(records);
  return 0;
}
