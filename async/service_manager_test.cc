// SPDX-License-Identifier: Apache-2.0
#include "async/service_manager.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::milliseconds;

// The service manager's end: a datagram socket at a path, or at an abstract name ("@name").
class Manager {
 public:
  explicit Manager(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name.front() == '@') address.sun_path[0] = '\0';
    fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0) << std::strerror(errno);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~Manager() { ::close(fd_); }

  // The next message; empty: none came within `limit`.
  std::string Next(milliseconds limit = milliseconds(60000)) {
    pollfd one{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&one, 1, static_cast<int>(limit.count())) != 1) return "";
    char text[256];
    const ssize_t size = ::recv(fd_, text, sizeof text, 0);
    return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
  }

 private:
  int fd_ = -1;
};

class ServiceManagerTest : public testing::Test {
 protected:
  ServiceManagerTest() {
    char pattern[] = "/tmp/service_manager_test.XXXXXX";
    folder_ = ::mkdtemp(pattern);
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(name);
  }
  ~ServiceManagerTest() override { std::filesystem::remove_all(folder_); }

  // Runs the loop on a thread of its own until `until` has returned, which runs on this one.
  void RunUntil(const std::function<void()>& until) {
    std::thread runner([this] { loop_.Run(); });
    until();
    loop_.Stop();
    runner.join();
  }

  std::string folder_;
  EventLoop loop_;
};

TEST_F(ServiceManagerTest, HearsThatTheProcessServesRunsAndEnds) {
  Manager manager(folder_ + "/notify");
  ::setenv("WATCHDOG_USEC", "3000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  ServiceManager told(loop_);
  for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
    EXPECT_EQ(::getenv(name), nullptr) << "a child would speak for its parent";
  EXPECT_EQ(manager.Next(milliseconds(0)), "") << "before it serves";
  loop_.Post("ready", [&] {
    told.Ready();
    told.Ready();
  });
  RunUntil([&] {
    EXPECT_EQ(manager.Next(), "READY=1");
    for (int i = 0; i < 5; ++i) EXPECT_EQ(manager.Next(), "WATCHDOG=1");
    loop_.Post("stopping", [&] { told.Stopping(milliseconds(12000)); });
    std::string next = manager.Next();
    while (next == "WATCHDOG=1") next = manager.Next();
    EXPECT_EQ(next, "STOPPING=1\nEXTEND_TIMEOUT_USEC=12000000");
    EXPECT_EQ(manager.Next(), "WATCHDOG=1") << "a loop that still works says so";
  });
}

TEST_F(ServiceManagerTest, HearsNothingFromALoopThatHangs) {
  Manager manager(folder_ + "/notify");
  ::setenv("WATCHDOG_USEC", "3000", 1);
  ServiceManager told(loop_);
  loop_.Post("ready", [&] { told.Ready(); });
  std::promise<bool> silent;
  loop_.Post("hang", [&] {
    while (!manager.Next(milliseconds(0)).empty()) {
    }
    silent.set_value(manager.Next(milliseconds(30)).empty());  // ten times the watchdog's time
  });
  RunUntil([&] {
    EXPECT_TRUE(silent.get_future().get());
    EXPECT_EQ(manager.Next(), "WATCHDOG=1") << "it runs again";
  });
}

TEST_F(ServiceManagerTest, MayHaveAnAbstractName) {
  Manager manager("@fairway-" + std::filesystem::path(folder_).filename().string());
  ServiceManager told(loop_);
  told.Ready();
  EXPECT_EQ(manager.Next(milliseconds(0)), "READY=1");
}

TEST_F(ServiceManagerTest, AsksForNoSignsOfLifeOfOthersOrWithoutAReadableTime) {
  for (const auto& [time, whose] :
       {std::pair("3000", "1"), {"3000", "nobody"}, {"0", ""}, {"soon", ""}, {"-1", ""}}) {
    const std::string path = folder_ + "/" + time + whose;
    Manager manager(path);
    ::setenv("WATCHDOG_USEC", time, 1);
    if (*whose != '\0') ::setenv("WATCHDOG_PID", whose, 1);
    ServiceManager told(loop_);
    told.Ready();
    EXPECT_EQ(manager.Next(milliseconds(0)), "READY=1");
    EXPECT_EQ(manager.Next(milliseconds(0)), "") << time << " " << whose;
  }
}

TEST_F(ServiceManagerTest, MayBeAbsentOrGone) {
  ServiceManager nobody(loop_);
  nobody.Ready();
  nobody.Stopping(milliseconds(1));
  for (const std::string& path : {folder_ + "/gone", std::string(200, 'x')}) {
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
    testing::internal::CaptureStdout();
    ServiceManager gone(loop_);
    gone.Ready();
    EXPECT_THAT(testing::internal::GetCapturedStdout(),
                testing::HasSubstr("cannot tell the service manager READY=1"));
  }
}

}  // namespace
}  // namespace fairway
