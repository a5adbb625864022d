// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <csignal>
#include <utility>

#include <spdlog/spdlog.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "worker/executor/executor_process.h"

namespace fairway {

void RunExecutor(const ExecutorConfig& config, Runtime* runtime) {
  std::signal(SIGPIPE, SIG_IGN);
  // These may come to the whole process group; the supervisor decides what they mean.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  EventLoop loop;
  ExecutorProcess process(loop, config, runtime);
  boost::asio::signal_set signals(loop.io_context(), SIGTERM);
  signals.async_wait([&process](const boost::system::error_code& error, int) {
    if (!error) process.Drain();
  });
  process.Start();
  const int code = process.Run();
  // Leaves at once: launch threads may be inside the plugin for long, and the plugin's threads do
  // not end in order.
  spdlog::default_logger()->flush();
  ::_exit(code);
}

}  // namespace fairway
