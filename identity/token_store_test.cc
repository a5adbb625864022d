// SPDX-License-Identifier: Apache-2.0
#include "identity/token_store.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "identity/database.h"

namespace fairway {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using std::chrono::sys_seconds;
using ::testing::HasSubstr;
using ::testing::Not;

const sys_seconds kNow(seconds(1'800'000'000));

TokenSpec UserOf(const std::string& tenant) {
  return {.role = TokenRole::kUser, .tenant = tenant, .lifetime = hours(24)};
}

class TokenStoreTest : public ::testing::Test {
 protected:
  TokenStoreTest() {
    std::string made = (std::filesystem::temp_directory_path() / "fairway-XXXXXX").string();
    if (::mkdtemp(made.data()) == nullptr) std::abort();
    root_ = made;
  }
  ~TokenStoreTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  std::unique_ptr<TokenStore> Open() {
    auto store = TokenStore::Open(directory());
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static absl::Status Use(TokenStore& store, int64_t id) {
    const std::lock_guard lock(store.database()->mutex());
    return UseToken(store.database()->handle(), id);
  }
  std::string directory() const { return root_ + "/data"; }

  std::string root_;
};

TEST_F(TokenStoreTest, WhatWasMadeIsThereWhenItIsOpenedAgain) {
  auto store = Open();
  const auto user = store->Create(UserOf("red"), kNow);
  ASSERT_TRUE(user.ok()) << user.status();
  const auto worker = store->Create(
      {.role = TokenRole::kWorker, .worker = "w0", .lifetime = seconds(60), .uses = 2}, kNow);
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE(store->Revoke(user->kept.record.id, kNow + seconds(5)).ok());
  ASSERT_TRUE(Use(*store, worker->kept.record.id).ok());
  store.reset();

  store = Open();
  const auto all = store->All();
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 2u);
  const TokenRecord& first = (*all)[0].record;
  EXPECT_EQ(first.id, 1);
  EXPECT_EQ(first.role, TokenRole::kUser);
  EXPECT_EQ(first.tenant, "red");
  EXPECT_EQ(first.created, kNow);
  EXPECT_EQ(first.expires, kNow + hours(24));
  EXPECT_EQ(first.uses, TokenRecord::kAnyUses);
  EXPECT_EQ(first.revoked, kNow + seconds(5));
  EXPECT_EQ((*all)[0].hash, HashOfSecret(user->secret).value());
  const TokenRecord& second = (*all)[1].record;
  EXPECT_EQ(second.id, 2);
  EXPECT_EQ(second.role, TokenRole::kWorker);
  EXPECT_EQ(second.tenant, "");
  EXPECT_EQ(second.uses, 1);
  EXPECT_EQ(second.revoked, sys_seconds());
}

TEST_F(TokenStoreTest, NoFileHasASecret) {
  auto store = Open();
  const auto made = store->Create(UserOf("red"), kNow);
  ASSERT_TRUE(made.ok());
  int files = 0;
  const auto look = [&] {
    for (const auto& file : std::filesystem::directory_iterator(directory())) {
      std::ifstream in(file.path(), std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(in)), {});
      EXPECT_THAT(text, Not(HasSubstr(made->secret.substr(3)))) << file.path();
      EXPECT_EQ(std::filesystem::status(file.path()).permissions(),
                std::filesystem::perms::owner_read | std::filesystem::perms::owner_write)
          << file.path();
      ++files;
    }
  };
  look();
  store.reset();
  look();
  EXPECT_GE(files, 4);  // lock, database and log; and afterwards
}

TEST_F(TokenStoreTest, ARevokedTokenKeepsItsTimeAndAnUnknownOneIsNamed) {
  auto store = Open();
  const int64_t id = store->Create(UserOf("red"), kNow)->kept.record.id;
  ASSERT_TRUE(store->Revoke(id, kNow).ok());
  ASSERT_TRUE(store->Revoke(id, kNow + seconds(9)).ok());
  EXPECT_EQ(store->All()->front().record.revoked, kNow);
  const absl::Status unknown = store->Revoke(99, kNow);
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Text(unknown), HasSubstr("there is no token 99"));
}

TEST_F(TokenStoreTest, ATokenIsUsedAsOftenAsItMayBe) {
  auto store = Open();
  const int64_t id =
      store
          ->Create({.role = TokenRole::kWorker, .worker = "w0", .lifetime = seconds(60), .uses = 1},
                   kNow)
          ->kept.record.id;
  EXPECT_TRUE(Use(*store, id).ok());
  EXPECT_EQ(Use(*store, id).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Use(*store, 77).code(), absl::StatusCode::kFailedPrecondition);
  const auto revoked = store->Create(
      {.role = TokenRole::kWorker, .worker = "w0", .lifetime = seconds(60), .uses = 1}, kNow);
  ASSERT_TRUE(store->Revoke(revoked->kept.record.id, kNow).ok());
  EXPECT_EQ(Use(*store, revoked->kept.record.id).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(TokenStoreTest, TokensThatEndedLongAgoMakeRoomAndTheirIdsAreNotGivenAgain) {
  auto store = Open();
  ASSERT_EQ(store->Create(UserOf("red"), kNow)->kept.record.id, 1);
  ASSERT_EQ(store->Create(UserOf("red"), kNow)->kept.record.id, 2);
  ASSERT_TRUE(store->Revoke(1, kNow).ok());
  // A day before they are forgotten both are there; 30 days after their ends neither is.
  ASSERT_EQ(store->Create(UserOf("red"), kNow + hours(24) * 29)->kept.record.id, 3);
  EXPECT_EQ(store->All()->size(), 3u);
  ASSERT_EQ(store->Create(UserOf("red"), kNow + hours(24) * 32)->kept.record.id, 4);
  const auto all = store->All();
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(all->front().record.id, 3);
}

TEST_F(TokenStoreTest, SpecsThatMakeNoSenseAreRefused) {
  auto store = Open();
  const auto said = [&](const TokenSpec& spec) { return Text(store->Create(spec, kNow).status()); };
  EXPECT_THAT(said({.role = TokenRole::kUser, .tenant = "", .lifetime = hours(1)}),
              HasSubstr("is no name of a tenant"));
  EXPECT_THAT(said({.role = TokenRole::kAdmin, .tenant = "red", .lifetime = hours(1)}),
              HasSubstr("a token of role admin has no tenant"));
  EXPECT_THAT(said({.role = TokenRole::kAdmin, .tenant = "", .lifetime = seconds(0)}),
              HasSubstr("a token lives 1 s to 36500 days, not 0 s"));
  EXPECT_THAT(said({.role = TokenRole::kAdmin, .tenant = "", .lifetime = hours(1), .uses = 3}),
              HasSubstr("only the uses of a worker's token are counted"));
  EXPECT_THAT(said({.role = TokenRole::kWorker, .worker = "w0", .lifetime = hours(1), .uses = 0}),
              HasSubstr("a token may be used 1 to 1000000 times, not 0"));
  EXPECT_TRUE(store->All()->empty());
}

TEST_F(TokenStoreTest, OneProcessHasADirectory) {
  const auto store = Open();
  const absl::Status second = TokenStore::Open(directory()).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(second), HasSubstr("another process uses this directory"));
}

TEST_F(TokenStoreTest, ADirectoryThatOthersReachIsRefused) {
  ASSERT_EQ(::mkdir(directory().c_str(), 0700), 0);
  ASSERT_EQ(::chmod(directory().c_str(), 0750), 0);
  EXPECT_THAT(Text(TokenStore::Open(directory()).status()),
              HasSubstr("other users can reach this directory (mode 750)"));
  EXPECT_THAT(Text(TokenStore::Open("/proc/no").status()), HasSubstr("/proc/no: "));
}

TEST_F(TokenStoreTest, WhatIsNoStoreAndWhatIsNewerIsRefused) {
  ASSERT_EQ(::mkdir(directory().c_str(), 0700), 0);
  std::ofstream(directory() + "/fairway.db") << std::string(8192, 'x');
  const absl::Status garbage = TokenStore::Open(directory()).status();
  EXPECT_EQ(garbage.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(garbage), HasSubstr("fairway.db: it is damaged, or is no file of Fairway's"));

  std::filesystem::remove(directory() + "/fairway.db");
  Open().reset();
  // The version of the tables: a number of 4 bytes, the highest first, at 60 (SQLite's format).
  std::fstream(directory() + "/fairway.db").seekp(63).put(9);
  EXPECT_THAT(Text(TokenStore::Open(directory()).status()),
              HasSubstr("its format is 9, and this version of Fairway knows 2"));
}

// Runs `body` in a process of its own, which begins with one thread. Returns its id.
pid_t InAnotherProcess(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  return child;
}

int WaitFor(pid_t child) {
  int how = 0;
  EXPECT_EQ(::waitpid(child, &how, 0), child);
  return how;
}

// A process revokes tokens, and writes the id of each that it has revoked into a pipe. It is killed
// after a number of them: all that it named must be revoked, and the store must be whole.
TEST_F(TokenStoreTest, AKilledProcessLosesNoRevocation) {
  constexpr int kTokens = 24;
  for (int kill_after = 1; kill_after < kTokens; kill_after += 5) {
    std::filesystem::remove_all(directory());
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = InAnotherProcess([&] {
      auto store = TokenStore::Open(directory());
      if (!store.ok()) ::_exit(1);
      for (int i = 0; i < kTokens; ++i) {
        if (!(*store)->Create(UserOf("red"), kNow).ok()) ::_exit(1);
      }
      for (int64_t id = 1; id <= kTokens; ++id) {
        if (!(*store)->Revoke(id, kNow).ok()) ::_exit(1);
        if (::write(ends[1], &id, sizeof id) != sizeof id) ::_exit(1);
      }
      for (;;) ::pause();
    });
    ::close(ends[1]);
    int64_t last = 0;
    while (last < kill_after && ::read(ends[0], &last, sizeof last) == sizeof last) {
    }
    EXPECT_EQ(last, kill_after);
    ::kill(child, SIGKILL);
    const int how = WaitFor(child);
    EXPECT_TRUE(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    // What it named before it died.
    while (::read(ends[0], &last, sizeof last) == sizeof last) {
    }
    ::close(ends[0]);

    const auto store = Open();
    ASSERT_NE(store, nullptr);
    const auto all = store->All();
    ASSERT_TRUE(all.ok()) << all.status();
    ASSERT_EQ(all->size(), static_cast<size_t>(kTokens));
    for (const TokenStore::Kept& kept : *all) {
      if (kept.record.id <= last) EXPECT_EQ(kept.record.revoked, kNow) << kept.record.id;
    }
  }
}

// Makes tokens until the disk is full. Then it checks what a full disk may do: no new token, and
// all that was there stays. Ends the process with 0, or the number of what was wrong.
void FillTheDisk(const std::string& directory) {
  auto opened = TokenStore::Open(directory);
  if (!opened.ok()) ::_exit(2);
  TokenStore& store = **opened;
  size_t made = 0;
  absl::Status last;
  for (; made < 100'000 && last.ok(); ++made) last = store.Create(UserOf("red"), kNow).status();
  --made;
  if (last.code() != absl::StatusCode::kResourceExhausted) ::_exit(3);
  if (Text(last).find("make room on its disk") == std::string::npos) ::_exit(4);
  if (made < 10) ::_exit(5);
  const auto all = store.All();
  if (!all.ok() || all->size() != made) ::_exit(6);
  ::_exit(0);
}

TEST_F(TokenStoreTest, AFileThatMayNotGrowTakesNoMoreTokensAndKeepsThoseThatAreThere) {
  const int how = WaitFor(InAnotherProcess([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit most{256 << 10, 256 << 10};
    if (::setrlimit(RLIMIT_FSIZE, &most) != 0) ::_exit(10);
    FillTheDisk(directory());
  }));
  ASSERT_TRUE(WIFEXITED(how));
  EXPECT_EQ(WEXITSTATUS(how), 0);
  EXPECT_GE(Open()->All()->size(), 10u);
}

TEST_F(TokenStoreTest, AFullDiskTakesNoMoreTokensAndKeepsThoseThatAreThere) {
  constexpr int kMayNotMount = 11;
  const int how = WaitFor(InAnotherProcess([&] {
    if (::mkdir(directory().c_str(), 0700) != 0) ::_exit(12);
    // Below this process alone.
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", directory().c_str(), "tmpfs", 0, "size=256k,mode=0700") != 0)
      ::_exit(kMayNotMount);
    FillTheDisk(directory());
  }));
  ASSERT_TRUE(WIFEXITED(how));
  if (WEXITSTATUS(how) == kMayNotMount) GTEST_SKIP() << "this user may mount nothing";
  EXPECT_EQ(WEXITSTATUS(how), 0);
}

}  // namespace
}  // namespace fairway
