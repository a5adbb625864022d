// SPDX-License-Identifier: Apache-2.0
// The scale model at a small size: it runs, and its sums agree. Nothing here is timed.
#include "bench/scale/model.h"

#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/scale/measure.h"
#include "controller/cluster/inspection.h"

namespace fairway::scale {
namespace {

Options Small() {
  Options options;
  options.hosts = 4;
  options.devices_per_host = 2;
  options.gangs = 40;
  options.ahead = 24;
  options.computation = 50'000'000;  // far above the cost of deciding on any machine
  options.link = {2000, 3000};
  return options;
}

TEST(TimelineTest, EventsRunInTheOrderOfTheirTimes) {
  Timeline timeline;
  std::vector<int> ran;
  timeline.At(20, [&] { ran.push_back(3); });
  timeline.At(10, [&] {
    ran.push_back(1);
    timeline.At(5, [&] { ran.push_back(2); });  // in the past: runs now
  });
  timeline.At(20, [&] { ran.push_back(4); });
  while (timeline.Step()) {
  }
  EXPECT_THAT(ran, testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(timeline.now(), 20);
}

TEST(ScaleModelTest, LongComputationsRunWithoutAPause) {
  const Options options = Small();
  Model model(options);
  ASSERT_EQ(model.Start(), absl::OkStatus());
  const Result result = model.Run();
  ASSERT_EQ(result.error, "");
  EXPECT_EQ(model.gangs_ended(), 24u + 40u + 24u);
  EXPECT_GE(result.period, options.computation);
  EXPECT_GE(result.parity(options.computation), 0.99);
  EXPECT_GT(result.code_us, 0);
  EXPECT_GT(result.host_us, 0);
}

TEST(ScaleModelTest, WhatHostsGotIsWhatTheControllerSent) {
  const Options options = Small();
  Model model(options);
  ASSERT_EQ(model.Start(), absl::OkStatus());
  ASSERT_EQ(model.Run().error, "");
  uint64_t received = 0;
  for (const auto& host : model.hosts()) {
    EXPECT_EQ(host->failure(), absl::OkStatus());
    received += host->frames();
    EXPECT_EQ(host->core().num_nodes(), 0u);
  }
  // Frees may be under way when the client has been told of the last gang.
  EXPECT_LE(received, model.traffic().frames_out);
  EXPECT_GE(received + 2 * options.hosts, model.traffic().frames_out);
  // A frame tells a host of one gang at least, or of several together.
  EXPECT_GE(model.traffic().bytes_out, model.gangs_ended() * options.hosts * 20);
  const ClusterCounts counts = model.controller().cluster().inspection().counts();
  EXPECT_EQ(counts.executions, 89u);
  EXPECT_EQ(counts.nodes, 0u);
  EXPECT_EQ(counts.groups, 3u);  // the first argument and result, and the last result
  EXPECT_EQ(Describe(model.controller().cluster().inspection().CheckInvariants()), "OK");
}

TEST(ScaleModelTest, TheControllersCpuIsThatOfItsTurnsDoneAgain) {
  Model model(Small());
  ASSERT_EQ(model.Start(), absl::OkStatus());
  const Result result = model.Run();
  ASSERT_EQ(result.error, "");
  EXPECT_EQ(result.repeats_us.size(), 5u);
  EXPECT_EQ(result.code_us, result.repeats_us[2]);
  EXPECT_GT(result.cold_us, 0);
}

TEST(ScaleModelTest, ATurnThatSendsOtherFramesWhenItIsDoneAgainIsAnError) {
  v1::ClientMessage hello;
  hello.add_requests()->mutable_hello()->set_max_version(1);
  const Controller::Incoming message{-1, {}, hello.SerializeAsString()};
  std::vector<Controller::Done> turns(2);
  turns[0] = {0, {message}, Controller(2, 0).Run({message}).sent()};
  EXPECT_TRUE(Controller(2, 0).Repeat(turns, 1).ok());
  turns[1].sent.frames = 1;
  const absl::Status status = Controller(2, 0).Repeat(turns, 1).status();
  EXPECT_EQ(status.message(), "turn 1 of the controller, done again, sends other frames");
}

TEST(ScaleModelTest, SocketsAreCountedByTheFrame) {
  const Options options = Small();
  Model model(options);
  ASSERT_EQ(model.Start(), absl::OkStatus());
  ASSERT_EQ(model.Run().error, "");
  const Model::Traffic traffic = model.traffic();
  EXPECT_EQ(traffic.sockets, static_cast<Nanos>(traffic.frames_in) * options.link.receive +
                                 static_cast<Nanos>(traffic.frames_out) * options.link.send);
}

// With a tree of each depth.
TEST(ScaleModelTest, RelaysPassTheLogOnSoThatTheControllerWritesFewerFrames) {
  Options options = Small();
  options.hosts = 16;
  Model alone(options);
  ASSERT_EQ(alone.Start(), absl::OkStatus());
  const Result without = alone.Run();
  ASSERT_EQ(without.error, "");
  EXPECT_EQ(without.relays, 0);
  EXPECT_EQ(without.relay_all_us, 0);
  for (const auto& [fanout, relays, depth] : {std::tuple(4, 4, 2), std::tuple(3, 8, 3)}) {
    options.relay_fanout = fanout;
    Model model(options);
    ASSERT_EQ(model.Start(), absl::OkStatus());
    const Result result = model.Run();
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(result.relays, relays);
    EXPECT_EQ(result.depth, depth);
    EXPECT_LT(result.frames_out, without.frames_out / 2);
    EXPECT_GT(result.relay_us, 0);
    EXPECT_GT(result.relay_all_us, result.relay_us);
    for (const auto& host : model.hosts()) EXPECT_EQ(host->core().num_nodes(), 0u);
    const ClusterCounts counts = model.controller().cluster().inspection().counts();
    EXPECT_EQ(counts.executions, 89u);
    EXPECT_EQ(counts.nodes, 0u);
  }
}

TEST(ScaleModelTest, AChainInOneCallTakesFewerMessages) {
  Options options = Small();
  Model single(options);
  ASSERT_EQ(single.Start(), absl::OkStatus());
  const Result apart = single.Run();
  options.chain = 16;
  options.gangs = 10;
  options.ahead = 4;
  Model chained(options);
  ASSERT_EQ(chained.Start(), absl::OkStatus());
  const Result together = chained.Run();
  ASSERT_EQ(together.error, "");
  EXPECT_EQ(chained.gangs_ended(), 18u * 16u);
  EXPECT_LT(together.frames_out, apart.frames_out / 4);
  EXPECT_LT(together.bytes_out, apart.bytes_out / 4);
}

TEST(ScaleModelTest, AProgramHasAsManyNodesWhateverTheNumberOfDevices) {
  Options options = Small();
  const auto few = MeasureProgram(options);
  options.hosts = 16;
  const auto many = MeasureProgram(options);
  ASSERT_TRUE(few.ok() && many.ok()) << few.status() << many.status();
  EXPECT_EQ(few->controller_nodes, 1.0);
  EXPECT_EQ(many->controller_nodes, 1.0);
  EXPECT_LT(many->client_bytes, few->client_bytes * 1.5);
  EXPECT_LT(many->bytes_per_host, few->bytes_per_host * 1.5);
}

TEST(ScaleModelTest, SocketsAreMeasuredOverRealLinks) {
  const auto cost = MeasureLinkCost(4, 100);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_GT(cost->receive, 0);
  EXPECT_GT(cost->send, 0);
}

}  // namespace
}  // namespace fairway::scale
