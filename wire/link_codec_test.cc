// SPDX-License-Identifier: Apache-2.0
#include "wire/link_codec.h"
#include "wire/sequence_codec.h"

#include <functional>
#include <random>
#include <string>
#include <vector>

#include <absl/strings/escaping.h>
#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

GroupPart Part(uint64_t group, int shards) {
  GroupPart part;
  part.group = GroupId(group);
  part.dtype = DType::kF32;
  part.memory_kind = "device";
  for (int i = 0; i < shards; ++i) part.shards.push_back({i, 2 * i, Shape{{3, 4 + i}}});
  return part;
}

PrepareLaunch SomeLaunch() {
  PrepareLaunch out;
  out.node = NodeId(5);
  out.seq = 9;
  out.executable = ExecutableId(77);
  out.devices = {2, 0};
  out.inputs = {{{GroupId(1), 0}, {GroupId(2), 1}, {GroupId(1), 3}},
                {{GroupId(1), 1}, {GroupId(2), 0}, {GroupId(4), 4}}};
  out.outputs = {Part(10, 2), Part(11, 2)};
  return out;
}

PrepareReceive SomeReceive() {
  PrepareReceive out;
  out.node = NodeId(6);
  out.seq = 10;
  out.transfer = TransferId(uint64_t{1} << 63);
  out.out = Part(12, 4);
  out.sources.resize(4);
  out.sources[0].shard = {GroupId(3), 2};
  out.sources[1].kind = ShardSource::Kind::kPeer;
  out.sources[1].endpoint = "10.0.0.1:99";
  out.sources[1].incarnation = Incarnation(~uint64_t{0});
  out.sources[1].index = 4;
  out.sources[1].ticket = {~uint64_t{0}, 1};
  out.sources[2].kind = ShardSource::Kind::kController;
  out.sources[2].index = 1;
  out.sources[2].ticket = {0, 2};
  out.sources[3].kind = ShardSource::Kind::kInline;
  out.sources[3].bytes = Blob::Copy(std::string(3 * 7 * 4, 'i'));
  return out;
}

template <typename T>
T RoundTrip(const T& command) {
  v1::Command proto;
  ToProto(Command(command), &proto);
  // Goes through the bytes as well.
  v1::Command parsed;
  EXPECT_TRUE(parsed.ParseFromString(proto.SerializeAsString()));
  auto back = CommandFromProto(parsed);
  EXPECT_TRUE(back.ok()) << back.status();
  if (!back.ok() || !std::holds_alternative<T>(*back)) {
    ADD_FAILURE() << "another command came back";
    return T();
  }
  return std::get<T>(*std::move(back));
}

void ExpectSame(const GroupPart& a, const GroupPart& b) {
  EXPECT_EQ(a.group, b.group);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.memory_kind, b.memory_kind);
  ASSERT_EQ(a.shards.size(), b.shards.size());
  for (size_t i = 0; i < a.shards.size(); ++i) {
    EXPECT_EQ(a.shards[i].shard, b.shards[i].shard);
    EXPECT_EQ(a.shards[i].device, b.shards[i].device);
    EXPECT_EQ(a.shards[i].shape, b.shards[i].shape);
  }
}

TEST(Commands, InstallAndDrop) {
  std::string code("\0\1\2native", 9);
  const auto back = RoundTrip(
      InstallExecutable{ExecutableId(3),
                        std::make_shared<std::string>(code),
                        "abc",
                        {1, 2},
                        std::vector<InstallExecutable::Member>{{"h:1", Incarnation(7), {1, 0}},
                                                               {"h:2", Incarnation(8), {2, 3}}},
                        1});
  EXPECT_EQ(back.members[1], (InstallExecutable::Member{"h:2", Incarnation(8), {2, 3}}));
  EXPECT_EQ(back.member, 1);
  const auto abandon =
      RoundTrip(AbandonLaunch{LaunchId(4), LaunchId(6), absl::DataLossError("gone")});
  EXPECT_EQ(abandon.first, LaunchId(4));
  EXPECT_EQ(abandon.last, LaunchId(6));
  EXPECT_EQ(abandon.cause, absl::DataLossError("gone"));
  EXPECT_EQ(back.executable, ExecutableId(3));
  EXPECT_EQ(*back.code, code);
  EXPECT_EQ(back.checksum, "abc");
  EXPECT_THAT(back.devices, ElementsAre(1, 2));
  EXPECT_EQ(RoundTrip(DropExecutable{ExecutableId(3)}).executable, ExecutableId(3));
}

TEST(Commands, Sequences) {
  auto sequence = std::make_shared<Sequence>();
  sequence->name = "chain";
  sequence->registers = 4;
  sequence->outputs = 1;
  sequence->types = {{DType::kBF16, Shape{{2, 3}}, "pinned_host"}, {DType::kPred, Shape{}, ""}};
  using Op = Instruction::Op;
  sequence->instructions = {{Op::kRepeat, ExecutableId(), {}, {}, {}, {}, {}, 7, {1}},
                            {Op::kRun, ExecutableId(3), {0, 1}, {2}, {1}, {0}, {1}, 0, {}},
                            {Op::kOutput, ExecutableId(), {2}, {0}, {}, {2}, {}, 0, {}}};
  const auto back = RoundTrip(InstallSequence{ExecutableId(9), sequence});
  EXPECT_EQ(back.executable, ExecutableId(9));
  EXPECT_EQ(**DecodeSequence(*back.bytes), *sequence);
  const auto bytes = std::make_shared<const std::string>(EncodeSequence(*sequence));
  EXPECT_EQ(*RoundTrip(InstallSequence{ExecutableId(9), nullptr, bytes}).bytes, *bytes);

  v1::Sequence proto;
  ASSERT_TRUE(proto.ParseFromString(*bytes));
  v1::Sequence bad = proto;
  bad.mutable_instructions(0)->set_op(99);
  EXPECT_FALSE(DecodeSequence(bad.SerializeAsString()).ok());
  bad = proto;
  bad.mutable_types(0)->set_dtype(4711);
  EXPECT_FALSE(DecodeSequence(bad.SerializeAsString()).ok());
  EXPECT_FALSE(DecodeSequence(bytes->substr(1)).ok());
}

TEST(Commands, LaunchAndItsPreparation) {
  const PrepareLaunch in = SomeLaunch();
  const PrepareLaunch out = RoundTrip(in);
  EXPECT_EQ(out.node, in.node);
  EXPECT_EQ(out.seq, in.seq);
  EXPECT_EQ(out.executable, in.executable);
  EXPECT_EQ(out.devices, in.devices);
  EXPECT_EQ(out.inputs, in.inputs);
  ASSERT_EQ(out.outputs.size(), 2u);
  ExpectSame(out.outputs[0], in.outputs[0]);
  ExpectSame(out.outputs[1], in.outputs[1]);

  PrepareLaunch bare = in;
  bare.inputs = {{}, {}};
  bare.outputs.clear();
  EXPECT_EQ(RoundTrip(bare).inputs, bare.inputs);
  EXPECT_FALSE(out.more);
  bare.more = true;
  EXPECT_TRUE(RoundTrip(bare).more);

  const Launch launch = RoundTrip(Launch{NodeId(5),
                                         LaunchId(~uint64_t{0}),
                                         true,
                                         true,
                                         {0, 2},
                                         {{GroupId(10), 1}},
                                         {{3, absl::DataLossError("gone")}}});
  EXPECT_EQ(launch.launch_id, LaunchId(~uint64_t{0}));
  EXPECT_TRUE(launch.gang);
  EXPECT_TRUE(launch.ahead);
  EXPECT_THAT(launch.non_donatable, ElementsAre(0, 2));
  EXPECT_THAT(launch.inline_shards, ElementsAre(ShardRef{GroupId(10), 1}));
  ASSERT_EQ(launch.failed.size(), 1u);
  EXPECT_EQ(launch.failed[0].argument, 3);
  EXPECT_EQ(launch.failed[0].status, absl::DataLossError("gone"));
}

TEST(Commands, Transfers) {
  const PrepareReceive in = SomeReceive();
  const PrepareReceive out = RoundTrip(in);
  EXPECT_EQ(out.transfer, in.transfer);
  ExpectSame(out.out, in.out);
  ASSERT_EQ(out.sources.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(out.sources[i].kind, in.sources[i].kind);
    EXPECT_EQ(out.sources[i].shard, in.sources[i].shard);
    EXPECT_EQ(out.sources[i].endpoint, in.sources[i].endpoint);
    EXPECT_EQ(out.sources[i].incarnation, in.sources[i].incarnation);
    EXPECT_EQ(out.sources[i].index, in.sources[i].index);
    EXPECT_EQ(out.sources[i].ticket, in.sources[i].ticket);
  }
  EXPECT_EQ(out.sources[3].bytes->view(), in.sources[3].bytes->view());

  const PrepareSend send =
      RoundTrip(PrepareSend{TransferId(4), {{0, {GroupId(1), 2}}, {7, {GroupId(1), 3}}}});
  EXPECT_EQ(send.transfer, TransferId(4));
  ASSERT_EQ(send.items.size(), 2u);
  EXPECT_EQ(send.items[1].index, 7);
  EXPECT_EQ(send.items[1].shard, (ShardRef{GroupId(1), 3}));
  EXPECT_EQ(RoundTrip(EndSend{TransferId(4)}).transfer, TransferId(4));
}

TEST(Commands, ReceivesMadeOfPieces) {
  PrepareReceive in;
  in.node = NodeId(2);
  in.seq = 1;
  in.transfer = TransferId(2);
  in.out = {GroupId(3), DType::kF32, "", {{0, 1, Shape{{2, 3}}}}};
  ShardSource local;
  local.shard = {GroupId(1), 0};
  in.sources = {local, local};
  const Box from{4, {4, 3}, {3, 0}, {1, 3}};
  in.pieces = {{0, from, {4, {2, 3}, {0, 0}, {1, 3}}}, {0, from, {4, {2, 3}, {1, 0}, {1, 3}}}};
  const PrepareReceive out = RoundTrip(in);
  ASSERT_EQ(out.pieces.size(), 2u);
  EXPECT_EQ(out.pieces[1].out, 0);
  EXPECT_EQ(out.pieces[1].from, in.pieces[1].from);
  EXPECT_EQ(out.pieces[1].to, in.pieces[1].to);
  const PrepareSend send = RoundTrip(PrepareSend{TransferId(4), {{0, {GroupId(1), 2}, from}}});
  EXPECT_EQ(send.items[0].box, from);
  const auto refused = [](const PrepareReceive& bad) {
    v1::Command proto;
    ToProto(Command(bad), &proto);
    return !CommandFromProto(proto).ok();
  };
  EXPECT_FALSE(refused(in));
  PrepareReceive bad = in;
  bad.pieces[0].out = 1;
  EXPECT_TRUE(refused(bad));
  bad = in;
  bad.pieces[0].to.origin = {2, 0};
  EXPECT_TRUE(refused(bad));
  bad = in;
  bad.pieces[0].to = {4, {3, 3}, {0, 0}, {1, 3}};  // not the shard's size
  EXPECT_TRUE(refused(bad));
  bad = in;
  bad.pieces.pop_back();
  EXPECT_TRUE(refused(bad));
}

TEST(Commands, CancelAndFree) {
  const CancelNode cancel = RoundTrip(CancelNode{NodeId(8), absl::DataLossError("why \xff")});
  EXPECT_EQ(cancel.node, NodeId(8));
  EXPECT_EQ(cancel.cause, absl::DataLossError("why \xff"));
  EXPECT_THAT(RoundTrip(FreeGroups{{GroupId(1), GroupId(9)}}).groups,
              ElementsAre(GroupId(1), GroupId(9)));
}

std::string Refusal(const Command& good, const std::function<void(v1::Command&)>& spoil) {
  v1::Command proto;
  ToProto(good, &proto);
  spoil(proto);
  const auto status = CommandFromProto(proto).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return Text(status);
}

TEST(BadCommands, AreRefused) {
  const Command launch = SomeLaunch();
  const auto prepare = [](v1::Command& c) { return c.mutable_prepare_launch(); };
  EXPECT_THAT(Refusal(launch, [&](auto& c) { prepare(c)->set_node(0); }), HasSubstr("node 0"));
  EXPECT_THAT(Refusal(launch, [&](auto& c) { prepare(c)->set_seq(0); }), HasSubstr("seq 0"));
  EXPECT_THAT(Refusal(launch, [&](auto& c) { prepare(c)->clear_devices(); }),
              HasSubstr("no device"));
  EXPECT_THAT(Refusal(launch, [&](auto& c) { prepare(c)->set_devices(0, -1); }),
              HasSubstr("device -1"));
  EXPECT_THAT(Refusal(launch, [&](auto& c) { prepare(c)->set_devices(0, 4096); }),
              HasSubstr("4096"));
  EXPECT_THAT(Refusal(launch, [&](auto& c) { prepare(c)->add_input_groups(1); }),
              HasSubstr("inputs"));
  EXPECT_THAT(Refusal(launch, [&](auto& c) { prepare(c)->set_input_groups(1, 0); }),
              HasSubstr("group 0"));
  EXPECT_THAT(Refusal(launch, [&](auto& c) { prepare(c)->set_input_shards(1, -4); }),
              HasSubstr("shard -4"));
  EXPECT_THAT(
      Refusal(launch,
              [&](auto& c) { prepare(c)->mutable_outputs(0)->mutable_shards()->RemoveLast(); }),
      HasSubstr("1 shards for 2 devices"));
  EXPECT_THAT(Refusal(launch, [&](auto& c) { prepare(c)->mutable_outputs(0)->set_dtype(1234); }),
              HasSubstr("element type 1234"));
  EXPECT_THAT(
      Refusal(launch,
              [&](auto& c) { prepare(c)->mutable_outputs(0)->mutable_shards(0)->set_dims(0, -1); }),
      HasSubstr("bad command"));
  EXPECT_THAT(
      Refusal(launch,
              [&](auto& c) {
                for (int i = 0; i < 3; ++i)
                  prepare(c)->mutable_outputs(0)->mutable_shards(0)->add_dims(int64_t{1} << 40);
              }),
      HasSubstr("bad command"));

  const Command receive = SomeReceive();
  const auto prep = [](v1::Command& c) { return c.mutable_prepare_receive(); };
  EXPECT_THAT(Refusal(receive, [&](auto& c) { prep(c)->mutable_sources()->RemoveLast(); }),
              HasSubstr("3 sources"));
  EXPECT_THAT(Refusal(receive, [&](auto& c) { prep(c)->mutable_sources(0)->set_kind(9); }),
              HasSubstr("kind 9"));
  EXPECT_THAT(Refusal(receive, [&](auto& c) { prep(c)->mutable_sources(1)->clear_endpoint(); }),
              HasSubstr("address"));
  for (const int source : {1, 2}) {
    EXPECT_THAT(Refusal(receive,
                        [&](auto& c) {
                          prep(c)->mutable_sources(source)->clear_ticket_first();
                          prep(c)->mutable_sources(source)->clear_ticket_second();
                        }),
                HasSubstr("without a ticket"));
  }
  EXPECT_THAT(Refusal(receive, [&](auto& c) { prep(c)->mutable_sources(3)->set_bytes("short"); }),
              HasSubstr("5"));
  EXPECT_THAT(Refusal(receive, [&](auto& c) { prep(c)->mutable_sources(2)->set_index(-1); }),
              HasSubstr("-1"));

  EXPECT_THAT(Refusal(Launch{NodeId(1), LaunchId(1), false, false, {}, {}, {}},
                      [](auto& c) { c.mutable_launch()->set_launch_id(0); }),
              HasSubstr("launch 0"));
  EXPECT_THAT(Refusal(CancelNode{NodeId(1), absl::AbortedError("x")},
                      [](auto& c) { c.mutable_cancel()->mutable_cause()->set_code(0); }),
              HasSubstr("cause"));
  EXPECT_THAT(Refusal(EndSend{TransferId(1)}, [](auto& c) { c.Clear(); }),
              HasSubstr("does not know"));
}

TEST(Reports, RoundTripAndChecks) {
  Report in;
  in.finished_through = 7;
  in.finished = {9, 12};
  in.failures = {{9, absl::DataLossError("gone")}, {8, absl::DataLossError("half"), 2, 1}};
  in.inlined = {{{GroupId(3), 1}, Blob::Copy("bytes")}, {{GroupId(3), 2}, Blob::Copy("")}};
  in.installed = {{ExecutableId(5), absl::OkStatus()},
                  {ExecutableId(6), absl::InternalError("no")}};
  v1::Report proto;
  ToProto(in, Incarnation(99), &proto);
  EXPECT_EQ(proto.incarnation(), 99u);
  auto out = ReportFromProto(proto);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->finished_through, 7u);
  EXPECT_THAT(out->finished, ElementsAre(9, 12));
  ASSERT_EQ(out->failures.size(), 2u);
  EXPECT_EQ(out->failures[0].output, -1);
  EXPECT_EQ(out->failures[0].argument, -1);
  EXPECT_EQ(out->failures[1].output, 2);
  EXPECT_EQ(out->failures[1].argument, 1);
  EXPECT_EQ(out->failures[0].seq, 9u);
  EXPECT_EQ(out->failures[0].status, absl::DataLossError("gone"));
  ASSERT_EQ(out->inlined.size(), 2u);
  EXPECT_EQ(out->inlined[0].bytes->view(), "bytes");
  EXPECT_EQ(out->inlined[1].bytes->size(), 0u);
  ASSERT_EQ(out->installed.size(), 2u);
  EXPECT_EQ(out->installed[1].status, absl::InternalError("no"));

  v1::Report bad = proto;
  bad.set_finished(0, 100);
  EXPECT_FALSE(ReportFromProto(bad).ok());
  bad = proto;
  bad.mutable_failures(0)->mutable_status()->set_code(0);
  EXPECT_FALSE(ReportFromProto(bad).ok());
  bad = proto;
  bad.mutable_failures(0)->mutable_status()->set_code(4711);
  EXPECT_EQ(ReportFromProto(bad)->failures[0].status.code(), absl::StatusCode::kInternal);
  bad = proto;
  bad.mutable_inlined(0)->clear_shard();
  EXPECT_FALSE(ReportFromProto(bad).ok());
}

TEST(Specs, RoundTripAndChecks) {
  ExecutorSpec in;
  in.worker = "w0";
  in.island = "i0";
  in.incarnation = Incarnation(~uint64_t{0});
  in.runtime = "pjrt";
  in.island_workers = 3;
  in.platform_name = "cpu";
  in.platform_version = "PJRT 0.81";
  in.device_kind = "cpu";
  in.memory_kinds = {"device", "pinned_host"};
  in.num_devices = 4;
  in.device_memory = int64_t{1} << 40;
  in.gang_inputs = ArrivalRule::kExternal;
  in.highest_launch_id = 17;
  in.data_endpoint = "127.0.0.1:5";
  in.data_key = {~uint64_t{0}, 6};
  v1::ExecutorSpec proto;
  ToProto(in, &proto);
  auto out = ExecutorSpecFromProto(proto);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->worker, in.worker);
  EXPECT_EQ(out->island, in.island);
  EXPECT_EQ(out->incarnation, in.incarnation);
  EXPECT_EQ(out->runtime, in.runtime);
  EXPECT_EQ(out->platform_name, in.platform_name);
  EXPECT_EQ(out->platform_version, in.platform_version);
  EXPECT_EQ(out->device_kind, in.device_kind);
  EXPECT_EQ(out->memory_kinds, in.memory_kinds);
  EXPECT_EQ(out->num_devices, 4);
  EXPECT_EQ(out->device_memory, in.device_memory);
  EXPECT_EQ(out->gang_inputs, in.gang_inputs);
  EXPECT_EQ(out->highest_launch_id, 17u);
  EXPECT_EQ(out->data_endpoint, in.data_endpoint);
  EXPECT_EQ(out->data_key, in.data_key);

  const auto refused = [&](const std::function<void(v1::ExecutorSpec&)>& spoil) {
    v1::ExecutorSpec bad = proto;
    spoil(bad);
    return ExecutorSpecFromProto(bad).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](auto& p) { p.clear_worker(); }));
  EXPECT_TRUE(refused([](auto& p) { p.clear_island(); }));
  EXPECT_TRUE(refused([](auto& p) { p.set_incarnation(0); }));
  EXPECT_TRUE(refused([](auto& p) { p.set_num_devices(0); }));
  EXPECT_TRUE(refused([](auto& p) { p.set_num_devices(1 << 20); }));
  EXPECT_TRUE(refused([](auto& p) { p.set_device_memory(-1); }));
  EXPECT_TRUE(refused([](auto& p) { p.set_gang_inputs(2); }));
  EXPECT_TRUE(refused([](auto& p) {
    p.clear_data_key_first();
    p.clear_data_key_second();
  }));
  EXPECT_TRUE(refused([](auto& p) { p.set_highest_launch_id(~uint64_t{0}); }));
  EXPECT_TRUE(refused([](auto& p) { p.set_worker(std::string(300, 'w')); }));
}

TEST(Frames, PackAndUnpack) {
  v1::FromController message;
  message.mutable_fence()->set_reason("gone");
  Frame frame = PackFrame(message);
  v1::FromController back;
  ASSERT_TRUE(UnpackFrame(frame, &back).ok());
  EXPECT_EQ(back.fence().reason(), "gone");
  frame.type = 9;
  EXPECT_FALSE(UnpackFrame(frame, &back).ok());
  frame.type = 1;
  frame.payload = "\xff\xff\xff";
  EXPECT_FALSE(UnpackFrame(frame, &back).ok());
}

CallbackCall SomeCall() {
  return {7,
          LaunchId(uint64_t{1} << 40),
          uint64_t{1} << 62,
          3,
          {{DType::kF32, Shape{{2}}, Blob::Copy("12345678")},
           {DType::kPred, Shape{{0}}, Blob::Make(0)}},
          {{DType::kF64, Shape{{2, 3}}, nullptr}}};
}

TEST(Callbacks, ACallAndItsAnswerCross) {
  const CallbackCall call = SomeCall();
  v1::LinkCallback proto;
  ToProto(call, &proto);
  const auto back = CallbackFromProto(proto);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->call, call.call);
  EXPECT_EQ(back->launch, call.launch);
  EXPECT_EQ(back->function, call.function);
  EXPECT_EQ(back->device, call.device);
  ASSERT_EQ(back->arguments.size(), 2u);
  EXPECT_EQ(back->arguments[0].bytes->view(), "12345678");
  EXPECT_EQ(back->arguments[1].shape, Shape{{0}});
  ASSERT_EQ(back->results.size(), 1u);
  EXPECT_EQ(back->results[0].dtype, DType::kF64);
  EXPECT_EQ(back->results[0].shape, (Shape{{2, 3}}));

  v1::LinkCallbackAnswer answer;
  ToProto(CallbackAnswer{7, absl::OkStatus(), {Blob::Copy("abc"), Blob::Make(0)}, {}, {}}, &answer);
  const auto came = CallbackAnswerFromProto(answer);
  ASSERT_TRUE(came.ok()) << came.status();
  EXPECT_TRUE(came->status.ok());
  EXPECT_EQ(came->results.at(0)->view(), "abc");
  EXPECT_EQ(came->results.at(1)->size(), 0u);
  ToProto(CallbackAnswer{8, absl::AbortedError("ValueError: \xff"), {}, {}, {}}, &answer);
  EXPECT_EQ(CallbackAnswerFromProto(answer)->status, absl::AbortedError("ValueError: \xff"));
}

TEST(Callbacks, ArgumentsAndResultsThatArePulledAreNotInTheMessages) {
  CallbackCall call = SomeCall();
  for (CallbackArray& argument : call.arguments) argument.bytes = nullptr;
  v1::LinkCallback proto;
  ToProto(call, &proto);
  EXPECT_TRUE(proto.pulled());
  const auto back = CallbackFromProto(proto);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->arguments[0].bytes, nullptr);
  EXPECT_NE(back->arguments[1].bytes, nullptr) << "it has none to pull";
  proto.mutable_arguments(0)->set_data("12345678");
  EXPECT_FALSE(CallbackFromProto(proto).ok());

  v1::LinkCallbackAnswer answer;
  ToProto(CallbackAnswer{7, absl::OkStatus(), {}, CallbackTransfer(9), {3, 4}}, &answer);
  EXPECT_EQ(CallbackAnswerFromProto(answer)->transfer, CallbackTransfer(9));
  EXPECT_EQ(CallbackAnswerFromProto(answer)->ticket, (Ticket{3, 4}));
  v1::LinkCallbackAnswer without = answer;
  without.clear_ticket_first();
  without.clear_ticket_second();
  EXPECT_FALSE(CallbackAnswerFromProto(without).ok());
  answer.set_transfer(9);  // a plan's
  EXPECT_FALSE(CallbackAnswerFromProto(answer).ok());
}

TEST(Callbacks, WhatContradictsItselfIsRefused) {
  v1::LinkCallback proto;
  ToProto(SomeCall(), &proto);
  const auto refused = [&](auto spoil) {
    v1::LinkCallback bad = proto;
    spoil(bad);
    return CallbackFromProto(bad).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& p) { p.mutable_arguments(0)->set_dtype(4444); }));
  EXPECT_TRUE(refused([](auto& p) { p.mutable_arguments(0)->set_data("1234567"); }));
  EXPECT_TRUE(refused([](auto& p) { p.mutable_arguments(0)->set_dims(0, -1); }));
  EXPECT_TRUE(refused([](auto& p) { p.mutable_results(0)->set_dims(0, int64_t{1} << 62); }));
  EXPECT_TRUE(refused([](auto& p) { p.mutable_results(0)->set_dtype(17); }));  // a token
  EXPECT_TRUE(refused([](auto& p) {
    for (int i = 0; i < 65; ++i) p.mutable_results(0)->add_dims(1);
  }));
  EXPECT_TRUE(refused([](auto& p) {
    for (int i = 0; i <= kMaxCallbackArrays; ++i) *p.add_results() = p.results(0);
  }));
}

TEST(Commands, AreTheBodiesOfEntries) {
  v1::Command proto;
  ToProto(SomeReceive(), &proto);
  const std::string bytes = EncodeCommand(SomeReceive()).value();
  EXPECT_EQ(bytes, proto.SerializeAsString());
  const auto back = DecodeCommand(bytes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(EncodeCommand(*back).value(), bytes);
  EXPECT_EQ(EncodeCommand(SomeReceive(), bytes.size() - 1).status().code(),
            absl::StatusCode::kResourceExhausted);
  for (const char* bad : {"", "\xff\xff"})
    EXPECT_EQ(DecodeCommand(bad).status().code(), absl::StatusCode::kInvalidArgument);
  // Code is moved, not copied: more than an arena's block, too.
  InstallExecutable install;
  install.executable = ExecutableId(1);
  install.code = std::make_shared<const std::string>(100000, 'x');
  const auto installed = DecodeCommand(EncodeCommand(install).value());
  ASSERT_TRUE(installed.ok()) << installed.status();
  EXPECT_EQ(*std::get<InstallExecutable>(*installed).code, *install.code);
}

// Damaged messages end in a status, whatever their bytes.
TEST(BadCommands, DamagedBytesNeverCrash) {
  google::protobuf::SetLogHandler(nullptr);
  std::mt19937_64 random(11);
  int accepted = 0;
  for (const Command& command : {Command(SomeLaunch()), Command(SomeReceive())}) {
    v1::Command proto;
    ToProto(command, &proto);
    const std::string good = proto.SerializeAsString();
    for (int i = 0; i < 20000; ++i) {
      std::string bytes = good;
      for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
      v1::Command damaged;
      if (!damaged.ParseFromString(bytes)) continue;
      accepted += CommandFromProto(damaged).ok() ? 1 : 0;
    }
  }
  EXPECT_GT(accepted, 0);
}

// ---- connections that resume (docs/design/0064-links-that-resume.md)

TEST(LinkCodecTest, WhatAnExecutorSaysOnItsNextConnectionHasTheseBytes) {
  v1::ToController message;
  v1::ResumeExecutor* const words = message.mutable_resume_executor();
  words->set_protocol(9);
  words->set_controller_incarnation(77);
  words->set_executor(3);
  words->set_incarnation(11);
  words->set_version(1);
  words->set_applied(2);
  words->set_taken(1);
  EXPECT_EQ(absl::BytesToHexString(PackFrame(message).payload),
            "521c0809114d000000000000001803210b000000"
            "00000000280130023801");
  v1::FromController answer;
  answer.mutable_resumed()->set_taken(1);
  EXPECT_EQ(absl::BytesToHexString(PackFrame(answer).payload), "52020801");
  answer.mutable_not_resumed()->set_reason("no");
  EXPECT_EQ(absl::BytesToHexString(PackFrame(answer).payload), "5a040a026e6f");
}

}  // namespace
}  // namespace fairway
