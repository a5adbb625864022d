// SPDX-License-Identifier: Apache-2.0
#include "worker/compiler/compile_pool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "worker/compiler/checksum.h"
#include "worker/compiler/compile_failure.h"
#include "worker/executor/runtime/pjrt/test_programs.h"
#include "worker/executor/runtime/pjrt/test_support.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;
using test::Awaited;
using Answer = absl::StatusOr<CompileResult>;

CompilePool::Options PoolOf(const std::string& argument) {
  CompilePool::Options options;
  options.argv = {FAIRWAY_TEST_PROCESS, argument};
  options.env = {"XLA_FLAGS=" + XlaFlags(PjrtConfig{}), "AWS_SECRET_ACCESS_KEY=hidden", "TZ=UTC"};
  options.limits = {std::chrono::seconds(1), int64_t{4} << 30};
  return options;
}

std::unique_ptr<CompilePool> Start(CompilePool::Options options) {
  auto pool = CompilePool::Start(std::move(options));
  EXPECT_TRUE(pool.ok()) << pool.status();
  return pool.ok() ? *std::move(pool) : nullptr;
}

std::unique_ptr<CompilePool> Start(const std::string& argument) { return Start(PoolOf(argument)); }

Answer Compile(CompilePool& pool, const std::string& program,
               v1::CompileOptions options = v1::CompileOptions(),
               milliseconds limit = milliseconds(0)) {
  Awaited<Answer> answer;
  pool.Compile(program, std::move(options), limit, answer.Callback());
  return answer.Get();
}

TEST(Sha256Test, KnownDigests) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(CompilePoolTest, CompilesEachProgramInAProcessOfItsOwn) {
  auto pool = Start(test::ConfigOfTests(4).plugin_path);
  Answer answer = Compile(*pool, test::Psum(4), test::Spmd(4));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->checksum, Sha256Hex(answer->code));
  EXPECT_EQ(answer->metadata.num_devices(), 4);
  Answer bad = Compile(*pool, "nonsense", test::OneDevice());
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument) << bad.status();
  EXPECT_GE(pool->starts(), 2);
  EXPECT_EQ(pool->crashes(), 0);
}

// The executor describes the GPU, perhaps after the first program came.
TEST(CompilePoolTest, ProgramsWaitForWhatTheyAreCompiledFor) {
  CompilePool::Options options = PoolOf("told");
  options.told = true;
  options.programs = 100;
  auto pool = Start(std::move(options));
  EXPECT_EQ(Compile(*pool, "target", {}, milliseconds(50)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  Awaited<Answer> first;
  pool->Compile("target", {}, milliseconds(0), first.Callback());
  v1::CompileTarget target;
  target.set_config("a small GPU");
  pool->SetTarget(target);
  Answer answer = first.Get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, "a small GPU");
  pool->SetTarget(target);  // the same target again
  const std::vector<int> pids = pool->pids();
  EXPECT_EQ(Compile(*pool, "target")->code, "a small GPU");
  target.set_config("a large GPU");  // as if the executor came back with another GPU
  pool->SetTarget(target);
  EXPECT_EQ(Compile(*pool, "target")->code, "a large GPU");
  for (const int pid : pids) EXPECT_THAT(pool->pids(), testing::Not(testing::Contains(pid)));
}

TEST(CompilePoolTest, APluginThatDoesNotLoadIsTheAnswer) {
  auto pool = Start("/nonexistent/plugin.so");
  for (int i = 0; i < 2; ++i) {
    Answer answer = Compile(*pool, "x");
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kNotFound) << answer.status();
    EXPECT_NE(Text(answer.status()).find("/nonexistent/plugin.so"), std::string::npos);
  }
}

TEST(CompilePoolTest, ProcessesAreKeptWarmAndReplaced) {
  auto pool = Start("unruly");
  EXPECT_TRUE(test::Eventually([&] { return pool->pids().size() == 2; }));
  const std::vector<int> first = pool->pids();
  ASSERT_TRUE(Compile(*pool, "first").ok());
  EXPECT_TRUE(test::Eventually([&] {
    const std::vector<int> now = pool->pids();
    return now.size() == 2 && now[0] == first[1] && now[1] != first[0];
  }));
  EXPECT_TRUE(test::Eventually([&] { return kill(first[0], 0) != 0; }));
}

TEST(CompilePoolTest, AProcessServesSoManyProgramsUnlessOneFails) {
  auto pool = Start("unruly-long");  // three programs
  const auto serves_next = [&] { return pool->pids().at(0); };
  const int first = serves_next();
  ASSERT_TRUE(Compile(*pool, "one").ok());
  EXPECT_EQ(serves_next(), first);
  ASSERT_TRUE(Compile(*pool, "two").ok());
  EXPECT_EQ(serves_next(), first);
  ASSERT_TRUE(Compile(*pool, "three").ok());
  EXPECT_TRUE(test::Eventually([&] { return serves_next() != first; }));
  const int second = serves_next();
  EXPECT_FALSE(Compile(*pool, "refused").ok());
  EXPECT_TRUE(test::Eventually([&] { return serves_next() != second; }));
}

TEST(CompilePoolTest, AProcessThatDiesFailsItsProgramOnly) {
  auto pool = Start("unruly");
  Awaited<Answer> dying, exiting, next;
  pool->Compile("abort", {}, milliseconds(0), dying.Callback());
  pool->Compile("exit 3", {}, milliseconds(0), exiting.Callback());
  pool->Compile("next", {}, milliseconds(0), next.Callback());
  Answer answer = dying.Get();
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(Text(answer.status()).find("killed by SIGABRT"), std::string::npos) << answer.status();
  answer = exiting.Get();
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(Text(answer.status()).find("exited with code 3"), std::string::npos) << answer.status();
  answer = next.Get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, "next");
}

TEST(CompilePoolTest, AnErrorMayQuoteBytesThatAreNoText) {
  auto pool = Start("unruly");
  Answer answer = Compile(*pool, "quoted");
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kInvalidArgument) << answer.status();
  EXPECT_EQ(Text(answer.status()), "no such type: \xff\xfe");
}

TEST(CompilePoolTest, AnAnswerThatIsNoneFailsItsProgramOnly) {
  auto pool = Start("unruly");
  for (const char* program : {"babble", "flood"}) {
    Answer answer = Compile(*pool, program);
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kInternal) << answer.status();
    EXPECT_NE(Text(answer.status()).find("not an answer"), std::string::npos) << answer.status();
    EXPECT_TRUE(Compile(*pool, "x").ok());
  }
}

// The process itself would take a third program, like a process that a program has taken over.
TEST(CompilePoolTest, AProcessIsGivenNoMoreProgramsThanItMayHave) {
  CompilePool::Options options = PoolOf("unruly-long");
  options.warm = 1;
  options.parallel = 1;
  options.programs = 2;
  auto pool = Start(std::move(options));
  const int pid = pool->pids().at(0);
  const auto is_there = [&] {
    const std::vector<int> pids = pool->pids();
    return std::find(pids.begin(), pids.end(), pid) != pids.end();
  };
  EXPECT_TRUE(Compile(*pool, "x").ok());
  EXPECT_TRUE(is_there());
  EXPECT_TRUE(Compile(*pool, "x").ok());
  EXPECT_TRUE(test::Eventually([&] { return !is_there(); }));
  EXPECT_TRUE(Compile(*pool, "x").ok());
}

// A program that has taken a process over could answer for the next one with false code.
TEST(CompilePoolTest, TenantsShareNoProcess) {
  CompilePool::Options options = PoolOf("told");
  options.told = true;
  options.target.set_config("a GPU");
  options.programs = 100;
  options.parallel = 2;
  options.warm = 1;
  auto pool = Start(std::move(options));
  const auto process_of = [&](const std::string& tenant) {
    v1::CompileOptions compile;
    compile.set_tenant(tenant);
    const Answer answer = Compile(*pool, "pid", compile);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? answer->code : "";
  };
  const std::string red = process_of("red"), blue = process_of("blue");
  EXPECT_NE(red, blue);
  EXPECT_EQ(process_of("red"), red);
  EXPECT_EQ(process_of("blue"), blue);
  // Others come, and no more processes are kept than the bounds say.
  std::set<std::string> all = {red, blue};
  for (int i = 0; i < 6; ++i) all.insert(process_of(fmt::format("tenant{}", i)));
  EXPECT_EQ(all.size(), 8u);
  EXPECT_TRUE(test::Eventually([&] { return pool->pids().size() == 3; }));
  EXPECT_NE(process_of("red"), red);
}

TEST(CompilePoolTest, AProcessKilledWhileIdleIsReplaced) {
  CompilePool::Options options = PoolOf("unruly");
  options.warm = 1;
  auto pool = Start(std::move(options));
  const int pid = pool->pids().at(0);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  // The program may meet the old process or the new one; it may fail once, never hang.
  Answer answer = Compile(*pool, "next");
  if (!answer.ok()) answer = Compile(*pool, "next");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(test::Eventually([&] { return pool->crashes() == 1; }));
}

TEST(CompilePoolTest, ProgramsThatHangAreEndedAndOthersGoOnBesideThem) {
  CompilePool::Options options = PoolOf("unruly");
  options.parallel = 2;
  auto pool = Start(std::move(options));
  Awaited<Answer> queued;
  pool->Compile("hang in the name of module @f", {}, milliseconds(0), queued.Callback());
  EXPECT_TRUE(queued.Get().ok());  // only "hang" itself hangs
  // A busy machine may not begin it within the limit.
  for (milliseconds limit(2000); limit <= milliseconds(32000); limit *= 2) {
    Awaited<Answer> hanging;
    pool->Compile("hang", {}, limit, hanging.Callback());
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(Compile(*pool, "beside").ok());
    const Answer answer = hanging.Get();
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kDeadlineExceeded);
    if (Text(answer.status()).find("did not begin") != std::string::npos) continue;
    EXPECT_NE(Text(answer.status()).find(fmt::format("not done after {} ms", limit.count())),
              std::string::npos)
        << answer.status();
    return;
  }
  ADD_FAILURE() << "it never began";
}

// Like a stuck assembler: the limit ends it together with the process that started it, and so does
// the end of the pool.
TEST(CompilePoolTest, WhatAProcessHasStartedEndsWithIt) {
  const auto ended = [](const std::string& path) {
    int pid = 0;
    return test::Eventually([&] { return (std::ifstream(path) >> pid) && pid > 0; }) &&
           test::Eventually([&] {
             if (kill(pid, 0) != 0) return true;
             std::ifstream stat(fmt::format("/proc/{}/stat", pid));  // nobody may have reaped it
             const std::string text{std::istreambuf_iterator<char>(stat), {}};
             return text.find(") Z ") != std::string::npos;
           });
  };
  const std::string path = testing::TempDir() + fmt::format("spawned-{}", getpid());
  CompilePool::Options options = PoolOf("unruly");
  options.argv.push_back(testing::TempDir());
  auto pool = Start(std::move(options));
  // A busy machine may not have started it within the limit.
  int started = 0;
  for (milliseconds limit(2000); started == 0 && limit <= milliseconds(32000); limit *= 2) {
    EXPECT_EQ(Compile(*pool, "spawn " + path, {}, limit).status().code(),
              absl::StatusCode::kDeadlineExceeded);
    std::ifstream(path) >> started;
  }
  EXPECT_TRUE(ended(path));
  Awaited<Answer> cancelled;
  const std::string second = path + "-second";
  pool->Compile("spawn " + second, {}, milliseconds(0), cancelled.Callback());
  // Not the empty file: it is written a moment after it is made.
  EXPECT_TRUE(
      test::Eventually([&] { return static_cast<bool>(std::ifstream(second) >> started); }));
  pool.reset();
  EXPECT_TRUE(ended(second));
  unlink(path.c_str());
  unlink(second.c_str());
}

TEST(CompilePoolTest, NoMoreThanTheBoundAreCompiledAtATime) {
  CompilePool::Options options = PoolOf("unruly");
  options.parallel = 1;
  auto pool = Start(std::move(options));
  Awaited<Answer> hanging, queued, behind;
  pool->Compile("hang", {}, milliseconds(500), hanging.Callback());
  pool->Compile("module @late", {}, milliseconds(50), queued.Callback());
  pool->Compile("behind", {}, milliseconds(0), behind.Callback());
  Answer answer = queued.Get();
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(Text(answer.status()).find("late (12 bytes, SHA-256 "), std::string::npos)
      << answer.status();
  EXPECT_NE(Text(answer.status()).find("did not begin"), std::string::npos) << answer.status();
  EXPECT_EQ(hanging.Get().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(behind.Get().ok());
}

// On one processor a process often answers before the pool looks for other free processes.
TEST(CompilePoolTest, AnAnswerThatComesAtOnceLeavesNoProgramWaiting) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  CompilePool::Options options = PoolOf("told");
  options.told = true;
  options.target.set_config("a GPU");
  options.parallel = 1;
  options.programs = 100;
  auto pool = Start(std::move(options));
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  std::vector<Awaited<Answer>> answers(1000);
  for (auto& answer : answers) pool->Compile("quick", {}, milliseconds(0), answer.Callback());
  for (auto& answer : answers) ASSERT_TRUE(answer.Get().ok());
}

TEST(CompilePoolTest, TheLimitOfCpuTimeHolds) {
  auto pool = Start("unruly");
  Answer spun = Compile(*pool, "spin", {}, milliseconds(60000));
  EXPECT_EQ(spun.status().code(), absl::StatusCode::kResourceExhausted) << spun.status();
  EXPECT_NE(Text(spun.status()).find("--compile-cpu-limit"), std::string::npos) << spun.status();
}

TEST(CompilePoolTest, TheLimitOfMemoryHolds) {
#ifdef FAIRWAY_SANITIZED
  GTEST_SKIP() << "the address sanitizer ends a process itself that runs out of memory";
#endif
  auto pool = Start("unruly");
  Answer ate = Compile(*pool, "eat", {}, milliseconds(60000));
  EXPECT_EQ(ate.status().code(), absl::StatusCode::kResourceExhausted) << ate.status();
  EXPECT_NE(Text(ate.status()).find("4294967296 bytes"), std::string::npos) << ate.status();
}

// The limits end these programs: without limits they run to the deadline.
TEST(CompilePoolTest, WithoutLimitsTheyWouldGoOn) {
  auto pool = Start("unsealed");
  EXPECT_EQ(Compile(*pool, "spin", {}, milliseconds(3000)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(CompilePoolTest, ProcessesAreConfined) {
  auto pool = Start("unruly");
  Answer answer = Compile(*pool, "probe");
  ASSERT_TRUE(answer.ok()) << answer.status();
  const std::string& seen = answer->code;
  for (const char* line :
       {"NoNewPrivs:\t1", "Seccomp:\t2", "socket: refused", "kill: refused",
        "signals to others: refused, to itself: possible", "core: 0", "execute: refused",
        "leave the group: refused", "raise: refused", "env: XLA_FLAGS=", "env: TZ=UTC", "fd: 3"})
    EXPECT_NE(seen.find(line), std::string::npos) << line << " is missing in\n" << seen;
  for (const char* line : {"env: AWS_", "fd: 4", "fd: 5"})
    EXPECT_EQ(seen.find(line), std::string::npos) << line << " is in\n" << seen;

  auto open = Start("unsealed");
  answer = Compile(*open, "probe");
  ASSERT_TRUE(answer.ok()) << answer.status();
  for (const char* line : {"socket: possible", "execute: possible", "leave the group: possible"})
    EXPECT_NE(answer->code.find(line), std::string::npos) << "the probe cannot tell " << line;
}

// A child that a program has taken over is of the same user as the keys of its worker.
TEST(CompilePoolTest, AProcessReadsAndWritesNoFilesOfItsUser) {
  const std::string token = testing::TempDir() + fmt::format("token-{}", getpid());
  const std::string made = token + "-made";
  std::ofstream(token) << "fw_secret";
  chmod(token.c_str(), 0600);
  const std::string environment = fmt::format("read /proc/{}/environ", getpid());
  const auto read = [](CompilePool& pool, const std::string& program) {
    const Answer answer = Compile(pool, program);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? answer->code : "no answer";
  };
  auto pool = Start("unruly");
  EXPECT_EQ(read(*pool, "read " + token), "");
  EXPECT_EQ(read(*pool, environment), "");
  EXPECT_NE(read(*pool, "read /proc/self/status"), "");
  read(*pool, "write " + made);
  EXPECT_FALSE(std::filesystem::exists(made));

  auto open = Start("unsealed");
  EXPECT_EQ(read(*open, "read " + token), "fw_secret");
  EXPECT_NE(read(*open, environment), "");
  read(*open, "write " + made);
  EXPECT_TRUE(std::filesystem::exists(made));
  unlink(token.c_str());
  unlink(made.c_str());
}

// Returns what a process that may execute the assembler can execute, by "execute" of the test's
// process.
std::string Executed(const std::string& role, const std::string& assembler) {
  CompilePool::Options options = PoolOf(role);
  options.argv.push_back(assembler);
  auto pool = Start(std::move(options));
  Answer answer =
      pool == nullptr ? absl::InternalError("no pool") : Compile(*pool, "execute " + assembler);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? answer->code : "";
}

// Like the processes of a plugin without nvJitLink. docs/design/0021 has the same table.
TEST(CompilePoolTest, AProcessThatMayExecuteTheAssemblerExecutesLittleElse) {
#ifdef FAIRWAY_SANITIZED
  GTEST_SKIP() << "a sanitizer's programs do not start under these limits";
#endif
  const std::string assembler = testing::TempDir() + fmt::format("assembler-{}", getpid());
  std::filesystem::copy_file("/bin/true", assembler,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(Executed("assembler-alone", assembler),
            "the assembler: possible\n"
            "another file: refused\n"
            "a copy of the assembler: refused\n"
            "by a descriptor: refused\n"
            // Weaker than without an assembler, but no way to do more than the process itself can.
            "a file without a name: possible\n"
            "another file through the loader, confined: possible\n"
            "a limit of CPU time of its own: possible\n");
  // On a system without Landlock.
  const std::string open = Executed("assembler-and-more", assembler);
  EXPECT_NE(open.find("another file: possible\n"), std::string::npos) << open;
  EXPECT_NE(open.find("by a descriptor: refused\n"), std::string::npos) << open;
  for (const char* file : {"", "-copy"}) std::filesystem::remove(assembler + file);
}

TEST(CompilePoolTest, CodeThatDoesNotMatchItsChecksumIsRefused) {
  auto pool = Start("unruly");
  EXPECT_EQ(Compile(*pool, "corrupt").status().code(), absl::StatusCode::kDataLoss);
}

TEST(CompilePoolTest, AProgramLargerThanTheSocketBufferPasses) {
  auto pool = Start("unruly");
  const std::string large(32 << 20, 'x');
  Answer answer = Compile(*pool, large);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->code, large);
}

TEST(CompilePoolTest, DestructionCancelsAndLeavesNoProcess) {
  CompilePool::Options options = PoolOf("unruly");
  options.parallel = 1;
  auto pool = Start(std::move(options));
  EXPECT_TRUE(test::Eventually([&] { return pool->pids().size() == 2; }));
  const std::vector<int> pids = pool->pids();
  Awaited<Answer> hanging, queued;
  pool->Compile("hang", {}, milliseconds(0), hanging.Callback());
  pool->Compile("queued", {}, milliseconds(0), queued.Callback());
  pool.reset();
  EXPECT_EQ(hanging.Get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(queued.Get().status().code(), absl::StatusCode::kCancelled);
  for (const int pid : pids) EXPECT_EQ(kill(pid, 0), -1);
}

// Returns whether the process is gone, or dead and not yet reaped.
bool IsDead(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return true;
  const size_t name_end = line.rfind(')');
  return line.substr(name_end + 2, 1) == "Z";
}

TEST(CompilePoolTest, AProcessEndsWithItsSupervisorEvenWhileCompiling) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  std::string program = FAIRWAY_TEST_PROCESS, argument = "supervise";
  char* argv[] = {program.data(), argument.data(), nullptr};
  char* env[] = {nullptr};
  pid_t supervisor = 0;
  ASSERT_EQ(posix_spawn(&supervisor, program.c_str(), &files, nullptr, argv, env), 0);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  char text[32] = {};
  ASSERT_GT(read(ends[0], text, sizeof(text) - 1), 0);
  close(ends[0]);
  const int child = std::atoi(text);
  ASSERT_GT(child, 0);
  EXPECT_FALSE(IsDead(child));
  ASSERT_EQ(kill(supervisor, SIGKILL), 0);
  ASSERT_EQ(waitpid(supervisor, nullptr, 0), supervisor);
  EXPECT_TRUE(test::Eventually([&] { return IsDead(child); }));
}

TEST(CompilePoolTest, AMissingProgramIsUnavailable) {
  CompilePool::Options options;
  options.argv = {"/nonexistent/process"};
  EXPECT_EQ(CompilePool::Start(options).status().code(), absl::StatusCode::kUnavailable);
}

TEST(CompilePoolTest, WhileNoOtherProcessComesUpProgramsWaitForThoseThereAre) {
  const std::string base = testing::TempDir() + "only_first_" + std::to_string(getpid());
  const std::string pipe = base + ".pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  CompilePool::Options options = PoolOf("only-first");
  options.argv.push_back(base);
  options.argv.push_back(testing::TempDir());
  options.parallel = 1;
  options.warm = 1;
  options.programs = 2;
  auto pool = Start(std::move(options));
  const auto spare_died = [&](int starts) {
    return test::Eventually([&] { return pool->starts() >= starts && pool->pids().size() == 1; });
  };
  Awaited<Answer> first, next, behind;
  pool->Compile("open " + pipe, {}, milliseconds(0), first.Callback());
  EXPECT_TRUE(spare_died(2));
  pool->Compile("next", {}, milliseconds(0), next.Callback());
  EXPECT_TRUE(spare_died(3));
  pool->Compile("behind", {}, milliseconds(0), behind.Callback());
  close(open(pipe.c_str(), O_WRONLY));
  EXPECT_TRUE(first.Get().ok());
  Answer answer = next.Get();
  EXPECT_TRUE(answer.ok()) << answer.status();
  // The only process was used up after two programs.
  EXPECT_EQ(behind.Get().status().code(), absl::StatusCode::kUnavailable);
  unlink(pipe.c_str());
  rmdir(base.c_str());
}

TEST(CompilePoolTest, AProcessThatNeverSaysThatItIsReadyIsReplaced) {
  const std::string base = testing::TempDir() + "first_hangs_" + std::to_string(getpid());
  CompilePool::Options options = PoolOf("first-hangs");
  options.argv.push_back(base);
  options.parallel = 1;
  options.warm = 1;
  options.ready_within = milliseconds(3000);
  auto pool = Start(std::move(options));
  const int first = pool->pids().at(0);
  Answer answer = Compile(*pool, "waits", {}, std::chrono::minutes(1));
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(pool->pids(), testing::Not(testing::Contains(first)));
  EXPECT_TRUE(test::Eventually([&] { return kill(first, 0) != 0; }));
  rmdir(base.c_str());
}

TEST(CompilePoolTest, WhileNoneSaysThatItIsReadyProgramsEndAtTheirLimits) {
  CompilePool::Options options = PoolOf("all-hang");
  options.warm = 1;
  options.ready_within = milliseconds(50);
  auto pool = Start(std::move(options));
  EXPECT_EQ(Compile(*pool, "x", {}, milliseconds(500)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(test::Eventually([&] { return pool->starts() > 2 && pool->crashes() > 1; }));
}

// The process that there is compiles for another tenant.
TEST(CompilePoolTest, NoTenantWaitsForAProcessThatCannotServeIt) {
  const std::string base = testing::TempDir() + "only_first_of_two_" + std::to_string(getpid());
  CompilePool::Options options = PoolOf("only-first");
  options.argv.insert(options.argv.end(), {base, testing::TempDir()});
  options.parallel = 1;
  options.warm = 1;
  auto pool = Start(std::move(options));
  const auto compile = [&](const std::string& tenant) {
    v1::CompileOptions own;
    own.set_tenant(tenant);
    return Compile(*pool, "x", own).status().code();
  };
  EXPECT_EQ(compile("red"), absl::StatusCode::kOk);
  EXPECT_EQ(compile("blue"), absl::StatusCode::kUnavailable);
  EXPECT_EQ(compile("red"), absl::StatusCode::kOk);
  rmdir(base.c_str());
}

TEST(CompilePoolTest, NamesAreFoundWithoutDecoding) {
  EXPECT_EQ(ProgramTitle("module @step attributes {}").substr(0, 17), "step (26 bytes, S");
  EXPECT_EQ(ProgramTitle(std::string("ML\xef\0 jit_train\0x", 17)).substr(0, 10), "jit_train ");
  EXPECT_EQ(ProgramTitle("").substr(0, 9), "program (");
}

}  // namespace
}  // namespace fairway
