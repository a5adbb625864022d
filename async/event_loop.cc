// SPDX-License-Identifier: Apache-2.0
#include "async/event_loop.h"

#include <atomic>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "async/timed.h"

namespace fairway {

struct EventLoop::State {
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  std::atomic<std::thread::id> thread{};
};

EventLoop::EventLoop() : state_(std::make_unique<State>()) {}
EventLoop::~EventLoop() = default;

void EventLoop::Post(std::string_view name, Handler handler) {
  boost::asio::post(state_->io,
                    [name, handler = std::move(handler)]() mutable { RunTimed(name, handler); });
}

void EventLoop::PostAfter(std::chrono::milliseconds delay, std::string_view name, Handler handler) {
  auto timer = std::make_unique<boost::asio::steady_timer>(state_->io, delay);
  auto& t = *timer;
  t.async_wait([timer = std::move(timer), name,
                handler = std::move(handler)](const boost::system::error_code& error) mutable {
    if (!error) RunTimed(name, handler);
  });
}

void EventLoop::Run() {
  state_->thread = std::this_thread::get_id();
  state_->io.run();
  state_->thread = std::thread::id();
  state_->io.restart();  // so that Run may be called again
}

void EventLoop::Stop() { state_->io.stop(); }

bool EventLoop::InLoop() const { return state_->thread.load() == std::this_thread::get_id(); }

boost::asio::io_context& EventLoop::io_context() { return state_->io; }

}  // namespace fairway
