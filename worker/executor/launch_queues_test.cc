// SPDX-License-Identifier: Apache-2.0
// Which thread launches, over the fake runtime, whose launches end when the test says so.
#include "worker/executor/launch_queues.h"

#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
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

  FakeRuntime runtime_{4};
  LaunchQueues queues_{&runtime_, 4};
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

// A launch of some runtimes takes as long as the gang; GateRuntime's do so until Open.
class GateRuntime final : public FakeRuntime {
 public:
  using FakeRuntime::FakeRuntime;
  absl::StatusOr<LaunchResult> Launch(const LaunchRequest& request,
                                      absl::AnyInvocable<void(absl::Status)> done) override {
    std::unique_lock lock(mutex_);
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !closed_.contains(request.launch_id); });
    lock.unlock();
    return FakeRuntime::Launch(request, std::move(done));
  }
  void Close(uint64_t launch) { closed_.insert(launch); }
  void Open(uint64_t launch) {
    std::lock_guard lock(mutex_);
    closed_.erase(launch);
    changed_.notify_all();
  }
  // Waits until so many calls of Launch have begun.
  void AwaitCalls(int calls) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inside_ >= calls; });
  }
  int calls() {
    std::lock_guard lock(mutex_);
    return inside_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<uint64_t> closed_;
  int inside_ = 0;
};

class GatedQueuesTest : public LaunchQueuesTest {
 protected:
  End Gang(uint64_t id, const std::vector<int>& devices, bool shared = false) {
    last_id_ = id - 1;
    End end;
    LaunchJob job = Job(Load("identity", devices, false), devices, end);
    job.shared = shared;
    gated_.LaunchGang(std::move(job));
    return end;
  }

  GateRuntime gate_{4};
  LaunchQueues gated_{&gate_, 4};
};

TEST_F(GatedQueuesTest, AGangThatTakesLongHoldsUpNoneOfOtherDevices) {
  gate_.Close(1);
  End first = Gang(1, {0, 1});
  End same = Gang(2, {0, 1});
  gate_.AwaitCalls(1);
  for (uint64_t id = 3; id < 100; ++id) Gang(id, {2, 3}).get();
  EXPECT_FALSE(Ended(first));
  EXPECT_FALSE(Ended(same));
  gate_.Open(1);
  first.get();
  same.get();
  EXPECT_TRUE(gate_.violations().empty());
}

TEST_F(GatedQueuesTest, GangsThatShareADeviceAreLaunchedInTheirOrderWhateverTheirThreads) {
  gate_.Close(1);
  End first = Gang(1, {0, 1});
  End right = Gang(2, {1, 2});
  End far = Gang(3, {2, 3});
  End left = Gang(4, {0, 3});
  gate_.AwaitCalls(1);
  EXPECT_EQ(gate_.calls(), 1) << "2 waits for device 1, 3 for 2, 4 for 3";
  gate_.Open(1);
  for (End* end : {&first, &right, &far, &left}) end->get();
  EXPECT_TRUE(gate_.violations().empty());
}

TEST_F(GatedQueuesTest, GangsOfOtherExecutorsAreLaunchedOneAfterAnother) {
  gate_.Close(1);
  End first = Gang(1, {0}, true);
  End second = Gang(2, {1}, true);
  Gang(3, {2, 3}).get();
  EXPECT_FALSE(Ended(second));
  gate_.Open(1);
  first.get();
  second.get();
}

TEST_F(GatedQueuesTest, QueuedGangsOfSeveralThreadsAreLaunchedBeforeTheQueuesEnd) {
  std::vector<End> ends;
  {
    LaunchQueues queues(&runtime_, 4);
    for (int i = 0; i < 200; ++i) {
      const int first = i % 3;
      ends.emplace_back();
      const std::vector<int> devices = {first, first + 1};
      queues.LaunchGang(Job(Load("identity", devices, false), devices, ends.back()));
    }
  }
  for (End& end : ends) EXPECT_TRUE(Ended(end));
  EXPECT_TRUE(runtime_.violations().empty());
}

}  // namespace
}  // namespace fairway
