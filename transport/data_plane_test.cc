// SPDX-License-Identifier: Apache-2.0
#include "transport/data_plane.h"

#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "async/run_until.h"
#include "base/crc32c.h"
#include "base/host.h"
#include "identity/files_for_test.h"
#include "transport/channel.h"
#include "transport/connect.h"
#include "transport/data_protocol.h"
#include "transport/frame.h"
#include "transport/planes_for_test.h"
#include "transport/strangers.h"

namespace fairway {
namespace {

using testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(All, Planes, testing::Bool(), KindOf);

TEST_P(Planes, APullWithoutItsTicketGetsNothingAndTheRightOneIsServed) {
  int asked = 0;
  on_pull_ = [&](PullRequest, Answer answer) {
    ++asked;
    answer(View("12345"));
  };
  const auto refusal = [&](const Ticket& ticket) {
    got_.clear();
    PullWith(ticket, 1, 0, 5);
    EXPECT_TRUE(RunUntil(loop_, [&] { return !got_.empty(); }));
    const absl::Status status = got_.at({1, 0}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    return Text(status);
  };
  EXPECT_THAT(refusal({}), HasSubstr("incarnation 8 asked for bytes of transfer 1 with no ticket"));
  const Ticket right = SinksTicket(1);
  for (const Ticket& wrong :
       {Ticket{1, 2}, Ticket{right.first, right.second ^ 1}, SinksTicket(2),
        TicketFor(KeyOf(Incarnation(7)), TransferId(1), Incarnation(9)),  // another receiver's
        TicketFor(KeyOf(Incarnation(6)), TransferId(1), Incarnation(8)),  // for another source
        GangTicket(KeyOf(Incarnation(7)))}) {
    EXPECT_THAT(refusal(wrong), HasSubstr("with a wrong ticket"));
  }
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(source_->ServedBytes(), 0u);
  // On the same connection, which others use as well.
  EXPECT_TRUE(PullStatus(5).ok());
  EXPECT_EQ(asked, 1);
}

TEST_P(Planes, WrongTicketsHoldUpNoPullOnTheirConnection) {
  std::vector<Answer> held;
  on_pull_ = [&](PullRequest, Answer answer) { held.push_back(std::move(answer)); };
  Pull(1, 0, 5);
  ASSERT_TRUE(RunUntil(loop_, [&] { return held.size() == 1; }));
  for (int32_t index = 0; index < 5000; ++index) PullWith(SinksTicket(3), 2, index, 5);
  ASSERT_TRUE(RunUntil(loop_, [&] { return got_.size() == 5000; }));
  held[0](View("12345"));
  ASSERT_TRUE(RunUntil(loop_, [&] { return got_.size() == 5001; }));
  EXPECT_EQ(got_.at({1, 0}).value()->view(), "12345");
  EXPECT_EQ(held.size(), 1u);
}

TEST_P(Planes, RoundsTakeTheTicketOfGangsAndNoOther) {
  std::atomic<int> rounds = 0;
  auto source = *MakeTcpDataPlane(
      loop_, "127.0.0.1:0", "127.0.0.1", Incarnation(7), KeyOf(Incarnation(7)),
      [](PullRequest, Answer) {}, {},
      [&](PullRequest, Answer answer) {
        ++rounds;
        answer(View("round"));
      },
      {}, {}, tls_);
  std::mutex mutex;
  std::map<int32_t, absl::Status> ends;  // by index
  const auto pull = [&](int32_t index, const Ticket& ticket) {
    sink_->Pull(source->endpoint(), Incarnation(7),
                {TransferId(1), index, Incarnation(), 1, ticket}, 5, [&, index](auto blob) {
                  std::lock_guard lock(mutex);
                  ends[index] = blob.status();
                });
  };
  pull(0, {});
  pull(1, SinksTicket(1));
  pull(2, GangTicket(KeyOf(Incarnation(8))));
  pull(3, GangTicket(KeyOf(Incarnation(7))));
  ASSERT_TRUE(RunUntil(loop_, [&] {
    std::lock_guard lock(mutex);
    return ends.size() == 4;
  }));
  for (const int32_t index : {0, 1, 2})
    EXPECT_EQ(ends[index].code(), absl::StatusCode::kPermissionDenied) << index;
  EXPECT_EQ(ends[3], absl::OkStatus());
  EXPECT_EQ(rounds, 1);
}

TEST_P(Planes, PullsThatAreTakenBackEndOnBothSides) {
  std::map<uint64_t, Answer> asked;
  std::vector<uint64_t> taken;
  auto source = *MakeTcpDataPlane(
      loop_, "127.0.0.1:0", "127.0.0.1", Incarnation(7), KeyOf(Incarnation(7)),
      [&](PullRequest request, Answer answer) {
        asked.insert_or_assign(request.transfer.value, std::move(answer));
      },
      {}, {}, {}, [&](PullRequest request) { taken.push_back(request.transfer.value); }, tls_);
  endpoint_ = source->endpoint();
  Pull(1, 0, 5);
  Pull(2, 0, 5);
  ASSERT_TRUE(RunUntil(loop_, [&] { return asked.size() == 2; }));
  Pull(1, 1, 5);        // perhaps not sent yet
  Pull(1, 2, 1 << 20);  // not read in the loop, as small ones are
  sink_->TakeBack(endpoint_, TransferId(1));
  sink_->TakeBack(endpoint_, TransferId(3));
  sink_->TakeBack("127.0.0.1:1", TransferId(2));
  ASSERT_TRUE(RunUntil(loop_, [&] { return got_.size() == 3 && !taken.empty(); }));
  EXPECT_EQ(got_.at({1, 0}).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(got_.at({1, 1}).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(got_.at({1, 2}).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(taken[0], 1u);
  asked.at(1)(View("never"));
  asked.at(2)(View("22222"));
  ASSERT_TRUE(RunUntil(loop_, [&] { return got_.size() == 4; }));
  EXPECT_EQ((*got_.at({2, 0}))->view(), "22222");
}

class SecurePlanes : public Planes {
 protected:
  ~SecurePlanes() override {
    for (const int fd : silent_) ::close(fd);
  }
  // Connections that say nothing take all handshakes that this host may begin at the source. The
  // source has ended the last one when this returns: none of them is in the backlog any more.
  void TakeAllHandshakes() {
    const int port = SplitHostPort(source_->endpoint())->second;
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 2 * Pace::kAtOnce; ++i) {
      silent_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ASSERT_EQ(::connect(silent_.back(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    }
    ASSERT_TRUE(RunUntil(loop_, [&] {
      char byte;
      return ::recv(silent_.back(), &byte, 1, MSG_DONTWAIT) == 0;
    }));
  }
  std::vector<int> silent_;
};
INSTANTIATE_TEST_SUITE_P(All, SecurePlanes, testing::Values(true), KindOf);

TEST_P(SecurePlanes, APullWhoseHandshakeIsRefusedForItsPaceDialsAgain) {
  on_pull_ = [](PullRequest, Answer answer) { answer(View("bytes")); };
  TakeAllHandshakes();
  const absl::Status status = PullStatus(5);
  EXPECT_TRUE(status.ok()) << status;
}

// Each connection is let go of.
TEST_P(SecurePlanes, APullThatNobodyLetsInEndsInTime) {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
  int dialed = 0;
  std::thread refuses([&] {
    boost::system::error_code error;
    while (!error) {
      acceptor.accept(error);
      ++dialed;
    }
  });
  endpoint_ = fmt::format("127.0.0.1:{}", acceptor.local_endpoint().port());
  const absl::Status status = PullStatus(5);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status), HasSubstr("during the TLS handshake"));
  ::shutdown(acceptor.native_handle(), SHUT_RDWR);
  refuses.join();
  EXPECT_EQ(dialed, 8);  // one more that the end was
}

// Each connection ends behind its handshake, as one that makes room for another does.
TEST_P(Planes, APullWhoseConnectionsAreClosedBeforeItIsReadDialsAgainAndEndsInTime) {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
  Handshakes handshakes(tls_);
  int dialed = 0;
  std::function<void()> accept = [&] {
    acceptor.async_accept([&](const auto& error, boost::asio::ip::tcp::socket socket) {
      if (error) return;
      handshakes.Start(Neutral(std::move(socket)), [&](const Channel&) { ++dialed; });
      accept();
    });
  };
  accept();
  std::thread closes([&] { io.run(); });
  endpoint_ = fmt::format("127.0.0.1:{}", acceptor.local_endpoint().port());
  const absl::Status status = PullStatus(5);
  io.stop();
  closes.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status), HasSubstr("while pulling"));
  EXPECT_EQ(dialed, 7);
}

TEST_P(Planes, ThousandsOfSmallPullsEachGetTheirOwnBytes) {
  on_pull_ = [](PullRequest request, Answer answer) {
    answer(View(fmt::format("{:08}-{:08}", request.transfer, request.index)));
  };
  for (int i = 0; i < 5000; ++i) Pull(i / 10, i % 10, 17);
  ASSERT_TRUE(RunUntil(loop_, [&] { return got_.size() == 5000; }));
  for (const auto& [key, blob] : got_) {
    ASSERT_TRUE(blob.ok()) << blob.status();
    ASSERT_EQ((*blob)->view(), fmt::format("{:08}-{:08}", key.first, key.second));
  }
  EXPECT_EQ(source_->ServedBytes(), 5000u * 17);
  EXPECT_THAT(sink_->PulledBytes(),
              testing::ElementsAre(testing::Pair(source_->endpoint(), 5000u * 17)));
}

TEST_P(Planes, LargeShardsArriveIntactAndSmallOnesAreNotHeldUp) {
  auto large = Blob::Make(64 << 20);
  for (size_t i = 0; i < large->size(); i += 8) {
    const uint64_t word = i * 0x9e3779b97f4a7c15ull;
    std::memcpy(large->data() + i, &word, 8);
  }
  on_pull_ = [&](PullRequest request, Answer answer) {
    if (request.index == 0) return answer(DataView{large->view(), large});
    answer(View("small"));
  };
  std::vector<int32_t> order;
  for (int round = 0; round < 3; ++round) {
    order.clear();
    const auto start = std::chrono::steady_clock::now();
    for (const int32_t index : {0, 1}) {
      sink_->Pull(source_->endpoint(), Incarnation(7),
                  {TransferId(1), index, Incarnation(), 0, SinksTicket(1)},
                  index == 0 ? large->size() : 5, [&, index](auto blob) {
                    order.push_back(index);
                    ASSERT_TRUE(blob.ok()) << blob.status();
                    EXPECT_TRUE((*blob)->view() == (index == 0 ? large->view() : "small"));
                  });
    }
    ASSERT_TRUE(RunUntil(loop_, [&] { return order.size() == 2; }));
    EXPECT_THAT(order, testing::ElementsAre(1, 0));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::cout << "64 MiB in " << took.count() * 1e3 << " ms\n";
  }
}

TEST_P(Planes, AnEmptyShardIsAnAnswer) {
  on_pull_ = [](PullRequest, Answer answer) { answer(DataView{}); };
  Pull(1, 0, 0);
  ASSERT_TRUE(RunUntil(loop_, [&] { return !got_.empty(); }));
  ASSERT_TRUE(got_.begin()->second.ok());
  EXPECT_EQ((*got_.begin()->second)->size(), 0u);
}

TEST_P(Planes, AnswersOvertakeOneThatIsNotReady) {
  std::vector<Answer> held;
  on_pull_ = [&](PullRequest request, Answer answer) {
    if (request.index == 0) {
      held.push_back(std::move(answer));
    } else {
      answer(View("now"));
    }
  };
  for (int i = 0; i < 100; ++i) Pull(1, i, i == 0 ? 5 : 3);
  ASSERT_TRUE(RunUntil(loop_, [&] { return got_.size() == 99 && held.size() == 1; }));
  // From another thread, like a device runtime.
  std::thread([&] { held[0](View("later")); }).join();
  ASSERT_TRUE(RunUntil(loop_, [&] { return got_.size() == 100; }));
  EXPECT_EQ((*got_.at({1, 0}))->view(), "later");
}

TEST_P(Planes, PoisonKeepsItsCodeAndText) {
  on_pull_ = [](PullRequest, Answer answer) {
    answer(absl::DataLossError("host a, device 3: gone"));
  };
  EXPECT_EQ(PullStatus(4), absl::DataLossError("host a, device 3: gone"));
  // The connection survives.
  on_pull_ = [](PullRequest, Answer answer) { answer(View("fine")); };
  EXPECT_TRUE(PullStatus(4).ok());
}

TEST_P(Planes, ADroppedAnswerIsUnavailable) {
  on_pull_ = [](PullRequest, Answer) {};
  EXPECT_EQ(PullStatus(4).code(), absl::StatusCode::kUnavailable);
}

TEST_P(Planes, AnotherIncarnationIsRefusedWithoutAsking) {
  int asked = 0;
  on_pull_ = [&](PullRequest, Answer) { ++asked; };
  EXPECT_EQ(PullStatus(4, Incarnation(6)).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(asked, 0);
}

TEST_P(Planes, AShardForWhichThereIsNoBlockFailsAlone) {
  sink_ = Make(Incarnation(8), {}, {std::make_shared<MemoryBudget>(0), "/nowhere"});
  on_pull_ = [](PullRequest, Answer answer) { answer(View(std::string(1 << 20, 'x'))); };
  const absl::Status status = PullStatus(1 << 20);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(status), HasSubstr("/nowhere"));
  // The connection survives.
  on_pull_ = [](PullRequest, Answer answer) { answer(View("fine")); };
  EXPECT_TRUE(PullStatus(4).ok());
}

TEST_P(Planes, AnAddressOfVersion6IsAdvertisedInOnePairOfBrackets) {
  for (const std::string host : {"[::1]", "::1"}) {
    auto source = MakeTcpDataPlane(
        loop_, "[::1]:0", host, Incarnation(7), KeyOf(Incarnation(7)),
        [](PullRequest, Answer answer) { answer(View("six!")); }, {}, {}, {}, {}, tls_);
    if (!source.ok()) GTEST_SKIP() << "no IPv6 on this machine: " << source.status();
    endpoint_ = (*source)->endpoint();
    EXPECT_THAT(endpoint_, testing::StartsWith("[::1]:"));
    EXPECT_EQ(PullStatus(4), absl::OkStatus());
  }
}

TEST_P(Planes, TheSourceLearnsWhoPulls) {
  Incarnation from;
  on_pull_ = [&](PullRequest request, Answer answer) {
    from = request.from;
    answer(View("1234"));
  };
  EXPECT_TRUE(PullStatus(4).ok());
  EXPECT_EQ(from, Incarnation(8));
}

TEST_P(Planes, AnotherSizeIsDataLoss) {
  on_pull_ = [](PullRequest, Answer answer) { answer(View("12345")); };
  EXPECT_EQ(PullStatus(4).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(PullStatus(6).code(), absl::StatusCode::kDataLoss);
}

TEST_P(Planes, APeerThatDiesFailsItsPullsAndANewOneIsReached) {
  std::vector<Answer> held;
  on_pull_ = [&](PullRequest, Answer answer) { held.push_back(std::move(answer)); };
  for (int i = 0; i < 10; ++i) Pull(1, i, 4);
  ASSERT_TRUE(RunUntil(loop_, [&] { return held.size() == 10; }));
  endpoint_ = source_->endpoint();
  source_ = nullptr;
  ASSERT_TRUE(RunUntil(loop_, [&] { return got_.size() == 10; }));
  for (const auto& [key, blob] : got_)
    EXPECT_EQ(blob.status().code(), absl::StatusCode::kUnavailable);
  held[0](View("nobody listens"));  // nobody listens; it does no harm
  EXPECT_EQ(PullStatus(4).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(got_.begin()->second.status()), HasSubstr(endpoint_));
}

TEST_P(Planes, ConnectionsToSourcesThatAreGoneKeepNoMemory) {
  on_pull_ = [](PullRequest, Answer answer) { answer(View("1234")); };
  const auto from_many = [&](int sources) {
    for (int i = 0; i < sources; ++i) {
      source_ = Make(Incarnation(7), [this](PullRequest request, Answer answer) {
        on_pull_(request, std::move(answer));
      });
      ASSERT_TRUE(PullStatus(4).ok());
    }
    source_ = nullptr;
  };
  from_many(10);  // takes blocks that are kept for the next ones
  const size_t before = mallinfo2().uordblks;
  from_many(100);  // takes 64 KiB each to receive into
  EXPECT_TRUE(RunUntil(loop_, [&] { return mallinfo2().uordblks < before + (2 << 20); }))
      << mallinfo2().uordblks - before;
  // The bytes pulled from them still count.
  uint64_t pulled = 0;
  for (const auto& [endpoint, bytes] : sink_->PulledBytes()) pulled += bytes;
  EXPECT_EQ(pulled, 110u * 4);
}

TEST_P(Planes, DestroyedWithPullsUnderWayCallsNobody) {
  std::vector<Answer> held;
  on_pull_ = [&](PullRequest, Answer answer) { held.push_back(std::move(answer)); };
  Pull(1, 0, 4);
  ASSERT_TRUE(RunUntil(loop_, [&] { return held.size() == 1; }));
  sink_ = nullptr;
  held.clear();
  EXPECT_FALSE(RunUntil(
      loop_, [&] { return !got_.empty(); }, std::chrono::milliseconds(50)));
}

constexpr size_t kPullBytes = kFrameHeaderBytes + 56;

// A source that sends given bytes to a puller that connects, each when it has got so many bytes of
// requests.
class RawSource {
 public:
  using Answers = std::vector<std::pair<size_t, std::string>>;
  explicit RawSource(std::string bytes) : RawSource(Answers{{kPullBytes, std::move(bytes)}}) {}
  // Before, it closes so many connections without a word.
  explicit RawSource(Answers answers, int closed = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 1), 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answers = std::move(answers), closed] {
      for (int i = 0; i < closed; ++i) ::close(::accept(fd_, nullptr, nullptr));
      const int peer = ::accept(fd_, nullptr, nullptr);
      for (const auto& [asked, answer] : answers) {
        std::string requests(asked, '\0');
        EXPECT_EQ(::recv(peer, requests.data(), asked, MSG_WAITALL), static_cast<ssize_t>(asked));
        EXPECT_EQ(::send(peer, answer.data(), answer.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(answer.size()));
      }
      ::shutdown(peer, SHUT_WR);
      char more[64];
      while (::recv(peer, more, sizeof more, 0) > 0) {
      }
      ::close(peer);
    });
  }
  ~RawSource() {
    thread_.join();
    ::close(fd_);
  }
  std::string endpoint() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  int fd_;
  int port_ = 0;
  std::thread thread_;
};

std::string Chunk(uint64_t id, uint64_t offset, bool last, const std::string& bytes) {
  std::string out(kFrameHeaderBytes, '\0');
  EncodeFrameHeader({.type = data::kChunk,
                     .flags = last ? data::kLast : uint16_t{0},
                     .id = id,
                     .offset = offset,
                     .length = static_cast<uint32_t>(bytes.size()),
                     .crc = Crc32c(bytes)},
                    out.data());
  return out + bytes;
}

class PlanesAndRawSources : public Planes {};
INSTANTIATE_TEST_SUITE_P(All, PlanesAndRawSources, testing::Values(false), KindOf);

TEST_P(PlanesAndRawSources, WrongBytesFromASourceAreDataLossOrUnavailable) {
  const auto after = [this](std::string bytes) {
    RawSource source(std::move(bytes));
    endpoint_ = source.endpoint();
    const absl::Status status = PullStatus(8);
    sink_ = Make(Incarnation(8), [](PullRequest, Answer) {});  // closes the connection
    return status;
  };
  EXPECT_TRUE(after(Chunk(1, 0, false, "1234") + Chunk(1, 4, true, "5678")).ok());
  std::string flipped = Chunk(1, 0, true, "12345678");
  flipped.back() ^= 1;
  EXPECT_EQ(after(flipped).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(after(Chunk(1, 0, true, "1234")).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(after(Chunk(1, 0, false, "123456789")).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(after(Chunk(1, 4, false, "1234")).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(after(Chunk(1, ~uint64_t{0}, false, "1234")).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(after(Chunk(9, 0, true, "12345678")).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(after(Chunk(1, 0, false, "1234")).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(after("garbage that is longer than a frame header").code(),
            absl::StatusCode::kUnavailable);
}

TEST_P(PlanesAndRawSources, APullWhoseConnectionIsClosedBeforeItIsReadIsAskedAgain) {
  RawSource source(RawSource::Answers{{2 * kPullBytes,
                                       Chunk(1, 0, true, "12345678") + Chunk(2, 0, true, "abc")}},
                   2);
  endpoint_ = source.endpoint();
  Pull(1, 0, 8);
  Pull(2, 0, 3);
  ASSERT_TRUE(RunUntil(loop_, [&] { return got_.size() == 2; }));
  ASSERT_TRUE(got_.at({1, 0}).ok()) << got_.at({1, 0}).status();
  EXPECT_EQ((*got_.at({1, 0}))->view(), "12345678");
  ASSERT_TRUE(got_.at({2, 0}).ok()) << got_.at({2, 0}).status();
  EXPECT_EQ((*got_.at({2, 0}))->view(), "abc");
  sink_ = nullptr;  // closes the connection
}

TEST_P(PlanesAndRawSources, AnErrorThatIsTooLongEndsTheConnectionBeforeItsBytesCome) {
  std::string header(kFrameHeaderBytes, '\0');
  EncodeFrameHeader({.type = data::kError, .id = 1, .length = 64 << 20}, header.data());
  RawSource source(header);
  endpoint_ = source.endpoint();
  const absl::Status status = PullStatus(8);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status), HasSubstr("67108864 bytes"));
}

TEST_P(PlanesAndRawSources, AChunkThatBeganBeforeItsPullIsNotWrittenAnywhere) {
  // Half of a chunk of pull 2, far longer than its 8 bytes, before pull 2 exists.
  const std::string early = Chunk(2, uint64_t{1} << 40, false, std::string(4096, 'x'));
  const std::string first = Chunk(1, 0, true, "12345678") + early.substr(0, 1024);
  RawSource source(RawSource::Answers{
      {kPullBytes, first}, {kPullBytes, early.substr(1024) + Chunk(2, 0, true, "abcdefgh")}});
  endpoint_ = source.endpoint();
  EXPECT_TRUE(PullStatus(8).ok());
  EXPECT_TRUE(PullStatus(8).ok());
  EXPECT_EQ((*got_.begin()->second)->view(), "abcdefgh");
  sink_ = nullptr;  // closes the connection
}

// Earlier the process ended, or the bytes were written to memory that others had by then.
TEST_P(PlanesAndRawSources, APullMayBeTakenBackInTheMiddleOfAChunk) {
  constexpr int64_t kLong = 32 << 10;
  const std::string chunk = Chunk(2, 0, true, std::string(kLong, 'x'));
  // The first pull's end tells that the chunk has begun: one packet has both.
  RawSource source(
      RawSource::Answers{{2 * kPullBytes, Chunk(1, 0, true, "12345678") + chunk.substr(0, 1024)},
                         {kFrameHeaderBytes + kPullBytes,
                          chunk.substr(1024) + Chunk(3, 0, true, std::string(kLong, 'y'))}});
  endpoint_ = source.endpoint();
  Pull(1, 0, 8);
  Pull(2, 0, kLong);
  ASSERT_TRUE(RunUntil(loop_, [&] { return got_.contains({1, 0}); }));
  sink_->TakeBack(endpoint_, TransferId(2));
  ASSERT_TRUE(RunUntil(loop_, [&] { return got_.contains({2, 0}); }));
  EXPECT_EQ(got_.at({2, 0}).status().code(), absl::StatusCode::kCancelled);
  Pull(3, 0, kLong);
  ASSERT_TRUE(RunUntil(loop_, [&] { return got_.contains({3, 0}); }));
  EXPECT_EQ((*got_.at({3, 0}))->view(), std::string(kLong, 'y'));
  sink_ = nullptr;  // closes the connection
}

}  // namespace
}  // namespace fairway
