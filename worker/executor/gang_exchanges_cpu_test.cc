// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <array>

#include "worker/executor/gang_exchanges_fixture_for_test.h"

namespace fairway {
namespace {

TEST_F(GangExchangesTest, NeighboursTryOneCpuTogether) {
  Make(3);
  std::vector<std::vector<float>> last(3);
  std::array<bool, 3> on_one{};
  // Swaps of a machine that is busy with other work may be too slow for it.
  for (uint64_t launch = 0; on_one != std::array{true, true, true}; launch += 1000) {
    std::vector<std::thread> gangs;
    for (size_t m = 0; m < 3; ++m) {
      gangs.emplace_back([&, m] {
        for (uint64_t i = launch + 1; i <= launch + 1000; ++i) {
          last[m] = ToFloats(Run(m, i, 1, {static_cast<float>(i % 7)}, 1 << 20));
          peers_[m].exchange->End(i, absl::OkStatus());
          cpu_set_t cpus;
          sched_getaffinity(0, sizeof cpus, &cpus);
          on_one[m] = on_one[m] || CPU_COUNT(&cpus) == 1;
        }
      });
    }
    for (std::thread& gang : gangs) gang.join();
    for (const auto& sum : last)
      EXPECT_EQ(sum, std::vector<float>{3 * static_cast<float>((launch + 1000) % 7)});
  }
}

}  // namespace
}  // namespace fairway
