// SPDX-License-Identifier: Apache-2.0
// The floor of dispatch_bench.py for steps that need the sum of the step before: a process for each
// shard, with nothing between them but shared memory and futexes.
//   shared_sum DEVICES SCALE
// Prints "ready Chained". Then for each line of its input, a style, prints "STEPS SECONDS".
// Chained: all peers are asked for 128 steps at once. In each step a peer writes its share, sleeps
// until all have written theirs, and adds these up; the sum is the next step's value. Whoever
// writes last wakes all others with one call. All are on one CPU: they do nothing but wait for each
// other, and to wake a thread on another CPU takes longer.
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <string>

namespace {

constexpr uint32_t kChain = 128;
constexpr int kSteps = 16384;  // of one measurement at one device
constexpr int kMaxPeers = 64;

struct alignas(64) Word {
  std::atomic<uint32_t> value{0};

  void Add(uint32_t more) {
    value.fetch_add(more);
    syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  void WaitWhile(uint32_t seen) {
    while (value.load() == seen) syscall(SYS_futex, &value, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
};
struct alignas(64) Share {
  double value = 0;
};

struct Shared {
  Word orders;  // so many have been given
  Word ended;   // orders that all peers have ended
  Word steps;   // so many have been made, by all
  double value = 1;
  std::atomic<int> open{0};  // peers that have not ended the order
  std::atomic<int> wrote[2] = {0, 0};
  Share shares[2][kMaxPeers];  // of steps with even and with odd numbers
};

[[noreturn]] void RunPeer(Shared& all, int self, int devices) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setsid();  // as with daemons: no scheduling in a group with the others
  for (uint32_t order = 0;; ++order) {
    all.orders.WaitWhile(order);
    double value = all.value;
    for (uint32_t i = 0; i < kChain; ++i) {
      const int now = static_cast<int>(i % 2);
      const uint32_t seen = all.steps.value.load();
      all.shares[now][self].value = value / devices;
      if (all.wrote[now].fetch_add(1) == devices - 1) {
        all.wrote[now].store(0);
        all.steps.Add(1);
      } else {
        all.steps.WaitWhile(seen);
      }
      value = 0;
      for (int peer = 0; peer < devices; ++peer) value += all.shares[now][peer].value;
    }
    if (all.open.fetch_sub(1) == 1) {
      all.value = value;
      all.ended.Add(1);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int devices = std::stoi(argv[1]);
  const int scale = std::stoi(argv[2]);
  if (devices < 1 || devices > kMaxPeers) return 2;
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  Shared& all = *new (memory) Shared;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) std::perror("sched_setaffinity");
  for (int i = 0; i < devices; ++i) {
    const pid_t child = fork();
    if (child < 0) {
      std::perror("fork");
      return 1;
    }
    if (child == 0) RunPeer(all, i, devices);
  }
  std::cout << "ready Chained" << std::endl;
  uint32_t orders = 0;
  for (std::string style; std::getline(std::cin, style);) {
    const int messages = std::max<int>(1, kSteps * 4 / scale / devices / static_cast<int>(kChain));
    const auto began = std::chrono::steady_clock::now();
    for (int m = 0; m < messages; ++m) {
      all.open.store(devices);
      all.orders.Add(1);
      all.ended.WaitWhile(orders++);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (all.value != 1) {
      std::cout << "error the sum is " << all.value << ", not 1" << std::endl;
      continue;
    }
    std::cout << static_cast<uint64_t>(messages) * kChain << " " << took.count() << std::endl;
  }
  // The peers end with this process.
}
