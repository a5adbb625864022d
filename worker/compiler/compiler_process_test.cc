// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/compiler_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "worker/compiler/checksum.h"
#include "worker/executor/runtime/pjrt/test_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;
using test::Awaited;
using Answer = absl::StatusOr<CompileResult>;

std::unique_ptr<CompilerProcess> StartHelper(const std::string& argument) {
  CompilerProcess::Options options;
  options.argv = {FAIRWAY_TEST_HELPER, argument};
  options.env = {"XLA_FLAGS=" + XlaFlags(PjrtConfig{})};
  auto process = CompilerProcess::Start(std::move(options));
  EXPECT_TRUE(process.ok()) << process.status();
  return process.ok() ? *std::move(process) : nullptr;
}

Answer Compile(CompilerProcess& process, const std::string& program,
               v1::CompileOptions options = v1::CompileOptions(),
               milliseconds limit = milliseconds(0)) {
  Awaited<Answer> answer;
  process.Compile(program, std::move(options), limit, answer.Callback());
  return answer.Get();
}

TEST(Sha256Test, KnownDigests) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(CompilerProcessTest, CompilesInAnotherProcess) {
  auto process = StartHelper(test::ConfigOfTests(4).plugin_path);
  Answer answer = Compile(*process, test::Psum(4), test::Spmd(4));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->checksum, Sha256Hex(answer->code));
  EXPECT_EQ(answer->metadata.num_devices(), 4);
  Answer bad = Compile(*process, "nonsense", test::OneDevice());
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument) << bad.status();
  EXPECT_EQ(process->starts(), 1);
}

TEST(CompilerProcessTest, APluginThatDoesNotLoadIsTheAnswer) {
  auto process = StartHelper("/nonexistent/plugin.so");
  Answer answer = Compile(*process, "x");
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kNotFound) << answer.status();
  EXPECT_NE(Text(answer.status()).find("/nonexistent/plugin.so"), std::string::npos);
}

TEST(CompilerProcessTest, AHelperThatDiesFailsItsRequestOnlyAndIsRestarted) {
  auto process = StartHelper("unruly");
  ASSERT_TRUE(Compile(*process, "first").ok());
  Awaited<Answer> dying, exiting, next;
  process->Compile("abort", {}, milliseconds(0), dying.Callback());
  process->Compile("exit 3", {}, milliseconds(0), exiting.Callback());
  process->Compile("next", {}, milliseconds(0), next.Callback());
  Answer answer = dying.Get();
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(Text(answer.status()).find("killed by SIGABRT"), std::string::npos) << answer.status();
  answer = exiting.Get();
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(Text(answer.status()).find("exited with code 3"), std::string::npos) << answer.status();
  answer = next.Get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, "next");
  EXPECT_EQ(process->starts(), 3);
}

TEST(CompilerProcessTest, AHelperKilledWhileIdleIsRestarted) {
  auto process = StartHelper("unruly");
  ASSERT_TRUE(Compile(*process, "first").ok());
  const int pid = process->pid();
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  // The request may meet the old helper or the new one; it may fail once, never hang.
  Answer answer = Compile(*process, "second");
  if (!answer.ok()) {
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kInternal) << answer.status();
    answer = Compile(*process, "second");
  }
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_NE(process->pid(), pid);
}

TEST(CompilerProcessTest, AHangingHelperIsKilledAtTheDeadline) {
  auto process = StartHelper("unruly");
  Awaited<Answer> hanging, queued, behind;
  process->Compile("hang", {}, milliseconds(300), hanging.Callback());
  process->Compile("queued", {}, milliseconds(50), queued.Callback());
  process->Compile("behind", {}, milliseconds(0), behind.Callback());
  EXPECT_EQ(queued.Get().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(hanging.Get().status().code(), absl::StatusCode::kDeadlineExceeded);
  Answer answer = behind.Get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, "behind");
}

TEST(CompilerProcessTest, CodeThatDoesNotMatchItsChecksumIsRefused) {
  auto process = StartHelper("unruly");
  EXPECT_EQ(Compile(*process, "corrupt").status().code(), absl::StatusCode::kDataLoss);
}

TEST(CompilerProcessTest, AProgramLargerThanTheSocketBufferPasses) {
  auto process = StartHelper("unruly");
  const std::string large(32 << 20, 'x');
  Answer answer = Compile(*process, large);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, large);
}

TEST(CompilerProcessTest, DestructionCancelsAndLeavesNoChild) {
  auto process = StartHelper("unruly");
  ASSERT_TRUE(Compile(*process, "first").ok());
  const int pid = process->pid();
  Awaited<Answer> hanging, queued;
  process->Compile("hang", {}, milliseconds(0), hanging.Callback());
  process->Compile("queued", {}, milliseconds(0), queued.Callback());
  process.reset();
  EXPECT_EQ(hanging.Get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(queued.Get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(kill(pid, 0), -1);
}

// Gone, or dead and not yet waited for by whoever adopted it.
bool IsDead(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return true;
  const size_t name_end = line.rfind(')');
  return line.substr(name_end + 2, 1) == "Z";
}

TEST(CompilerProcessTest, AHelperEndsWithItsSupervisorEvenWhileCompiling) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  std::string program = FAIRWAY_TEST_HELPER, argument = "supervise";
  char* argv[] = {program.data(), argument.data(), nullptr};
  char* env[] = {nullptr};
  pid_t supervisor = 0;
  ASSERT_EQ(posix_spawn(&supervisor, program.c_str(), &files, nullptr, argv, env), 0);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  char text[32] = {};
  ASSERT_GT(read(ends[0], text, sizeof(text) - 1), 0);
  close(ends[0]);
  const int helper = std::atoi(text);
  ASSERT_GT(helper, 0);
  EXPECT_FALSE(IsDead(helper));
  ASSERT_EQ(kill(supervisor, SIGKILL), 0);
  ASSERT_EQ(waitpid(supervisor, nullptr, 0), supervisor);
  EXPECT_TRUE(test::Eventually([&] { return IsDead(helper); }));
}

TEST(CompilerProcessTest, AMissingProgramIsUnavailable) {
  CompilerProcess::Options options;
  options.argv = {"/nonexistent/helper"};
  EXPECT_EQ(CompilerProcess::Start(options).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace fairway
