// SPDX-License-Identifier: Apache-2.0
#include "controller/sessions/stream.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <future>
#include <vector>

#include <gtest/gtest.h>

#include "async/run_until.h"

namespace fairway {
namespace {

// Its messages are numbers, which stand for their sizes in bytes.
class Numbers final : public SessionStream<size_t, size_t, size_t> {
 public:
  explicit Numbers(Context context) : SessionStream(std::move(context)) {}
  void Say(size_t bytes) {
    *into_ = bytes;
    ReadDone(true);
  }
  void Leave() { TransportDone(); }
  void Answer(size_t answer, bool may_wait) {
    Send(
        [&] {
          answers_.push_back(answer);
          return answer;
        },
        may_wait);
  }
  void Written() { WriteDone(true); }

  bool brief = false;
  int reads = 0, handled = 0;
  std::vector<size_t> written;  // the last one: WriteDone may be to come
  std::function<void()> on_items = [] {};

 private:
  void StartReading(size_t* into) override {
    into_ = into;
    ++reads;
  }
  void StartWriting(const size_t* answer, bool /*more*/) override { written.push_back(*answer); }
  void FinishStream(const absl::Status&) override {}
  Outgoing Next() override {
    if (answers_.empty()) return {};
    const size_t answer = answers_.front();
    answers_.pop_front();
    return {std::make_unique<size_t>(answer), answer, !answers_.empty()};
  }
  void DropUnsent() override {}
  absl::StatusOr<Decoded> Decode(std::unique_ptr<size_t> message) override {
    return Decoded{*message, *message, *message + 1};
  }
  absl::Status OpenSession() override { return absl::OkStatus(); }
  Going HandleAll(std::vector<size_t> items) override {
    for (const size_t bytes : items) {
      ++handled;
      GiveUp(std::make_unique<size_t>(bytes), bytes, brief);
    }
    if (!items.empty()) on_items();
    return Going::kOn;
  }
  void FailSession(const absl::Status&) override {}
  void CloseSession() override {}

  size_t* into_ = nullptr;
  std::deque<size_t> answers_;
};

TEST(SessionStreamTest, ASessionWaitsUntilItsLargeMessagesAreDestroyed) {
  EventLoop loop;
  const auto garbage = std::make_shared<BlockingPool>("garbage", 1);
  std::promise<void> goes_on;
  garbage->Run([gate = goes_on.get_future()] { gate.wait(); });
  const auto stream =
      std::make_shared<Numbers>(Numbers::Context{&loop, nullptr, 1, [] {}, "number", garbage});
  stream->Start();
  ASSERT_TRUE(RunUntil(loop, [&] { return stream->reads == 1; }));
  stream->Say(1 << 20);
  ASSERT_TRUE(RunUntil(loop, [&] { return stream->handled == 1 && stream->reads == 2; }));
  stream->Say(20 << 20);
  ASSERT_TRUE(RunUntil(loop, [&] { return stream->handled == 2; }));
  ASSERT_TRUE(RunUntil(loop, [looks = 0]() mutable { return ++looks > 20; }));
  EXPECT_EQ(stream->reads, 2) << "it is read, though nothing of its has been destroyed";
  EXPECT_EQ(garbage->pending(), 3u);
  goes_on.set_value();
  EXPECT_TRUE(RunUntil(loop, [&] { return stream->reads == 3; }));
  stream->Leave();
  ASSERT_TRUE(RunUntil(loop, [&] { return stream.use_count() == 1; }));
}

TEST(SessionStreamTest, NobodyWaitsForAMessageThatTakesLittleToDestroy) {
  EventLoop loop;
  const auto garbage = std::make_shared<BlockingPool>("garbage", 1);
  const auto messages = std::make_shared<MemoryBudget>(int64_t{100} << 20);
  std::promise<void> goes_on;
  garbage->Run([gate = goes_on.get_future()] { gate.wait(); });
  const auto stream = std::make_shared<Numbers>(
      Numbers::Context{&loop, nullptr, 1, [] {}, "number", garbage, messages});
  stream->brief = true;
  stream->Start();
  ASSERT_TRUE(RunUntil(loop, [&] { return stream->reads == 1; }));
  stream->Say(20 << 20);
  EXPECT_TRUE(RunUntil(loop, [&] { return stream->handled == 1 && stream->reads == 2; }));
  EXPECT_EQ(garbage->pending(), 1u);
  EXPECT_EQ(messages->used(), 0);
  goes_on.set_value();
  stream->Leave();
  ASSERT_TRUE(RunUntil(loop, [&] { return stream.use_count() == 1; }));
}

TEST(SessionStreamTest, ItSaysHowManyBytesOfMessagesItHasTaken) {
  EventLoop loop;
  size_t took = 0;
  const auto stream = std::make_shared<Numbers>(Numbers::Context{
      &loop, nullptr, 1, [] {}, "number", nullptr, nullptr, [&](size_t bytes) { took += bytes; }});
  stream->Start();
  ASSERT_TRUE(RunUntil(loop, [&] { return stream->reads == 1; }));
  stream->Say(7);
  EXPECT_EQ(took, 8u);  // on the wire it has one more
  stream->Leave();
  ASSERT_TRUE(RunUntil(loop, [&] { return stream.use_count() == 1; }));
}

TEST(SessionStreamTest, AnswersThatMayWaitAreWrittenBeforeTheNextThatMayNotOrAfterAWhile) {
  using Clock = std::chrono::steady_clock;
  EventLoop loop;
  const auto stream = std::make_shared<Numbers>(Numbers::Context{&loop, nullptr, 1, [] {}, "n"});
  stream->Start();
  ASSERT_TRUE(RunUntil(loop, [&] { return stream->reads == 1; }));
  // Answers in one turn; the last one may wait or not. Looks in the next turn, then takes all.
  const auto answer = [&](size_t answers, bool last_may_wait, size_t written_at_once) {
    stream->written.clear();
    const auto began = Clock::now();
    bool looked = false;
    stream->on_items = [&] {
      for (size_t i = 1; i <= answers; ++i) stream->Answer(i, last_may_wait || i < answers);
      loop.Post("look", [&] {
        looked = true;
        if (Clock::now() - began < std::chrono::milliseconds(1) || written_at_once > 0)
          EXPECT_EQ(stream->written.size(), written_at_once) << answers;
      });
    };
    stream->Say(1);
    EXPECT_TRUE(RunUntil(loop, [&] { return looked; }));
    for (size_t i = 1; i <= answers; ++i) {
      EXPECT_TRUE(RunUntil(loop, [&] { return stream->written.size() == i; }));
      EXPECT_EQ(stream->written.back(), i);
      stream->Written();
    }
  };
  answer(2, true, 0);
  answer(2, false, 1);
  answer(1, false, 1);
  answer(32, true, 1);  // many
  stream->Leave();
  ASSERT_TRUE(RunUntil(loop, [&] { return stream.use_count() == 1; }));
}

// However many streams there are: the one that holds most waits, and small ones go on.
TEST(SessionStreamTest, AStreamThatHoldsMoreThanItLeavesToOthersWaits) {
  EventLoop loop;
  const auto messages = std::make_shared<MemoryBudget>(int64_t{3} << 20);
  const auto garbage = std::make_shared<BlockingPool>("garbage", 1);
  std::promise<void> goes_on;
  garbage->Run([gate = goes_on.get_future()] { gate.wait(); });
  std::vector<std::shared_ptr<Numbers>> streams;
  for (uint64_t owner = 1; owner <= 3; ++owner) {
    streams.push_back(std::make_shared<Numbers>(
        Numbers::Context{&loop, nullptr, owner, [] {}, "number", garbage, messages}));
    streams.back()->Start();
  }
  ASSERT_TRUE(RunUntil(loop, [&] {
    return std::all_of(streams.begin(), streams.end(), [](const auto& s) { return s->reads == 1; });
  }));
  streams[0]->Say(2 << 20);
  streams[1]->Say(80 << 10);
  streams[2]->Say(1 << 10);
  ASSERT_TRUE(RunUntil(loop, [&] { return streams[1]->reads == 2 && streams[2]->reads == 2; }));
  ASSERT_TRUE(RunUntil(loop, [looks = 0]() mutable { return ++looks > 20; }));
  EXPECT_EQ(streams[0]->reads, 1);
  streams[1]->Say(1 << 20);  // now nothing is left
  streams[2]->Say(1 << 10);
  ASSERT_TRUE(RunUntil(loop, [&] { return streams[2]->reads == 3; }));
  EXPECT_EQ(streams[1]->reads, 2);
  goes_on.set_value();
  EXPECT_TRUE(RunUntil(loop, [&] { return streams[0]->reads == 2 && streams[1]->reads == 3; }));
  for (const auto& stream : streams) stream->Leave();
  ASSERT_TRUE(RunUntil(loop, [&] {
    return std::all_of(streams.begin(), streams.end(), [](auto& s) { return s.use_count() == 1; });
  }));
  streams.clear();
  EXPECT_EQ(messages->used(), 0);
}

}  // namespace
}  // namespace fairway
