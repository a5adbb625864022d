// SPDX-License-Identifier: Apache-2.0
// The life of a worker's processes: they register, die, hang, are fenced, drained and
// orphaned.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/worker_harness.h"
#include "wire/link_codec.h"
#include "worker/process/exit_codes.h"

namespace fairway::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Flags(const std::string& controller, const std::string& name,
                               int devices = 2) {
  return {"--controller=" + controller, "--name=" + name, "--island=i0",
          fmt::format("--devices={}", devices), "--device-memory=1MiB"};
}

// A name that is in no other process's command line.
std::string UniqueName() {
  static int counter = 0;
  return fmt::format("w{}x{}", ::getpid(), ++counter);
}

class WorkerLifecycle : public testing::Test {
 protected:
  void ExpectAllGone() {
    EXPECT_TRUE(controller_.Until([&] { return ProcessesWith("--name=" + name_).empty(); }))
        << "left: " << testing::PrintToString(ProcessesWith("--name=" + name_));
  }

  PlayedController controller_;
  const std::string name_ = UniqueName();
};

TEST_F(WorkerLifecycle, RegistersWithWhatItIs) {
  const auto start = std::chrono::steady_clock::now();
  WorkerProcess worker(Flags(controller_.address(), name_, 4));
  SeenExecutor* executor = controller_.WaitForExecutor(name_);
  ASSERT_NE(executor, nullptr);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::cout << "registered after " << took.count() * 1e3 << " ms\n";
  SeenSupervisor* supervisor = controller_.WaitForSupervisor(name_);
  ASSERT_NE(supervisor, nullptr);
  EXPECT_EQ(executor->spec.island, "i0");
  EXPECT_EQ(executor->spec.runtime, "pjrt");
  EXPECT_EQ(executor->spec.platform_name, "cpu");
  EXPECT_EQ(executor->spec.num_devices, 4);
  EXPECT_EQ(executor->spec.device_memory, 1 << 20);
  EXPECT_EQ(executor->spec.gang_inputs, ArrivalRule::kReady);
  EXPECT_EQ(executor->registration.protocol(), kOldestLinkProtocol);
  EXPECT_EQ(executor->registration.newest_protocol(), kLinkProtocol);
  EXPECT_FALSE(executor->registration.stablehlo_current().empty());
  EXPECT_EQ(supervisor->registration.pid(), worker.pid());
  EXPECT_TRUE(supervisor->registration.has_compiler());
  EXPECT_NE(executor->registration.pid(), worker.pid());
  EXPECT_EQ(executor->heartbeat.device_bytes_size(), 4);
  const int beats = executor->heartbeats;
  EXPECT_TRUE(controller_.Until(
      [&] { return executor->heartbeats >= beats + 3 && supervisor->heartbeats >= 3; }));
}

TEST_F(WorkerLifecycle, AKilledExecutorIsExplainedAndComesBackAsANewIncarnation) {
  WorkerProcess worker(Flags(controller_.address(), name_));
  SeenExecutor* first = controller_.WaitForExecutor(name_);
  SeenSupervisor* supervisor = controller_.WaitForSupervisor(name_);
  ASSERT_TRUE(first != nullptr && supervisor != nullptr);
  ::kill(static_cast<pid_t>(first->registration.pid()), SIGKILL);
  ASSERT_TRUE(controller_.Until([&] { return first->closed && supervisor->deaths.size() == 1; }));
  const v1::ExecutorDied& died = supervisor->deaths[0];
  EXPECT_EQ(died.signal(), SIGKILL);
  EXPECT_EQ(died.cause(), "killed by SIGKILL");
  EXPECT_EQ(died.incarnation(), first->spec.incarnation.value);
  EXPECT_GT(died.last_lines_size(), 0);
  EXPECT_GE(died.restart_in_ms(), 0);
  SeenExecutor* second = controller_.WaitForExecutor(name_, 2);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second->spec.incarnation, first->spec.incarnation);
  EXPECT_NE(second->registration.pid(), first->registration.pid());
  EXPECT_FALSE(worker.Ended().has_value());
  EXPECT_FALSE(supervisor->closed);
}

TEST_F(WorkerLifecycle, AnAbortIsToldFromAKill) {
  WorkerProcess worker(Flags(controller_.address(), name_));
  SeenExecutor* first = controller_.WaitForExecutor(name_);
  SeenSupervisor* supervisor = controller_.WaitForSupervisor(name_);
  ASSERT_TRUE(first != nullptr && supervisor != nullptr);
  ::kill(static_cast<pid_t>(first->registration.pid()), SIGABRT);
  ASSERT_TRUE(controller_.Until([&] { return supervisor->deaths.size() == 1; }));
  EXPECT_EQ(supervisor->deaths[0].cause(), "killed by SIGABRT");
}

TEST_F(WorkerLifecycle, AStoppedExecutorIsKilledOnTheControllersWordAndReplaced) {
  WorkerProcess worker(Flags(controller_.address(), name_));
  SeenExecutor* first = controller_.WaitForExecutor(name_);
  SeenSupervisor* supervisor = controller_.WaitForSupervisor(name_);
  ASSERT_TRUE(first != nullptr && supervisor != nullptr);
  ::kill(static_cast<pid_t>(first->registration.pid()), SIGSTOP);
  v1::FromController wrong;
  wrong.mutable_kill_executor()->set_incarnation(first->spec.incarnation.value + 1);
  supervisor->Send(wrong);
  v1::FromController kill;
  kill.mutable_kill_executor()->set_incarnation(first->spec.incarnation.value);
  kill.mutable_kill_executor()->set_reason("no heartbeat for 7 s");
  supervisor->Send(kill);
  ASSERT_TRUE(controller_.Until([&] { return supervisor->deaths.size() == 1; }));
  EXPECT_THAT(supervisor->deaths[0].cause(), HasSubstr("SIGKILL"));
  EXPECT_THAT(supervisor->deaths[0].cause(), HasSubstr("no heartbeat for 7 s"));
  EXPECT_NE(controller_.WaitForExecutor(name_, 2), nullptr);
}

TEST_F(WorkerLifecycle, AnExecutorThatWakesUpToAFenceEndsAndIsReplaced) {
  WorkerProcess worker(Flags(controller_.address(), name_));
  SeenExecutor* first = controller_.WaitForExecutor(name_);
  SeenSupervisor* supervisor = controller_.WaitForSupervisor(name_);
  ASSERT_TRUE(first != nullptr && supervisor != nullptr);
  const auto pid = static_cast<pid_t>(first->registration.pid());
  ::kill(pid, SIGSTOP);
  v1::FromController fence;
  fence.mutable_fence()->set_reason("declared lost");
  first->link->Send(PackFrame(fence));
  first->link->Close();
  ASSERT_TRUE(controller_.Until([&] { return first->closed; }));
  ::kill(pid, SIGCONT);
  ASSERT_TRUE(controller_.Until([&] { return supervisor->deaths.size() == 1; }));
  EXPECT_EQ(supervisor->deaths[0].exit_code(), kExitFenced);
  EXPECT_EQ(supervisor->deaths[0].signal(), 0);
  EXPECT_NE(controller_.WaitForExecutor(name_, 2), nullptr);
}

TEST_F(WorkerLifecycle, ALostLinkBringsANewIncarnationOfTheSameProcess) {
  WorkerProcess worker(Flags(controller_.address(), name_));
  SeenExecutor* first = controller_.WaitForExecutor(name_);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(controller_.WaitForSupervisor(name_), nullptr);
  controller_.loop().Post("drop", [&] {
    first->link = nullptr;
    controller_.supervisors[0]->link = nullptr;
  });
  SeenExecutor* second = controller_.WaitForExecutor(name_, 2);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second->spec.incarnation, first->spec.incarnation);
  EXPECT_EQ(second->registration.pid(), first->registration.pid());
  EXPECT_NE(controller_.WaitForSupervisor(name_, 2), nullptr);
}

TEST_F(WorkerLifecycle, RegistersAtAControllerThatComesLaterOrAgain) {
  int port = 0;
  std::unique_ptr<WorkerProcess> worker;
  int64_t pid = 0;
  {
    PlayedController early;
    port = early.port();
    worker = std::make_unique<WorkerProcess>(Flags(early.address(), name_));
    SeenExecutor* executor = early.WaitForExecutor(name_);
    ASSERT_NE(executor, nullptr);
    pid = executor->registration.pid();
  }
  PlayedController later(port);
  SeenExecutor* executor = later.WaitForExecutor(name_);
  ASSERT_NE(executor, nullptr);
  EXPECT_EQ(executor->registration.pid(), pid);
  EXPECT_NE(later.WaitForSupervisor(name_), nullptr);
}

TEST_F(WorkerLifecycle, TermDrainsAndExitsWithZero) {
  WorkerProcess worker(Flags(controller_.address(), name_));
  SeenExecutor* executor = controller_.WaitForExecutor(name_);
  SeenSupervisor* supervisor = controller_.WaitForSupervisor(name_);
  ASSERT_TRUE(executor != nullptr && supervisor != nullptr);
  worker.Signal(SIGTERM);
  ASSERT_TRUE(controller_.Until([&] { return worker.Ended().has_value(); }));
  EXPECT_TRUE(WIFEXITED(*worker.Ended())) << *worker.Ended();
  EXPECT_EQ(WEXITSTATUS(*worker.Ended()), kExitOk);
  ASSERT_TRUE(controller_.Until([&] { return executor->closed && supervisor->closed; }));
  EXPECT_TRUE(executor->how.ok()) << executor->how;
  ASSERT_EQ(supervisor->deaths.size(), 1u);
  EXPECT_EQ(supervisor->deaths[0].exit_code(), 0);
  EXPECT_EQ(supervisor->deaths[0].restart_in_ms(), -1);
  ExpectAllGone();
}

TEST_F(WorkerLifecycle, StopWorkerDrainsToo) {
  WorkerProcess worker(Flags(controller_.address(), name_));
  SeenSupervisor* supervisor = controller_.WaitForSupervisor(name_);
  ASSERT_NE(controller_.WaitForExecutor(name_), nullptr);
  v1::FromController stop;
  stop.mutable_stop_worker()->set_reason("the test is over");
  supervisor->Send(stop);
  ASSERT_TRUE(controller_.Until([&] { return worker.Ended().has_value(); }));
  EXPECT_EQ(WEXITSTATUS(*worker.Ended()), kExitOk);
  EXPECT_THAT(worker.Log(), HasSubstr("the test is over"));
  ExpectAllGone();
}

TEST_F(WorkerLifecycle, AFencedWorkerEndsWithItsCode) {
  controller_.fence_everybody = true;
  WorkerProcess worker(Flags(controller_.address(), name_));
  ASSERT_TRUE(controller_.Until([&] { return worker.Ended().has_value(); }));
  EXPECT_TRUE(WIFEXITED(*worker.Ended()));
  EXPECT_EQ(WEXITSTATUS(*worker.Ended()), kExitFenced);
  EXPECT_THAT(worker.Log(), HasSubstr("this is a test"));
  ExpectAllGone();
}

TEST_F(WorkerLifecycle, NothingOutlivesAKilledSupervisor) {
  WorkerProcess worker(Flags(controller_.address(), name_));
  SeenExecutor* executor = controller_.WaitForExecutor(name_);
  ASSERT_NE(executor, nullptr);
  // The supervisor, the executor and the compiler.
  ASSERT_TRUE(controller_.Until([&] { return ProcessesWith("--name=" + name_).size() >= 3; }));
  worker.Signal(SIGKILL);
  ASSERT_TRUE(controller_.Until([&] { return worker.Ended().has_value(); }));
  ExpectAllGone();
  EXPECT_TRUE(controller_.Until([&] { return executor->closed; }));
}

TEST_F(WorkerLifecycle, EverythingEndsWithTheParentOfTheSupervisor) {
  WorkerProcess worker(Flags(controller_.address(), name_));
  ASSERT_NE(controller_.WaitForExecutor(name_), nullptr);
  worker.CloseLifePipe();
  ASSERT_TRUE(controller_.Until([&] { return worker.Ended().has_value(); }));
  ExpectAllGone();
}

TEST_F(WorkerLifecycle, AStoppedExecutorDoesNotKeepItsWorkerFromStopping) {
  auto flags = Flags(controller_.address(), name_);
  flags.push_back("--drain-limit=300ms");
  WorkerProcess worker(flags);
  SeenExecutor* executor = controller_.WaitForExecutor(name_);
  ASSERT_NE(executor, nullptr);
  const auto pid = static_cast<pid_t>(executor->registration.pid());
  ::kill(pid, SIGSTOP);
  worker.Signal(SIGTERM);
  // The drain limit, and the kill after it.
  ASSERT_TRUE(controller_.Until([&] { return worker.Ended().has_value(); }));
  EXPECT_EQ(WEXITSTATUS(*worker.Ended()), kExitDrainTimeout);
  ExpectAllGone();
}

TEST_F(WorkerLifecycle, APluginThatDoesNotLoadIsCodeThree) {
  auto flags = Flags(controller_.address(), name_);
  flags.push_back("--plugin=/nonexistent/plugin.so");
  WorkerProcess worker(flags);
  ASSERT_TRUE(controller_.Until([&] { return worker.Ended().has_value(); }));
  EXPECT_EQ(WEXITSTATUS(*worker.Ended()), kExitNoPlugin);
  EXPECT_THAT(worker.Log(), HasSubstr("/nonexistent/plugin.so"));
  ExpectAllGone();
}

TEST_F(WorkerLifecycle, ATakenDataPortIsCodeFive) {
  PlayedController other;
  auto flags = Flags(controller_.address(), name_);
  flags.push_back("--data-bind=" + other.address());
  WorkerProcess worker(flags);
  ASSERT_TRUE(controller_.Until([&] { return worker.Ended().has_value(); }));
  EXPECT_EQ(WEXITSTATUS(*worker.Ended()), kExitPortTaken);
  EXPECT_THAT(worker.Log(), HasSubstr(std::to_string(other.port())));
  ExpectAllGone();
}

TEST_F(WorkerLifecycle, UnknownFlagsAreCodeTwoAndGetASuggestion) {
  WorkerProcess worker({"--contoller=x:1"});
  ASSERT_TRUE(controller_.Until([&] { return worker.Ended().has_value(); }));
  EXPECT_EQ(WEXITSTATUS(*worker.Ended()), kExitBadFlags);
  EXPECT_THAT(worker.Log(), HasSubstr("--controller"));
}

}  // namespace
}  // namespace fairway::test
