// SPDX-License-Identifier: Apache-2.0
#include "identity/revocations.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::seconds;
using std::chrono::sys_seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Subject kW0{Role::kWorker, "w0"}, kW1{Role::kWorker, "w1"};
const Subject kTheController{Role::kController, ""};
const sys_seconds kEnd =
    std::chrono::floor<seconds>(std::chrono::system_clock::now()) + std::chrono::hours(1);

TEST(RevocationsTest, WhoeverHearsOfThemFromTheControllerKnowsTheSame) {
  Revocations controller, executor;
  std::vector<std::string> changed;
  controller.set_changed([&](const std::string& worker) { changed.push_back(worker); });
  controller.Permit("w0", {1}, kEnd);  // was never revoked, so all of its certificates count
  EXPECT_THAT(changed, IsEmpty());
  controller.Revoke("w0", sys_seconds(seconds(7)));
  controller.Permit("w0", {2}, kEnd);
  EXPECT_THAT(changed, ElementsAre("w0", "w0"));
  EXPECT_EQ(controller.Find("w1"), std::nullopt);
  EXPECT_THAT(controller.All(), ElementsAre(Revocation{.worker = "w0",
                                                       .when = sys_seconds(seconds(7)),
                                                       .since = {{CertificateHash{2}, kEnd}}}));
  for (Revocation& one : controller.All()) executor.Learn(one);
  for (const Revocations* const who : {&controller, &executor}) {
    EXPECT_FALSE(who->Check(kW0, {1}).ok());
    EXPECT_TRUE(who->Check(kW0, {2}).ok());
    EXPECT_TRUE(who->Check(kW1, {1}).ok());
  }
  // Revoked once more, it is told in place of the first time.
  controller.Revoke("w0", sys_seconds(seconds(8)));
  executor.Learn(*controller.Find("w0"));
  EXPECT_FALSE(executor.Check(kW0, {2}).ok());
}

TEST(RevocationsTest, ConnectionsEndThatStandWithACertificateThatCountsNoLonger) {
  Revocations revocations;
  std::vector<std::string> ended;
  const auto stand = [&](const Subject& subject, const CertificateHash& hash,
                         const std::string& name) {
    return revocations.Stand(subject, hash, [&ended, name] { ended.push_back(name); });
  };
  const auto old = stand(kW0, {1}, "old"), fresh = stand(kW0, {2}, "fresh");
  const auto other = stand(kW1, {1}, "other"),
             controller = stand(kTheController, {1}, "controller");
  auto gone = stand(kW0, {1}, "gone");
  gone = nullptr;
  EXPECT_EQ(revocations.EndRevoked(), 0u);
  revocations.Revoke("w0", {});
  revocations.Permit("w0", {2}, kEnd);
  EXPECT_EQ(revocations.EndRevoked(), 1u);
  EXPECT_THAT(ended, ElementsAre("old"));
}

TEST(RevocationsTest, CertificatesThatHaveExpiredAreForgotten) {
  Revocations revocations;
  revocations.Revoke("w0", {});
  for (uint8_t i = 0; i < 200; ++i) revocations.Permit("w0", {i}, sys_seconds(seconds(i)));
  revocations.Permit("w0", {200}, kEnd);
  EXPECT_EQ(revocations.Find("w0")->since.size(), 1u);
}

TEST(RevocationsTest, AConnectionMayOutliveThem) {
  auto revocations = std::make_unique<Revocations>();
  const auto stands = revocations->Stand(kW0, {}, [] {});
  revocations = nullptr;
}

}  // namespace
}  // namespace fairway
