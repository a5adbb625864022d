# SPDX-License-Identifier: Apache-2.0
"""Gang computations in Ray, for dispatch_bench.py: one actor process for each shard.

  ray_client.py actors|graph|chain DEVICES SCALE

A step: the actors add up their scalars, then each multiplies the sum by 1 / DEVICES.
actors, OpByOp: a method of each actor for each step, which takes what the actor's last step made;
  the sum goes over loopback TCP between the actors (hub_sum.py). Nobody waits for a step; the driver
  waits for the step 64 before. Fused: a method that does 128 steps.
graph, OpByOp: a compiled graph of one step: each actor gives its scalar to the first one, which adds,
  and gives the sum to the next step; 8 executions in flight, each of which takes what the one 8
  before made. Chained: a compiled graph of 128 such steps, one at a time.
"""

import os
import sys
import tempfile
import warnings
from collections import deque

CHAIN, WINDOW, IN_FLIGHT = 128, 64, 8


def start(devices):
    warnings.simplefilter("ignore", FutureWarning)
    # Its workers get the same share of the processors as others. It reports no usage statistics.
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0", PYTHONWARNINGS="ignore",
                      PYTHONPATH=os.path.dirname(os.path.abspath(__file__)))
    import ray

    ray.init(num_cpus=devices, include_dashboard=False, _node_ip_address="127.0.0.1",
             _temp_dir=tempfile.gettempdir(), log_to_driver=False, configure_logging=False,
             object_store_memory=256 << 20)
    return ray


def make_actors(ray, devices):
    @ray.remote(num_cpus=0, max_restarts=0)
    class Shard:
        def __init__(self, rank):
            self.rank = rank

        def listen(self):
            from hub_sum import HubSum

            self.hub = HubSum(0, devices)
            return self.hub.port

        def join(self, port):
            from hub_sum import HubSum

            if self.rank > 0:
                self.hub = HubSum(self.rank, devices, port)
            self.hub.accept()

        def step(self, value):
            return self.hub.sum(value) / devices

        def steps(self, value):
            for _ in range(CHAIN):
                value = self.hub.sum(value) / devices
            return value

        def give(self, value):
            return value / devices

        def add(self, *values):
            return sum(values)

    return [Shard.remote(rank) for rank in range(devices)]


def actors_styles(ray, shards):
    port = ray.get(shards[0].listen.remote())
    ray.get([shard.join.remote(port) for shard in shards])

    def run(method, calls):
        values, waiting = [1.0] * len(shards), deque()
        for _ in range(calls):
            values = [getattr(shard, method).remote(value)
                      for shard, value in zip(shards, values, strict=True)]
            waiting.append(values)
            if len(waiting) > WINDOW:
                ray.get(waiting.popleft())
        ray.get(values)

    return {"OpByOp": (1, lambda calls: run("step", calls)),
            "Fused": (CHAIN, lambda calls: run("steps", calls))}


def graph_styles(ray, shards, steps, in_flight):
    from ray.dag import InputNode

    with InputNode() as value:
        for _ in range(steps):
            given = [shard.give.bind(value) for shard in shards]
            value = shards[0].add.bind(*given)
    graph = value.experimental_compile(_max_inflight_executions=in_flight + 2,
                                       _max_buffered_results=in_flight + 2)

    def run(calls):
        waiting = deque()
        for _ in range(calls):
            value = ray.get(waiting.popleft()) if len(waiting) == in_flight else 1.0
            waiting.append(graph.execute(value))
        while waiting:
            ray.get(waiting.popleft())

    return {"OpByOp" if steps == 1 else "Chained": (steps, run)}


def main():
    kind, devices, scale = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    from serve import lines, serve

    streams = lines()  # Ray prints warnings to standard output
    ray = start(devices)
    try:
        shards = make_actors(ray, devices)
        if kind == "actors":
            styles = actors_styles(ray, shards)
        elif kind == "graph":
            styles = graph_styles(ray, shards, 1, IN_FLIGHT)
        else:
            styles = graph_styles(ray, shards, CHAIN, 1)
        serve(styles, scale, streams)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
