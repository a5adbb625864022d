// SPDX-License-Identifier: Apache-2.0
// Capabilities that not every runtime has.
#include <array>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "tests/conformance/runtime_conformance.h"

namespace fairway::conformance {
namespace {

using Clock = std::chrono::steady_clock;

// The members of one gang, in one process.
class Meeting {
 public:
  using Name = std::tuple<size_t, uint64_t, uint32_t, int32_t>;  // member, launch, round, part

  void Put(const Name& name, const HostView& view) {
    std::lock_guard lock(mutex_);
    offered_[name] = Blob::Copy(view.bytes);
    changed_.notify_all();
  }
  absl::StatusOr<std::shared_ptr<Blob>> Get(const Name& name, int64_t bytes) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, test::kCap, [&] { return offered_.contains(name); }))
      return absl::DeadlineExceededError("a member did not come");
    const auto& blob = offered_[name];
    if (blob->size() != static_cast<size_t>(bytes))
      return InvalidArgument("{} bytes were offered, {} are wanted", blob->size(), bytes);
    return blob;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Name, std::shared_ptr<Blob>> offered_;
};

class Member final : public Exchange {
 public:
  Member(std::shared_ptr<Meeting> meeting, size_t self)
      : meeting_(std::move(meeting)), self_(self) {}
  size_t members() const override { return 2; }
  size_t self() const override { return self_; }
  const std::vector<std::vector<size_t>>& hosts() const override { return hosts_; }
  absl::Status Push(uint64_t launch, uint32_t round, int32_t part, size_t to,
                    std::string_view bytes) override {
    EXPECT_EQ(to, 1 - self_);
    meeting_->Put({self_, launch, round, part}, {bytes, nullptr});
    return absl::OkStatus();
  }
  absl::Status Receive(uint64_t launch, uint32_t round, int32_t part,
                       const std::vector<size_t>& from, size_t bytes, Use use) override {
    if (launch == fails) return absl::DataLossError("its bytes were lost");
    for (const size_t member : from) {
      FAIRWAY_ASSIGN_OR_RETURN(const auto blob, meeting_->Get({member, launch, round, part},
                                                              static_cast<int64_t>(bytes)));
      use(member, blob->view());
    }
    return absl::OkStatus();
  }
  absl::Status Swap(uint64_t launch, uint32_t round, int32_t part, std::string_view bytes,
                    Use use) override {
    FAIRWAY_RETURN_IF_ERROR(Push(launch, round, part, 1 - self_, bytes));
    return Receive(launch, round, part, {1 - self_}, bytes.size(), use);
  }
  void Offer(uint64_t launch, uint32_t round, int32_t part, HostView bytes,
             const std::vector<size_t>& readers) override {
    EXPECT_EQ(readers, std::vector<size_t>{1 - self_});
    meeting_->Put({self_, launch, round, part}, bytes);
  }
  absl::StatusOr<std::vector<std::shared_ptr<Blob>>> Take(
      uint64_t launch, uint32_t round, const std::vector<Wanted>& wanted) override {
    std::vector<std::shared_ptr<Blob>> out;
    for (const Wanted& w : wanted) {
      FAIRWAY_ASSIGN_OR_RETURN(out.emplace_back(),
                               meeting_->Get({w.member, launch, round, w.part}, w.bytes));
    }
    return out;
  }
  void End(uint64_t launch, const absl::Status& status) override {
    const std::lock_guard lock(mutex_);
    ended_[launch] = status;
  }
  std::map<uint64_t, absl::Status> ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  uint64_t fails = 0;  // the launch in which it receives nothing

 private:
  const std::shared_ptr<Meeting> meeting_;
  const size_t self_;
  const std::vector<std::vector<size_t>> hosts_{{0, 1}};
  std::mutex mutex_;
  std::map<uint64_t, absl::Status> ended_;
};

TEST_P(RuntimeConformance, StableHloRuns) {
  auto add = Load(Program::kStableHlo, test::OneDevice());
  ASSERT_TRUE(runtime().info().has_compiler);
  auto x = Put({1, 2, 3, 4});
  auto result = test::Run(runtime(), Request(add.get(), {{x.get(), x.get()}}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Read(*result->outputs[0][0]).value(), (Floats{2, 4, 6, 8}));
}

TEST_P(RuntimeConformance, ADeclaredTimePasses) {
  auto wait = Load(Program::kWait, test::OneDevice());
  auto x = Put({1, 2, 3, 4});
  const auto begin = Clock::now();
  auto result = test::Run(runtime(), Request(wait.get(), {{x.get()}}));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(Clock::now() - begin, kWaitTime);
  EXPECT_EQ(Read(*result->outputs[0][0]).value(), Computed({1, 2, 3, 4}));
}

// One of two executors.
struct Side {
  std::vector<int> devices;
  std::shared_ptr<Member> member;
  std::shared_ptr<LoadedExecutable> code;
  absl::StatusOr<LaunchResult> result;
};

// Both, in one process, with two devices each.
std::array<Side, 2> TwoSides() {
  const auto meeting = std::make_shared<Meeting>();
  std::array<Side, 2> sides;
  for (size_t i : {0, 1}) sides[i].member = std::make_shared<Member>(meeting, i);
  sides[0].devices = {0, 1};
  sides[1].devices = {3, 2};
  return sides;
}

// A launch on this side. Its argument is `shards`, by device.
LaunchRequest RequestOf(const Side& side, const std::vector<std::unique_ptr<DeviceBuffer>>& shards,
                        uint64_t launch) {
  LaunchRequest request;
  request.executable = side.code.get();
  request.devices = side.devices;
  for (const int device : side.devices) request.inputs.push_back({shards[device].get()});
  request.launch_id = launch;
  return request;
}

TEST_P(RuntimeConformance, AGangOverTwoExecutors) {
  auto compiled = backend_->Compile(Program::kPsum, test::Spmd(kDevices));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  std::array<Side, 2> sides = TwoSides();
  std::vector<std::unique_ptr<DeviceBuffer>> shards;
  for (int d = 0; d < kDevices; ++d) shards.push_back(Put({static_cast<float>(1 << d)}, d));
  for (Side& side : sides) {
    auto code = runtime().LoadShare(compiled->code, side.devices, side.member);
    ASSERT_TRUE(code.ok()) << code.status();
    side.code = *std::move(code);
    EXPECT_FALSE(runtime().LoadShare(compiled->code, {0, 1, 2, 3}, side.member).ok());
  }
  const auto request = [&](const Side& side) { return RequestOf(side, shards, 7); };
  // Other members would wait for the late input.
  auto late = Expect(1, 1);
  LaunchRequest early = request(sides[0]);
  early.inputs[1] = {late.buffer.get()};
  EXPECT_EQ(runtime().Launch(early, nullptr).status().code(),
            absl::StatusCode::kFailedPrecondition);
  // Once it has failed, the gang does not begin, and the others are told of the cause.
  const absl::Status cause = absl::CancelledError("not needed");
  late.fulfil(cause);
  early.launch_id = 6;
  EXPECT_EQ(test::Run(runtime(), early).status(), cause);
  EXPECT_EQ(sides[0].member->ended(), (std::map<uint64_t, absl::Status>{{6, cause}}));

  const auto run = [&](Side& side) { side.result = test::Run(runtime(), request(side)); };
  std::thread other([&] { run(sides[1]); });
  run(sides[0]);
  other.join();
  for (const Side& side : sides) {
    ASSERT_TRUE(side.result.ok()) << side.result.status();
    for (auto& outputs : side.result->outputs) EXPECT_EQ(Read(*outputs[0]).value(), Computed({15}));
    EXPECT_EQ(side.member->ended().at(7), absl::OkStatus());
  }
}

TEST_P(RuntimeConformance, ABlockOverTwoExecutors) {
  auto compiled = backend_->Compile(Program::kDonatingPsum, test::Spmd(kDevices));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  std::array<Side, 2> sides = TwoSides();
  std::vector<std::unique_ptr<DeviceBuffer>> shards;
  for (int d = 0; d < kDevices; ++d) shards.push_back(Put({static_cast<float>(1 << d)}, d));
  for (Side& side : sides) {
    auto code = runtime().LoadShare(compiled->code, side.devices, side.member);
    ASSERT_TRUE(code.ok()) << code.status();
    // v1 = sum(x), v2 = sum(v1), v3 = sum(x); v2 and v3 are results.
    LinkRequest request{
        1, {{*code, {0}, 1, {}}, {*code, {1}, 1, {1}}, {*code, {0}, 1, {}}}, {2, 3}};
    auto linked = runtime().Link(request);
    ASSERT_TRUE(linked.ok()) << linked.status();
    side.code = *linked;
    const auto refused = [&](auto change) {
      LinkRequest wrong = request;
      change(wrong);
      return runtime().Link(wrong).status().code() == kInvalid;
    };
    EXPECT_TRUE(refused([](LinkRequest& r) { r.calls.clear(); }));
    EXPECT_TRUE(refused([](LinkRequest& r) { r.calls[0].inputs = {1}; })) << "not made yet";
    EXPECT_TRUE(refused([](LinkRequest& r) { r.calls[0].inputs = {0, 0}; }));
    EXPECT_TRUE(refused([](LinkRequest& r) { r.calls[0].outputs = 2; }));
    EXPECT_TRUE(refused([](LinkRequest& r) { r.calls[0].ends = {0}; })) << "an argument";
    EXPECT_TRUE(refused([](LinkRequest& r) { r.results = {0}; })) << "an argument";
    EXPECT_TRUE(refused([](LinkRequest& r) { r.arguments = 2; })) << "nothing reads the other";
    EXPECT_TRUE(refused([&](LinkRequest& r) { r.calls[1].executable = *linked; })) << "a block";
  }
  // Returns the status, and runs both sides.
  const auto run = [&](uint64_t launch) {
    const auto one = [&](Side& side, absl::Status& status) {
      const LaunchRequest request = RequestOf(side, shards, launch);
      std::promise<absl::Status> done;
      side.result =
          runtime().Launch(request, [&](absl::Status end) { done.set_value(std::move(end)); });
      status = side.result.ok() ? done.get_future().get() : side.result.status();
    };
    absl::Status statuses[2];
    std::thread other([&] { one(sides[1], statuses[1]); });
    one(sides[0], statuses[0]);
    other.join();
    EXPECT_EQ(statuses[0].code(), statuses[1].code());
    return statuses[0];
  };
  EXPECT_EQ(run(20), absl::OkStatus());
  for (Side& side : sides) {
    for (auto& outputs : side.result->outputs) {
      EXPECT_EQ(Read(*outputs[0]).value(), Floats{60});
      EXPECT_EQ(Read(*outputs[1]).value(), Floats{15}) << "x was consumed";
    }
    EXPECT_EQ(side.member->ended().size(), 3u);
    EXPECT_EQ(side.member->ended().at(22), absl::OkStatus());
    side.member->fails = 30;  // the first call
  }
  EXPECT_EQ(run(30).code(), absl::StatusCode::kDataLoss);
  for (Side& side : sides) {
    for (auto& outputs : side.result->outputs) {
      EXPECT_EQ(test::WaitReady(*outputs[0]).code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(Read(*outputs[1]).value(), Floats{15}) << "it needs nothing that has failed";
    }
    EXPECT_EQ(side.member->ended().at(31).code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(side.member->ended().at(32), absl::OkStatus());
  }
}

}  // namespace
}  // namespace fairway::conformance
