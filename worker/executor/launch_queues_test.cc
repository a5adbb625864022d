// SPDX-License-Identifier: Apache-2.0
// Which thread launches, over the fake runtime, whose launches end when the test says so.
#include "worker/executor/launch_queues.h"

#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "worker/executor/runtime/fake/fake_runtime.h"

namespace fairway {
namespace {

class LaunchQueuesTest : public testing::Test {
 protected:
  // The thread on which `done` of a job was called.
  using End = std::future<std::thread::id>;

  std::shared_ptr<LoadedExecutable> Load(const std::string& op, const std::vector<int>& devices,
                                         bool brief) {
    FakeProgram program;
    program.op = op;
    program.name = op + (brief ? " brief" : "");
    program.devices = devices;
    program.inputs = program.outputs = {{DType::kF32, Shape{{2}}, false, {}}};
    program.brief = brief;
    auto loaded = runtime_.Load(program.ToText(), {});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *std::move(loaded) : nullptr;
  }
  LaunchJob Job(const std::shared_ptr<LoadedExecutable>& executable, std::vector<int> devices,
                End& end) {
    LaunchJob job;
    job.executable = executable;
    job.request.devices = std::move(devices);
    job.request.launch_id = ++last_id_;
    for (const int device : job.request.devices) {
      auto input =
          runtime_.FromHost(Blob::Copy(std::string(8, 0)), DType::kF32, Shape{{2}}, device, "");
      EXPECT_TRUE(input.ok()) << input.status();
      job.inputs.push_back({{*std::move(input), nullptr, 0, 0}});
    }
    auto promise = std::make_shared<std::promise<std::thread::id>>();
    end = promise->get_future();
    job.done = [promise](absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      promise->set_value(std::this_thread::get_id());
    };
    return job;
  }
  static bool Ended(const End& end) {
    return end.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  void AwaitLaunches(size_t count) {
    while (runtime_.launches().size() < count) std::this_thread::yield();
  }

  FakeRuntime runtime_{2};
  LaunchQueues queues_{&runtime_, 2};
  uint64_t last_id_ = 0;
};

TEST_F(LaunchQueuesTest, ABriefJobBehindWhichNothingWaitsRunsInTheCall) {
  End single, gang;
  queues_.LaunchSingle(Job(Load("identity", {}, true), {1}, single));
  ASSERT_TRUE(Ended(single));
  EXPECT_EQ(single.get(), std::this_thread::get_id());
  queues_.LaunchGang(Job(Load("identity", {0, 1}, true), {0, 1}, gang));
  ASSERT_TRUE(Ended(gang));
  EXPECT_EQ(gang.get(), std::this_thread::get_id());
}

TEST_F(LaunchQueuesTest, OthersRunOnTheThreadOfTheirQueue) {
  End single, gang;
  queues_.LaunchSingle(Job(Load("identity", {}, false), {1}, single));
  queues_.LaunchGang(Job(Load("identity", {0, 1}, false), {0, 1}, gang));
  const std::thread::id of_device = single.get(), of_gangs = gang.get();
  EXPECT_NE(of_device, std::this_thread::get_id());
  EXPECT_NE(of_gangs, std::this_thread::get_id());
  EXPECT_NE(of_device, of_gangs);
}

TEST_F(LaunchQueuesTest, ABriefJobDoesNotOvertakeOneThatHasNotEnded) {
  End blocked, behind, beside, after;
  const auto brief = Load("identity", {}, true);
  queues_.LaunchSingle(Job(Load("block", {}, false), {0}, blocked));
  AwaitLaunches(1);  // it does not end
  queues_.LaunchSingle(Job(brief, {0}, behind));
  EXPECT_NE(behind.get(), std::this_thread::get_id());
  queues_.LaunchSingle(Job(brief, {1}, beside));
  EXPECT_EQ(beside.get(), std::this_thread::get_id()) << "its device has nothing to do";
  EXPECT_FALSE(Ended(blocked));
  runtime_.EndAll();
  blocked.get();
  queues_.LaunchSingle(Job(brief, {0}, after));
  ASSERT_TRUE(Ended(after));
  EXPECT_EQ(after.get(), std::this_thread::get_id());
}

TEST_F(LaunchQueuesTest, ABriefJobTakesWhatTheThreadHasMade) {
  End first, second;
  LaunchJob made = Job(Load("identity", {}, false), {0}, first);
  const auto outputs = made.outputs;
  queues_.LaunchSingle(std::move(made));
  first.get();
  LaunchJob taken = Job(Load("identity", {}, true), {0}, second);
  taken.inputs[0][0] = {nullptr, outputs, 0, 0};
  const auto results = taken.outputs;
  queues_.LaunchSingle(std::move(taken));
  ASSERT_TRUE(Ended(second));
  ASSERT_EQ(results->buffers.size(), 1u);
  EXPECT_NE(results->buffers[0][0], nullptr);
}

TEST_F(LaunchQueuesTest, GangsKeepTheirOrder) {
  std::vector<End> ends(200);
  const auto brief = Load("identity", {0, 1}, true), other = Load("identity", {0, 1}, false);
  for (size_t i = 0; i < ends.size(); ++i)
    queues_.LaunchGang(Job(i % 3 == 0 ? other : brief, {0, 1}, ends[i]));
  for (End& end : ends) end.get();
  EXPECT_TRUE(runtime_.violations().empty()) << runtime_.violations()[0];
}

}  // namespace
}  // namespace fairway
