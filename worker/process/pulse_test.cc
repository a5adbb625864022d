// SPDX-License-Identifier: Apache-2.0
#include "worker/process/pulse.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "wire/link_codec.h"

namespace fairway {
namespace {

class PulseTest : public ::testing::Test {
 protected:
  // The controller's end of a connection.
  struct Seen {
    std::unique_ptr<Link> link;
    std::string worker;  // of the message that came
    bool closed = false;
  };

  PulseTest() {
    server_ = ListenTcp(loop_, "127.0.0.1:0", [this](std::unique_ptr<Link> link) {
                Seen* const seen = seen_.emplace_back(std::make_unique<Seen>()).get();
                seen->link = std::move(link);
                seen->link->on_frame = [seen](const Frame& frame) {
                  v1::ToController message;
                  EXPECT_TRUE(UnpackFrame(frame, &message).ok());
                  seen->worker = message.pulse().worker();
                };
                seen->link->on_closed = [seen](const absl::Status&) { seen->closed = true; };
              }).value();
    v1::Pulse message;
    message.set_worker("w0");
    pulse_ = std::make_unique<Pulse>(loop_, fmt::format("127.0.0.1:{}", server_->port()), nullptr,
                                     message);
  }

  // Starts the pulse; the controller takes its message.
  Seen& Start() {
    const size_t before = seen_.size();
    loop_.Post("start", [this] { pulse_->Start(); });
    RunUntil([&] { return seen_.size() > before && !seen_.back()->worker.empty(); });
    return *seen_.back();
  }
  void RunUntil(const std::function<bool()>& until) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    const std::function<void()> look = [&] {
      if (until() || std::chrono::steady_clock::now() > give_up) return loop_.Stop();
      loop_.PostAfter(std::chrono::milliseconds(1), "look", [&] { look(); });
    };
    loop_.Post("look", [&] { look(); });
    loop_.Run();
    EXPECT_TRUE(until());
  }

  EventLoop loop_;
  std::vector<std::unique_ptr<Seen>> seen_;
  std::unique_ptr<LinkServer> server_;
  std::unique_ptr<Pulse> pulse_;
};

// The controller takes a pulse that closes in order for the end of its process.
TEST_F(PulseTest, OnlyTheControllerClosesAConnectionThatAnotherReplaces) {
  Seen& first = Start();
  EXPECT_EQ(first.worker, "w0");
  Seen& second = Start();
  // What the worker had closed before it sent on the second one would have been seen to close.
  EXPECT_FALSE(first.closed);
  first.link->Close();
  RunUntil([&] { return first.closed; });
  EXPECT_FALSE(second.closed);
  EXPECT_EQ(seen_.size(), 2u);
}

TEST_F(PulseTest, TheLatestConnectionIsMadeAgainWhenTheControllerClosesIt) {
  Seen& first = Start();
  first.link->Close();
  RunUntil([&] { return seen_.size() == 2 && seen_[1]->worker == "w0"; });
  EXPECT_TRUE(first.closed);
}

}  // namespace
}  // namespace fairway
