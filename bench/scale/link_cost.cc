// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/link_cost.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "async/event_loop.h"
#include "transport/link.h"

namespace fairway::scale {
namespace {

constexpr int kRounds = 100;
constexpr int kRepetitions = 5;

// One side of the links, with a loop of its own.
struct Side {
  EventLoop loop;
  std::vector<std::unique_ptr<Link>> links;
};

Frame FrameOf(size_t bytes) {
  Frame frame;
  frame.payload.assign(bytes, 'x');
  return frame;
}

Nanos Median(std::vector<Nanos> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Lets one thread wait for another.
class Signal {
 public:
  void Give() {
    const std::lock_guard<std::mutex> lock(mutex_);
    given_ = true;
    changed_.notify_one();
  }
  void Take() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return given_; });
    given_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool given_ = false;
};

// Sends one frame on each link of `side`, then calls `written`. Called in the side's loop.
void SendAll(Side& side, size_t bytes, std::function<void()> written) {
  for (auto& link : side.links) link->Send(FrameOf(bytes));
  // Links write in handlers of their own, which run before this one.
  side.loop.Post("written", [written = std::move(written)] { written(); });
}

// The near side's CPU per frame, for frames that have all come before it looks.
Nanos MeasureReceive(Side& near, Side& far, size_t bytes) {
  Signal written;
  Nanos used = 0;
  for (int round = 0; round < kRounds; ++round) {
    far.loop.Post("send", [&] { SendAll(far, bytes, [&] { written.Give(); }); });
    written.Take();
    used += MeasureCpu([&] { near.loop.Run(); });
  }
  return used / static_cast<Nanos>(kRounds * near.links.size());
}

// The near side's CPU per frame, for frames that it writes in one turn of its loop.
Nanos MeasureSend(Side& near, Signal& all_at_far, size_t bytes) {
  Nanos used = 0;
  for (int round = 0; round < kRounds; ++round) {
    near.loop.Post("send", [&] { SendAll(near, bytes, [&] { near.loop.Stop(); }); });
    used += MeasureCpu([&] { near.loop.Run(); });
    all_at_far.Take();
  }
  return used / static_cast<Nanos>(kRounds * near.links.size());
}

absl::Status Connect(Side& near, Side& far, int count) {
  FAIRWAY_ASSIGN_OR_RETURN(const auto server,
                           ListenTcp(near.loop, "127.0.0.1:0", [&](std::unique_ptr<Link> link) {
                             near.links.push_back(std::move(link));
                             if (near.links.size() == static_cast<size_t>(count)) near.loop.Stop();
                           }));
  absl::Status failed;
  for (int i = 0; i < count; ++i) {
    ConnectTcp(far.loop, "127.0.0.1:" + std::to_string(server->port()), std::chrono::seconds(5),
               [&](absl::StatusOr<std::unique_ptr<Link>> link) {
                 if (!link.ok()) {
                   failed = link.status();
                   near.loop.Stop();
                   far.loop.Stop();
                 } else {
                   far.links.push_back(*std::move(link));
                   if (far.links.size() == static_cast<size_t>(count)) far.loop.Stop();
                 }
               });
  }
  std::thread connecting([&far] { far.loop.Run(); });
  near.loop.Run();
  connecting.join();
  return failed;
}

}  // namespace

absl::StatusOr<LinkCost> MeasureLinkCost(int links, size_t bytes) {
  Side near, far;
  FAIRWAY_RETURN_IF_ERROR(
      Annotate(Connect(near, far, links), "measuring what links cost over loopback"));
  size_t at_near = 0, at_far = 0;
  Signal all_at_far;
  for (auto& link : near.links) {
    link->on_frame = [&](Frame) {
      if (++at_near % near.links.size() == 0) near.loop.Stop();
    };
  }
  for (auto& link : far.links) {
    link->on_frame = [&](Frame) {
      if (++at_far % far.links.size() == 0) all_at_far.Give();
    };
  }
  std::vector<Nanos> receive, send;
  std::thread far_thread([&far] { far.loop.Run(); });
  for (int i = 0; i < kRepetitions; ++i) {
    receive.push_back(MeasureReceive(near, far, bytes));
    send.push_back(MeasureSend(near, all_at_far, bytes));
  }
  far.loop.Stop();
  far_thread.join();
  for (auto& link : near.links) link.reset();
  for (auto& link : far.links) link.reset();
  return LinkCost{Median(receive), Median(send)};
}

}  // namespace fairway::scale
