// SPDX-License-Identifier: Apache-2.0
// Large frames, and commands, programs and answers that are too long for a message.
#include <gmock/gmock.h>

#include "base/crc32c.h"
#include "controller/daemon/worker_hub_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(WorkerHubTest, CutsLargeFrames) {
  const auto executor = ConnectExecutor("w0", 11);
  for (int i = 0; i < 3; ++i) {
    InstallExecutable install;
    install.executable = ExecutableId(1);
    install.code = std::make_shared<const std::string>(3 << 20, 'x');
    hub_->Send(ExecutorId(1), install);
  }
  Settle();
  // The link has room for one. The others leave once the executor has reported it.
  EXPECT_THAT(executor->commands, SizeIs(1));
  executor->ReportLog();
  Settle();
  EXPECT_THAT(executor->commands, SizeIs(2));
  hub_->Tick();
  Settle();
  EXPECT_THAT(executor->commands, SizeIs(3));
}

class LongMessageTest : public WorkerHubTest {
 protected:
  LongMessageTest() {
    options_.command_bytes = 1000;
    hub_ = std::make_unique<WorkerHub>(loop_, options_, this, [this] { return now_; });
  }
  static Command Code(size_t bytes) {
    InstallExecutable install;
    install.executable = ExecutableId(7);
    install.code = std::make_shared<const std::string>(bytes, 'x');
    return install;
  }
};

TEST_F(LongMessageTest, AnExecutorIsNotSentACommandThatBreaksItsLinkButEndsWithTheReason) {
  const auto supervisor = ConnectSupervisor("w0");
  const auto executor = ConnectExecutor("w0", 11);
  const auto other = ConnectExecutor("w1", 12);
  for (FarEnd* far : {supervisor.get(), executor.get(), other.get()}) far->received.clear();
  hub_->Send(ExecutorId(1), Code(2000));
  hub_->Send(ExecutorId(1), Code(10));  // not sent either: a command before it is missing
  hub_->Send(ExecutorId(2), Code(10));
  EXPECT_THAT(lost_, IsEmpty());  // not during the owner's call
  Settle();
  ASSERT_THAT(lost_, SizeIs(1));
  EXPECT_EQ(lost_[0].first, 1);
  EXPECT_THAT(lost_[0].second,
              AllOf(HasSubstr("a command of 20"), HasSubstr("a message has room for 1000")));
  EXPECT_EQ(supervisor->Next().kill_executor().incarnation(), 11);
  ASSERT_THAT(executor->received, SizeIs(1));
  EXPECT_TRUE(executor->received[0].has_fence());
  EXPECT_THAT(executor->commands, IsEmpty());
  EXPECT_THAT(other->commands, ElementsAre(SizeIs(1)));
  // Its successor gets commands again.
  const auto successor = ConnectExecutor("w0", 13);
  hub_->Send(ExecutorId(1), Code(10));
  Settle();
  EXPECT_THAT(successor->commands, ElementsAre(SizeIs(1)));
}

TEST_F(LongMessageTest, AnExecutorThatEndsByItselfMeanwhileIsLostOnce) {
  auto executor = ConnectExecutor("w0", 11);
  hub_->Send(ExecutorId(1), Code(2000));
  executor = nullptr;
  Settle();
  EXPECT_THAT(lost_, SizeIs(1));
}

TEST_F(LongMessageTest, AProgramThatIsTooLongIsNotSentToACompiler) {
  const auto supervisor = ConnectSupervisor("w0");
  const auto executor = ConnectExecutor("w0", 11);
  supervisor->received.clear();
  absl::Status status;
  hub_->Compile("island0", PackCompileRequest(std::string(2000, 'x'), {}),
                [&](absl::StatusOr<CompiledCode> code) { status = code.status(); });
  Settle();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(status), AllOf(HasSubstr("20"), HasSubstr("1000")));
  EXPECT_THAT(supervisor->received, IsEmpty());
}

TEST_F(LongMessageTest, AnAnswerThatIsTooLongFailsTheCallback) {
  const auto executor = ConnectExecutor("w0", 11);
  executor->received.clear();
  CallbackAnswer answer;
  answer.call = 5;
  answer.results = {Blob::Make(2000)};
  hub_->Answer(ExecutorId(1), answer);
  Settle();
  const v1::FromController message = executor->Next();
  EXPECT_EQ(message.callback_answer().call(), 5);
  EXPECT_EQ(StatusFromProto(message.callback_answer().status()).code(),
            absl::StatusCode::kResourceExhausted);
}

// Compiled code may have hundreds of MB.
TEST_F(WorkerHubTest, AnotherThreadParsesLargeMessages) {
  std::vector<std::pair<std::function<void()>, std::function<void()>>> off;
  options_.off_loop = [&](std::function<void()> work, std::function<void()> then) {
    off.emplace_back(std::move(work), std::move(then));
  };
  hub_ = std::make_unique<WorkerHub>(loop_, options_, this, [this] { return now_; });
  const auto supervisor = ConnectSupervisor("w0");
  const auto executor = ConnectExecutor("w0", 1);
  Settle();
  supervisor->received.clear();
  std::vector<absl::StatusOr<CompiledCode>> results;
  hub_->Compile("island0", PackCompileRequest("program", {}),
                [&](absl::StatusOr<CompiledCode> result) { results.push_back(std::move(result)); });
  Settle();
  v1::ToController message;
  auto* const response = message.mutable_compile_response();
  response->set_id(supervisor->Next().compile_request().id());
  response->set_code(std::string(100000, 'c'));
  supervisor->Send(message);
  Settle();
  EXPECT_TRUE(results.empty());
  ASSERT_EQ(off.size(), 1u);
  off[0].first();
  EXPECT_TRUE(results.empty());
  off[0].second();
  ASSERT_EQ(results.size(), 1u);
  ASSERT_TRUE(results[0].ok()) << results[0].status();
  EXPECT_EQ(results[0]->code, response->code());
  EXPECT_EQ(results[0]->crc, Crc32c(response->code()));
  // The worker goes away while a message is being parsed.
  supervisor->Send(message);
  Settle();
  ASSERT_EQ(off.size(), 2u);
  supervisor->link.reset();
  Settle();
  off[1].first();
  off[1].second();
  EXPECT_EQ(results.size(), 1u);
}

// A metric has a sample for each pair of islands: it must not grow with their square.
TEST_F(WorkerHubTest, KnowsWhatExecutorsAndDaemonsThatAreThereSayOfThemselves) {
  auto executor = ConnectExecutor("w0", 11);
  auto daemon = ConnectSupervisor("w0");
  v1::ToController message;
  v1::Heartbeat* const said = message.mutable_heartbeat();
  said->set_cpu_ns(5'000'000);
  said->set_resident_bytes(70);
  said->set_launches(3);
  said->set_served_bytes(40);
  said->set_buffers(2);
  said->set_executables(1);
  executor->Send(message);
  said->set_executor_starts(8);
  said->set_compile_starts(9);
  said->set_compile_crashes(4);
  said->set_compile_processes(2);
  daemon->Send(message);
  Settle();
  const ExecutorCounters counters = hub_->Said().executors.at(ExecutorId(1));
  EXPECT_EQ(counters.launches, 3u);
  EXPECT_EQ(counters.served_bytes, 40u);
  EXPECT_EQ(counters.buffers, 2u);
  EXPECT_EQ(counters.executables, 1u);
  EXPECT_EQ(counters.process.cpu, milliseconds(5));
  EXPECT_EQ(counters.process.resident_bytes, 70u);
  const WorkerCounters worker = hub_->Said().daemons.at("w0");
  EXPECT_EQ(worker.executor_starts, 8u);
  EXPECT_EQ(worker.compile_starts, 9u);
  EXPECT_EQ(worker.compile_crashes, 4u);
  EXPECT_EQ(worker.compile_processes, 2u);
  EXPECT_EQ(worker.island, "island0");
  EXPECT_EQ(worker.process.resident_bytes, 70u);

  executor->link.reset();
  daemon->link.reset();
  Settle();
  Advance(milliseconds(5000));
  EXPECT_TRUE(hub_->Said().executors.empty());
  EXPECT_TRUE(hub_->Said().daemons.empty());
}

TEST_F(WorkerHubTest, TransfersBetweenManyIslandsAreCountedTogether) {
  constexpr uint32_t kIslands = 70;
  const auto worker = [](uint32_t i) { return std::string("w") + static_cast<char>('0' + i); };
  std::vector<std::unique_ptr<FarEnd>> executors;
  for (uint32_t i = 0; i < kIslands; ++i) {
    executors.push_back(ConnectExecutor(worker(i), 10 + i, 100 + i, fmt::format("island{}", i)));
  }
  v1::ToController message;
  for (uint32_t i = 0; i < kIslands; ++i) {
    auto* const pulled = message.mutable_heartbeat()->add_pulled();
    pulled->set_endpoint(worker(i) + ":1");
    pulled->set_bytes(10);
  }
  // Nobody serves here, so nothing is kept of it.
  message.mutable_heartbeat()->add_pulled()->set_endpoint("elsewhere:1");
  for (const auto& executor : executors) executor->Send(message);
  Settle();
  uint64_t all = 0, others = 0;
  for (const auto& [pair, bytes] : hub_->transferred_bytes()) {
    all += bytes;
    if (pair.first == WorkerHub::kOtherIslands) others += bytes;
  }
  EXPECT_EQ(all, 10 * kIslands * kIslands);
  EXPECT_EQ(others, 10 * (kIslands * kIslands - WorkerHub::kMostPairs));
  EXPECT_LE(hub_->transferred_bytes().size(), WorkerHub::kMostPairs + kIslands);
}

}  // namespace
}  // namespace fairway
