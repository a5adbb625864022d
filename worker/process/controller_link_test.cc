// SPDX-License-Identifier: Apache-2.0
#include "worker/process/controller_link.h"

#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "wire/link_codec.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

// Keeps what the default logger is told.
class Log {
 public:
  Log() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~Log() { spdlog::set_default_logger(before_); }
  size_t Lines(const std::string& with) const {
    std::istringstream lines(text_.str());
    size_t count = 0;
    for (std::string line; std::getline(lines, line);)
      count += line.find(with) != std::string::npos ? 1 : 0;
    return count;
  }

 private:
  std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
};

TEST(ControllerLinkTest, TheSilenceOfTheControllerIsLoggedOnceUntilItIsHeardAgain) {
  const Log log;
  EventLoop loop;
  std::unique_ptr<Link> controller;
  int heard = 0;  // heartbeats
  bool answers = false;
  const auto server = ListenTcp(loop, "127.0.0.1:0", [&](std::unique_ptr<Link> link) {
    controller = std::move(link);
    controller->on_frame = [&](const Frame&) {
      ++heard;
      v1::FromController ack;
      ack.mutable_heartbeat_ack()->set_sequence(1);
      if (answers) controller->Send(PackFrame(ack));
    };
    v1::FromController registered;
    registered.mutable_registered();
    controller->Send(PackFrame(registered));
  });
  ASSERT_TRUE(server.ok()) << server.status();
  std::string ended;
  ControllerLink* made = nullptr;
  ControllerLink link(
      loop, fmt::format("127.0.0.1:{}", (*server)->port()), nullptr,
      {.on_open = [] {},
       .on_message = [&](const v1::FromController&) { made->StartHeartbeats(1, 60000); },
       .on_log_frame = nullptr,
       .on_end = [&](const std::string& why, bool) { ended = why; },
       .fill_heartbeat = [](v1::Heartbeat&) {}},
      milliseconds(20));
  made = &link;
  loop.Post("connect", [&] { link.Connect(); });
  // Runs the loop until `until` holds, or for two minutes.
  const auto run_until = [&](const std::function<bool()>& until) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    const std::function<void()> look = [&] {
      if (until() || std::chrono::steady_clock::now() > give_up) return loop.Stop();
      loop.PostAfter(milliseconds(1), "look", [&] { look(); });
    };
    loop.Post("look", [&] { look(); });
    loop.Run();
    EXPECT_TRUE(until());
  };
  run_until([&] { return log.Lines("is stalled") > 0; });
  const int when = heard;
  run_until([&] { return heard > when + 20; });
  EXPECT_EQ(log.Lines("is stalled"), 1u);
  answers = true;
  const int then = heard;
  run_until([&] { return heard > then + 5; });
  answers = false;
  run_until([&] { return log.Lines("is stalled") > 1; });
  EXPECT_EQ(ended, "");
}

}  // namespace
}  // namespace fairway
