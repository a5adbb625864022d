// SPDX-License-Identifier: Apache-2.0
// Versions of the links (wire/link_protocol.h).
#include <gmock/gmock.h>

#include "controller/daemon/worker_hub_fixture_for_test.h"

namespace fairway {
namespace {

using ::testing::HasSubstr;

TEST_F(WorkerHubTest, TakesWorkersOfTheVersionBeforeAndSaysWhichItTook) {
  const auto register_worker = [this](const std::string& name, uint32_t oldest, uint32_t newest) {
    const auto far = Connect();
    v1::ToController message;
    message.mutable_register_worker()->set_worker(name);
    message.mutable_register_worker()->set_protocol(oldest);
    message.mutable_register_worker()->set_newest_protocol(newest);
    far->Send(message);
    Settle();
    return far->Next().worker_registered().protocol();
  };
  EXPECT_EQ(register_worker("old", kLinkProtocol - 1, 0), kLinkProtocol - 1);
  EXPECT_EQ(register_worker("same", kLinkProtocol - 1, kLinkProtocol), kLinkProtocol);
  EXPECT_EQ(register_worker("next", kLinkProtocol, kLinkProtocol + 1), kLinkProtocol);
}

TEST_F(WorkerHubTest, RefusesProtocolsThatItDoesNotSpeakNamingBoth) {
  for (const uint32_t other : {kLinkProtocol - 2, kLinkProtocol + 1}) {
    for (const bool executor : {false, true}) {
      const auto far = Connect();
      v1::ToController message;
      if (executor) {
        message.mutable_register_executor()->set_protocol(other);
      } else {
        message.mutable_register_worker()->set_protocol(other);
      }
      far->Send(message);
      Settle();
      EXPECT_THAT(
          far->Next().fence().reason(),
          HasSubstr(fmt::format("link protocols {} to {}, worker '' speaks {}: upgrade the {}",
                                kLinkProtocol - 1, kLinkProtocol, other,
                                other < kLinkProtocol ? "worker" : "controller first")));
      EXPECT_TRUE(far->closed);
    }
  }
}

TEST_F(WorkerHubTest, AnExecutorOfTheVersionBeforeIsTakenAsOne) {
  const auto register_executor = [this](const std::string& name, uint64_t incarnation,
                                        uint32_t oldest, uint32_t newest) {
    auto far = Connect();
    v1::ToController message;
    auto* const registration = message.mutable_register_executor();
    ExecutorSpec spec;
    spec.worker = name;
    spec.island = "island0";
    spec.incarnation = Incarnation(incarnation);
    spec.runtime = "fake";
    spec.platform_name = "cpu";
    spec.num_devices = 1;
    spec.memory_kinds = {"device"};
    spec.data_endpoint = name + ":1";
    spec.data_key = {1, 2};
    ToProto(spec, registration->mutable_spec());
    registration->set_protocol(oldest);
    registration->set_newest_protocol(newest);
    far->Send(message);
    Settle();
    return far;
  };
  const auto old = register_executor("w0", 11, kLinkProtocol - 1, 0);
  EXPECT_EQ(old->Next().registered().protocol(), kLinkProtocol - 1);
  const auto present = register_executor("w1", 12, kLinkProtocol - 1, kLinkProtocol);
  EXPECT_EQ(present->Next().registered().protocol(), kLinkProtocol);
  EXPECT_EQ(hub_->Health().at(ExecutorId(1)).protocol, kLinkProtocol - 1);
  EXPECT_EQ(hub_->Health().at(ExecutorId(2)).protocol, kLinkProtocol);
}

}  // namespace
}  // namespace fairway
