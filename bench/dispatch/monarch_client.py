# SPDX-License-Identifier: Apache-2.0
"""Gang computations in Monarch, for dispatch_bench.py: one process for each shard.

  monarch_client.py DEVICES SCALE

A step: the actors add up their scalars over loopback TCP (hub_sum.py), then each multiplies the sum
by 1 / DEVICES and keeps it for the next step. OpByOp: a call of all actors for each step; the
driver waits for the call 64 before. Chained: 128 broadcasts without answers, then a call that is
waited for. Fused: a call that does 128 steps.
"""

import sys
from collections import deque

CHAIN, WINDOW = 128, 64


def main():
    devices, scale = int(sys.argv[1]), int(sys.argv[2])
    from hub_sum import HubSum
    from monarch.actor import Actor, current_rank, endpoint, this_host
    from serve import serve

    class Shard(Actor):
        def __init__(self, devices):
            self.devices, self.value = devices, 1.0
            self.rank = current_rank().rank

        @endpoint
        def listen(self):
            if self.rank == 0:
                self.hub = HubSum(0, self.devices)
                return self.hub.port
            return 0

        @endpoint
        def join(self, port):
            if self.rank > 0:
                self.hub = HubSum(self.rank, self.devices, port)
            self.hub.accept()

        @endpoint
        def step(self):
            self.value = self.hub.sum(self.value) / self.devices
            return self.value

        @endpoint
        def steps(self):
            for _ in range(CHAIN):
                self.value = self.hub.sum(self.value) / self.devices
            return self.value

    processes = this_host().spawn_procs(per_host={"shards": devices})
    shards = processes.spawn("shards", Shard, devices)
    port = max(port for _, port in shards.listen.call().get().items())
    shards.join.call(port).get()

    def calls(method, count):
        waiting = deque()
        for _ in range(count):
            waiting.append(method.call())
            if len(waiting) > WINDOW:
                waiting.popleft().get()
        while waiting:
            waiting.popleft().get()

    def broadcasts(count):
        for _ in range(count):
            for _ in range(CHAIN - 1):
                shards.step.broadcast()
            shards.step.call().get()

    try:
        serve({"OpByOp": (1, lambda count: calls(shards.step, count)),
               "Chained": (CHAIN, broadcasts),
               "Fused": (CHAIN, lambda count: calls(shards.steps, count))}, scale)
    finally:
        processes.stop().get()


if __name__ == "__main__":
    main()
