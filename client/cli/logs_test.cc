// SPDX-License-Identifier: Apache-2.0
#include "client/cli/logs.h"

#include <gtest/gtest.h>

namespace fairway {
namespace {

using Form = LogsPrinter::Form;

// What is printed of two processes that have lines, and one that has none to give.
struct Printed {
  std::string out, error;
  bool all = false;
};
Printed Print(Form form) {
  Printed printed;
  LogsPrinter printer(
      form, [&](const std::string& text) { printed.out += text; },
      [&](const std::string& text) { printed.error += text; });
  v1::LogLine line;
  line.set_process("controller");
  line.set_host("h0");
  line.set_path("/logs/controller.log");
  line.set_line("listening");
  printer.Take(line);
  line.Clear();
  line.set_process("w0");
  line.set_host("h1");
  line.set_older(true);
  line.set_line("one");
  printer.Take(line);
  line.Clear();
  line.set_process("w0");
  line.set_line("two");
  printer.Take(line);
  line.Clear();
  line.set_process("w1");
  line.set_failed(true);
  line.set_line("worker w1 is\x1b away");
  printer.Take(line);
  printed.all = printer.End();
  return printed;
}

TEST(LogsPrinter, LinesStandBehindTheNamesOfTheirProcesses) {
  const Printed printed = Print(Form::kNamed);
  EXPECT_EQ(printed.out,
            "controller listening\n"
            "w0         one\n"
            "w0         two\n");
  EXPECT_EQ(printed.error.substr(0, printed.error.find('\n')),
            "fairway logs: older lines of w0 are on its host h1 only");
  EXPECT_FALSE(printed.all);
}

TEST(LogsPrinter, WhoCannotBeAskedIsAnErrorWithoutControlCharacters) {
  const Printed printed = Print(Form::kLines);
  EXPECT_EQ(printed.out, "listening\none\ntwo\n");
  EXPECT_NE(printed.error.find("fairway logs: worker w1 is"), std::string::npos);
  EXPECT_EQ(printed.error.find('\x1b'), std::string::npos);
}

TEST(LogsPrinter, JsonHasAnObjectOfEachProcess) {
  const Printed printed = Print(Form::kJson);
  const Json json = Json::parse(printed.out);
  ASSERT_EQ(json["processes"].size(), 3u);
  EXPECT_EQ(json["processes"][0].dump(),
            R"({"process":"controller","host":"h0","path":"/logs/controller.log","older":false,)"
            R"("error":"","lines":["listening"]})");
  EXPECT_EQ(json["processes"][1]["lines"], Json::array({"one", "two"}));
  EXPECT_EQ(json["processes"][1]["older"], true);
  EXPECT_EQ(json["processes"][2]["lines"], Json::array());
  EXPECT_EQ(json["processes"][2]["error"], "worker w1 is\x1b away");
  EXPECT_EQ(printed.error, "");
  EXPECT_FALSE(printed.all);
}

}  // namespace
}  // namespace fairway
