// SPDX-License-Identifier: Apache-2.0
// The floor of dispatch_bench.py: a hub and a process for each shard, with nothing between them but
// blocking loopback TCP.
//   tcp_hub DEVICES SCALE
// Prints "ready OpByOp,Chained". Then for each line of its input, a style, prints "STEPS SECONDS".
// OpByOp: the hub sends each peer the value; each answers with its share; the hub adds these up,
// and the sum is the next step's value. Chained: the hub asks each peer for 128 steps in one
// message, and each peer answers each step with a message of its own.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr uint32_t kChain = 128;
constexpr int kSteps = 16384;  // of one measurement at one device

struct Order {
  double value;
  uint64_t steps;
};

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

// False: the other side has closed.
bool ReadAll(int fd, void* to, size_t bytes) {
  const ssize_t got = recv(fd, to, bytes, MSG_WAITALL);
  if (got < 0) Die("recv");
  return static_cast<size_t>(got) == bytes;
}

void WriteAll(int fd, const void* from, size_t bytes) {
  if (send(fd, from, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) Die("send");
}

void NoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

[[noreturn]] void RunPeer(const sockaddr_in& hub, int devices) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&hub), sizeof(hub)) != 0) Die("connect");
  NoDelay(fd);
  for (Order order; ReadAll(fd, &order, sizeof(order));) {
    for (uint64_t i = 0; i < order.steps; ++i) {
      const double share = order.value / devices;
      WriteAll(fd, &share, sizeof(share));
    }
  }
  std::_Exit(0);
}

std::vector<int> StartPeers(int devices) {
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(server, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(server, devices) != 0 ||
      getsockname(server, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    Die("listen");
  std::vector<int> peers;
  for (int i = 0; i < devices; ++i) {
    const pid_t child = fork();
    if (child < 0) Die("fork");
    if (child == 0) {
      // Otherwise the ends of other peers would stay open in it.
      for (const int peer : peers) close(peer);
      close(server);
      RunPeer(address, devices);
    }
    peers.push_back(accept(server, nullptr, nullptr));
    if (peers.back() < 0) Die("accept");
    NoDelay(peers.back());
  }
  close(server);
  return peers;
}

// The value after `messages` messages to each peer, of `steps` steps each.
double Run(const std::vector<int>& peers, int messages, uint64_t steps) {
  double value = 1;
  std::vector<double> shares(steps);
  for (int m = 0; m < messages; ++m) {
    const Order order{value, steps};
    for (const int peer : peers) WriteAll(peer, &order, sizeof(order));
    value = 0;
    for (const int peer : peers) {
      if (!ReadAll(peer, shares.data(), steps * sizeof(double))) Die("a peer has ended");
      value += shares.back();
    }
  }
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int devices = std::stoi(argv[1]);
  const int scale = std::stoi(argv[2]);
  const std::vector<int> peers = StartPeers(devices);
  std::cout << "ready OpByOp,Chained" << std::endl;
  for (std::string style; std::getline(std::cin, style);) {
    const uint64_t steps = style == "OpByOp" ? 1 : kChain;
    const int messages =
        std::max<int>(1, kSteps * (steps == 1 ? 1 : 4) / scale / devices / static_cast<int>(steps));
    const auto began = std::chrono::steady_clock::now();
    const double value = Run(peers, messages, steps);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (value != 1) {
      std::cout << "error the sum is " << value << ", not 1" << std::endl;
      continue;
    }
    std::cout << static_cast<uint64_t>(messages) * steps << " " << took.count() << std::endl;
  }
  for (const int peer : peers) close(peer);
  while (wait(nullptr) > 0) {
  }
}
