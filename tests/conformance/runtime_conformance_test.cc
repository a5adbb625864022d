// SPDX-License-Identifier: Apache-2.0
// Runs the suite on every runtime, and keeps the table of what runs where (docs/testing.md).
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/conformance/runtime_conformance.h"
#include "worker/executor/runtime/pjrt/buffer.h"

namespace fairway::conformance {
namespace {

INSTANTIATE_TEST_SUITE_P(All, RuntimeConformance, ::testing::ValuesIn(Backends()),
                         [](const auto& info) { return info.param.name; });

// The names of the cases, from GoogleTest.
std::set<std::string> Cases() {
  std::set<std::string> cases;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    if (suite.name() != std::string("All/RuntimeConformance")) continue;
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const std::string name = suite.GetTestInfo(t)->name();
      cases.insert(name.substr(0, name.find('/')));
    }
  }
  return cases;
}

std::string Table() {
  std::string header = "| case |", rule = "|---|", counts = "| runs |", rows;
  for (const BackendUnderTest& backend : Backends()) {
    header += " " + backend.name + " |";
    rule += "---|";
    counts += fmt::format(" {} of {} |", Cases().size() - backend.off.size(), Cases().size());
  }
  for (const std::string& name : Cases()) {
    rows += "| " + name + " |";
    for (const BackendUnderTest& backend : Backends()) {
      const auto off = backend.off.find(name);
      rows += fmt::format(" {} |", off == backend.off.end() ? "runs" : ReasonText(off->second));
    }
    rows += "\n";
  }
  return fmt::format("{}\n{}\n{}{}\n", header, rule, rows, counts);
}

// Without this the cases on cuda would not show that nothing reads device memory from the host.
TEST(StandInDeathTest, AReadOfDeviceMemoryFromTheHostEndsTheProcess) {
  const auto backend = std::ranges::find(Backends(), std::string("cuda"), &BackendUnderTest::name);
  ASSERT_NE(backend, Backends().end());
  const auto opened = backend->open(1);
  ASSERT_NE(opened, nullptr);
  auto buffer = opened->runtime().FromHost(Blob::Copy("abcd"), DType::kU8, Shape{{4}}, 0, "");
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  auto pinned = static_cast<pjrt::Buffer&>(**buffer).Pin();
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  const auto address = (*pinned)->Address();
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EXIT(
      {
        std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler
        std::_Exit(*static_cast<const volatile char*>(*address));
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

TEST(RuntimeTable, IsTheOneInTheDocs) {
  std::ifstream file(FAIRWAY_TESTING_DOC);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(text.find("\n\n" + Table() + "\n"), std::string::npos)
      << FAIRWAY_TESTING_DOC << " should have:\n"
      << Table();
}

TEST(RuntimeTable, PjrtAndHostRunNineOfTenCases) {
  const std::set<std::string> cases = Cases();
  ASSERT_GE(cases.size(), 20u);
  for (const BackendUnderTest& backend : Backends()) {
    for (const auto& [name, reason] : backend.off) {
      EXPECT_TRUE(cases.contains(name))
          << backend.name << " does not run " << name << ", which is no case";
    }
    if (backend.name != "pjrt" && backend.name != "host") continue;
    EXPECT_GE((cases.size() - backend.off.size()) * 10, cases.size() * 9) << backend.name;
  }
}

}  // namespace
}  // namespace fairway::conformance
