// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/metrics.h"
#include "controller/cluster/status.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSubsetOf;

ControllerSnapshot Example() {
  ControllerSnapshot s;
  s.islands.push_back({.id = IslandId(1), .name = "island\"0", .up = true, .gangs_launched = 7});
  ExecutorStatus executor{
      .id = ExecutorId(1), .island = IslandId(1), .spec = {}, .up = true, .last_error = {}};
  executor.spec.worker = "w0";
  s.executors.push_back(executor);
  s.usage.push_back({.device = DeviceId(5),
                     .island = IslandId(1),
                     .executor = ExecutorId(1),
                     .local_ordinal = 3,
                     .used = 4096});
  s.executor_fetches[ExecutorId(1)] = 2;
  s.said.loads[ExecutorId(1)] = {.turn_units = 900, .handler = std::chrono::milliseconds(3)};
  s.transferred_bytes[{"a", "b"}] = 99;
  s.commands = {.messages = 5, .bytes = 500};
  s.reports = {.messages = 4, .bytes = 300};
  s.commands_sent = 21;
  s.links_resumed = 5;
  s.health[ExecutorId(1)] = {.open_entries = 8,
                             .open_bytes = 80,
                             .still = std::chrono::milliseconds(250),
                             .round_trip = std::chrono::milliseconds(2),
                             .links_resumed = 3,
                             .log_from = {}};
  s.said.executors[ExecutorId(1)] = {
      .launches = 41,
      .served_bytes = 42,
      .buffers = 43,
      .executables = 44,
      .process = {.cpu = std::chrono::milliseconds(4500), .resident_bytes = 46}};
  s.said.daemons["w0"] = {
      .island = "i",
      .executor_starts = 51,
      .compile_starts = 54,
      .compile_crashes = 55,
      .compile_processes = 56,
      .process = {.cpu = std::chrono::milliseconds(5200), .resident_bytes = 53}};
  s.relays.push_back({.worker = "w0",
                      .island = "i",
                      .endpoint = {},
                      .above = {},
                      .executors = 2,
                      .relays = 1,
                      .passed_on = {.messages = 31, .bytes = 310}});
  s.relay_troubles = 22;
  s.relay_moves = 23;
  s.counts.nodes_made = 6;
  s.uploaded_bytes = 11;
  s.counts.sessions = 3;
  s.counts.inline_hits = 13;
  s.counts.executions = 17;
  s.counts.stored_bytes = 19;
  s.counts.units = 5000;
  s.counts.most_units = 1900;
  s.longest_handler = std::chrono::milliseconds(4);
  return s;
}

TEST(MetricsTest, WritesValuesWithEscapedLabels) {
  const std::string text = MetricsText(Example());
  EXPECT_THAT(
      text,
      HasSubstr("# TYPE fairway_uploaded_bytes_total counter\nfairway_uploaded_bytes_total 11\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_inline_fetches_total 13\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_executions_total 17\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_stored_upload_bytes 19\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_core_units_total 5000\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_core_turn_units_max 1900\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_loop_handler_cpu_seconds_max 0.004\n"));
  EXPECT_THAT(text,
              HasSubstr("\nfairway_executor_turn_units_max{worker=\"w0\",island=\"\"} 900\n"));
  EXPECT_THAT(
      text,
      HasSubstr("\nfairway_executor_handler_cpu_seconds_max{worker=\"w0\",island=\"\"} 0.003\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_sessions 3\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_nodes_total 6\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_link_messages_total{direction=\"to_executors\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_link_bytes_total{direction=\"from_executors\"} 300\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_commands_total 21\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_links_resumed_total 5\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_relay_children{worker=\"w0\",island=\"i\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_relay_messages_total{worker=\"w0\",island=\"i\"} 31\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_relay_bytes_total{worker=\"w0\",island=\"i\"} 310\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_relay_moves_total 23\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_relay_troubles_total 22\n"));
  const std::string executor = "{worker=\"w0\",island=\"\"} ";
  EXPECT_THAT(text, HasSubstr("\nfairway_executor_open_commands" + executor + "8\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_executor_still_seconds" + executor + "0.25\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_executor_round_trip_seconds" + executor + "0.002\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_executor_links_resumed_total" + executor + "3\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_executor_launches_total" + executor + "41\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_executor_served_bytes_total" + executor + "42\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_executor_buffers" + executor + "43\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_executor_executables" + executor + "44\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_executor_cpu_seconds_total" + executor + "4.5\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_executor_resident_bytes" + executor + "46\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_worker_up" + executor + "1\n"));
  const std::string worker = "{worker=\"w0\",island=\"i\"} ";
  EXPECT_THAT(text, HasSubstr("\nfairway_worker_executor_starts_total" + worker + "51\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_worker_compile_starts_total" + worker + "54\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_worker_compile_crashes_total" + worker + "55\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_worker_compile_processes" + worker + "56\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_worker_cpu_seconds_total" + worker + "5.2\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_worker_resident_bytes" + worker + "53\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_gangs_launched_total{island=\"island\\\"0\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_executor_fetches_total{island=\"island\\\"0\"} 2\n"));
  EXPECT_THAT(
      text, HasSubstr("\nfairway_transferred_bytes_total{from_island=\"a\",to_island=\"b\"} 99\n"));
  EXPECT_THAT(text, HasSubstr("\nfairway_executor_up{island=\"island\\\"0\",worker=\"w0\"} 1\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "\nfairway_device_memory_used_bytes{island=\"island\\\"0\",device=\"w0/3\"} 4096\n"));
}

TEST(MetricsTest, EveryLineIsACommentOrASample) {
  std::string text = MetricsText(Example());
  ASSERT_EQ(text.back(), '\n');
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("# HELP fairway_") || line.starts_with("# TYPE fairway_")) continue;
    EXPECT_TRUE(line.starts_with("fairway_")) << line;
    const std::string value = line.substr(line.rfind(' ') + 1);
    EXPECT_FALSE(value.empty()) << line;
    EXPECT_EQ(value.find_first_not_of("0123456789.e+-"), std::string::npos) << line;
  }
}

struct Family {
  std::string name, type, help;
  std::vector<std::string> labels;
  int samples = 0;
};

// The names of the labels of `sample`, a line; no value of a label in Example has a comma.
std::vector<std::string> LabelsOf(const std::string& sample) {
  std::vector<std::string> out;
  const size_t open = sample.find('{');
  for (size_t at = open; at != std::string::npos; at = sample.find(',', at + 1)) {
    const size_t end = sample.find('=', at);
    out.push_back(sample.substr(at + 1, end - at - 1));
  }
  return out;
}

std::vector<Family> FamiliesOf(const std::string& text) {
  std::vector<Family> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    constexpr size_t kMark = std::string_view("# HELP ").size();
    const std::string said = line.starts_with('#') ? line.substr(line.find(' ', kMark) + 1) : "";
    if (line.starts_with("# HELP ")) {
      out.push_back({.name = line.substr(kMark, line.find(' ', kMark) - kMark),
                     .type = {},
                     .help = said,
                     .labels = {}});
    } else if (line.starts_with("# TYPE ")) {
      out.back().type = said;
    } else {
      ++out.back().samples;
      out.back().labels = LabelsOf(line);
    }
  }
  return out;
}

std::string UnitOf(const Family& family) {
  if (family.name.find("_bytes") != std::string::npos) return "bytes";
  if (family.name.find("_seconds") != std::string::npos) return "seconds";
  const bool flag = family.name.ends_with("_up") || family.name.ends_with("_cordoned");
  return flag ? "0 or 1" : "count";
}

// The table of docs/metrics.md.
std::string TableOf(std::vector<Family> families) {
  std::sort(families.begin(), families.end(),
            [](const Family& a, const Family& b) { return a.name < b.name; });
  std::string out = "| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n";
  for (const Family& family : families) {
    std::string labels;
    for (const std::string& label : family.labels)
      labels += fmt::format("{}`{}`", labels.empty() ? "" : ", ", label);
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", family.name, family.type, UnitOf(family),
                       labels, family.help);
  }
  return out;
}

TEST(MetricsTest, ThePageHasTheTableOfWhatTheCodeWrites) {
  std::ifstream file(FAIRWAY_METRICS_PAGE);
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const std::string table = TableOf(FamiliesOf(MetricsText(Example())));
  EXPECT_NE(page.find(table), std::string::npos)
      << "docs/metrics.md does not have this table, which the code has:\n"
      << table;
}

// Nobody but who runs the cluster names islands and workers. A label whose values clients choose
// would let them make as many series as they like.
TEST(MetricsTest, LabelsAreBounded) {
  for (const Family& family : FamiliesOf(MetricsText(Example()))) {
    EXPECT_GT(family.samples, 0) << family.name << ": Example has none";
    EXPECT_THAT(family.labels, IsSubsetOf({"worker", "island", "device", "direction", "state",
                                           "from_island", "to_island"}))
        << family.name;
  }
}

TEST(MetricsTest, NamesAndTextsFollowPrometheus) {
  for (const Family& family : FamiliesOf(MetricsText(Example()))) {
    EXPECT_EQ(family.type == "counter", family.name.ends_with("_total")) << family.name;
    EXPECT_TRUE(family.type == "counter" || family.type == "gauge") << family.name;
    EXPECT_TRUE(family.help.ends_with('.')) << family.name << ": " << family.help;
  }
}

TEST(MetricsTest, CountsDescriptorsAndThreads) {
  const int before = CountOpenFds();
  const int fd = ::open("/dev/null", O_RDONLY);
  EXPECT_EQ(CountOpenFds(), before + 1);
  ::close(fd);
  EXPECT_EQ(CountOpenFds(), before);
  EXPECT_GE(CountThreads(), 1);
}

}  // namespace
}  // namespace fairway
