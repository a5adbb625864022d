// SPDX-License-Identifier: Apache-2.0
#include "client/cli/controller_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kDay = 86400;

template <typename Run>
std::string Told(Run run) {
  std::vector<Finding> findings;
  run([&](Finding finding) { findings.push_back(std::move(finding)); });
  return FindingsText(findings);
}

TEST(ClockFinding, SaysWhoseClockIsAheadAndByHowMuch) {
  EXPECT_EQ(ClockFinding(milliseconds(800), milliseconds(10)).verdict, Verdict::kPass);
  const Finding behind = ClockFinding(milliseconds(30000), milliseconds(10));
  EXPECT_EQ(behind.verdict, Verdict::kWarn);
  EXPECT_EQ(behind.text, "this host's clock is 30s behind the controller's");
  const Finding ahead = ClockFinding(milliseconds(-3600000), milliseconds(10));
  EXPECT_EQ(ahead.verdict, Verdict::kFail);
  EXPECT_EQ(ahead.text, "this host's clock is 3600s ahead of the controller's");
}

TEST(ClockFinding, AnAnswerThatWasLongUnderWayProvesNothing) {
  EXPECT_EQ(ClockFinding(milliseconds(7000), milliseconds(4000)).verdict, Verdict::kPass);
}

v1::GetStatusResponse WithWorkers(int count) {
  v1::GetStatusResponse out;
  for (int i = 0; i < count; ++i) {
    v1::Executor* const one = out.add_executors();
    one->set_worker(fmt::format("w{}", i));
    one->set_up(true);
    one->set_supervisor_connected(true);
  }
  return out;
}

TEST(CheckWorkers, EachThatIsNotWellIsNamedWithTheCommandThatTellsMore) {
  v1::GetStatusResponse status = WithWorkers(4);
  status.mutable_executors(1)->set_stalled_ms(5000);
  status.mutable_executors(2)->set_supervisor_connected(false);
  status.mutable_executors(3)->set_up(false);
  status.mutable_executors(3)->set_last_error("signal 9 (Killed)\nmore");
  EXPECT_THAT(Told([&](const Report& report) { CheckWorkers(status, report); }),
              StartsWith("WARN  worker w1: stalled for 5 s  (fix: fairway restart w1)\n"
                         "WARN  worker w2: its supervisor is not connected  (fix: fairway logs w2; "
                         "on its host: journalctl -u fairway-worker)\n"
                         "FAIL  worker w3: its executor is down: signal 9 (Killed)  (fix: fairway "
                         "logs w3; on its host: journalctl -u fairway-worker)\n0 passed"));
}

TEST(CheckWorkers, ManyFaultsAreCounted) {
  v1::GetStatusResponse status = WithWorkers(100);
  for (v1::Executor& one : *status.mutable_executors()) one.set_up(false);
  EXPECT_THAT(Told([&](const Report& report) { CheckWorkers(status, report); }),
              HasSubstr("FAIL  workers: 90 more faults  (fix: fairway get workers)\n0 passed, 0 "
                        "warnings, 11 failed"));
}

TEST(CheckWorkerCertificates, TheLatestOfAWorkerCounts) {
  v1::ListCertificatesResponse all;
  const auto add = [&](const char* worker, int64_t issued, int64_t expires, int64_t revoked) {
    v1::Certificate* const one = all.add_certificates();
    one->set_worker(worker);
    one->set_issued_s(issued);
    one->set_expires_s(expires);
    one->set_revoked_s(revoked);
  };
  add("renewed", 0, 30 * kDay, 0);
  add("renewed", 20 * kDay, 50 * kDay, 0);
  add("revoked", 0, 30 * kDay, kDay);
  const auto text = [&] {
    return Told([&](const Report& report) { CheckWorkerCertificates(all, 25 * kDay, report); });
  };
  EXPECT_THAT(text(), StartsWith("PASS  certificates of workers: 1, none expires soon\n"));
  add("late", 0, 30 * kDay, 0);
  EXPECT_THAT(text(), StartsWith("WARN  certificate of worker late: expires on 1970-01-31 00:00:00 "
                                 "UTC, and was not renewed  (fix: "));
}

}  // namespace
}  // namespace fairway
