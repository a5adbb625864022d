// SPDX-License-Identifier: Apache-2.0
#include "client/cli/program_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ProgramFileTest : public ::testing::Test {
 protected:
  std::string Written(const std::string& name, const std::string& text) {
    const std::string path =
        fmt::format("{}/program_file_test_{}_{}", ::testing::TempDir(), ::getpid(), name);
    std::ofstream(path, std::ios::trunc) << text;
    written_.push_back(path);
    return path;
  }
  ~ProgramFileTest() override {
    for (const std::string& path : written_) std::filesystem::remove(path);
  }

 private:
  std::vector<std::string> written_;
};

TEST_F(ProgramFileTest, NodesKnowWhereTheyStand) {
  const std::string path = Written("a.txtpb",
                                   "name: 'p'\n"
                                   "graphs {\n"
                                   "  nodes { name: 'x' argument {} }\n"
                                   "\n"
                                   "  nodes { name: 'y' source: 'train.py:3' }\n"
                                   "}\n"
                                   "graphs {\n"
                                   "  nodes { argument {} }\n"
                                   "}\n");
  const auto program = ReadProgramFile(path);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->graphs(0).nodes(0).source(), path + ":3");
  EXPECT_EQ(program->graphs(0).nodes(1).source(), "train.py:3");
  EXPECT_EQ(program->graphs(1).nodes(0).source(), path + ":8");
}

TEST_F(ProgramFileTest, ADirectoryIsNoFile) {
  const std::string directory = ::testing::TempDir();
  v1::Program program;
  for (const absl::Status& status :
       {ReadProgramFile(directory).status(), AddCode({"f=" + directory}, program)}) {
    EXPECT_EQ(Text(status), fmt::format("cannot read {}: is a directory", directory));
  }
}

TEST_F(ProgramFileTest, WhatDoesNotParseIsNamedByLine) {
  const std::string path = Written("b.txtpb", "name: 'p'\nslices { divices: 2 }\n");
  const absl::Status status = ReadProgramFile(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(status), StartsWith(path + ":2:"));
  EXPECT_THAT(Text(status), HasSubstr("divices"));
  const std::string json = Written("b.json", "{\"slices\": [{\"divices\": 2}]}");
  EXPECT_THAT(Text(ReadProgramFile(json).status()), StartsWith(json + ":"));
  EXPECT_EQ(ReadProgramFile(path + "-no").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ProgramFileTest, JsonIsReadToo) {
  const std::string path =
      Written("c.json", R"({"name": "p", "graphs": [{"nodes": [{"argument": {}}]}]})");
  const auto program = ReadProgramFile(path);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->name(), "p");
  EXPECT_EQ(program->graphs(0).nodes(0).source(), path);
}

TEST_F(ProgramFileTest, CodeComesFromFiles) {
  v1::Program program;
  program.add_computations()->set_name("f");
  const std::string code = Written("f.mlir", "module {}");
  ASSERT_TRUE(AddCode({"f=" + code}, program).ok());
  EXPECT_EQ(program.computations(0).stablehlo(), "module {}");
  EXPECT_THAT(Text(AddCode({"g=" + code}, program)), HasSubstr("no computation of the program"));
  EXPECT_THAT(Text(AddCode({"f"}, program)), HasSubstr("not COMPUTATION=FILE"));
  EXPECT_EQ(AddCode({"f=" + code + "-no"}, program).code(), absl::StatusCode::kNotFound);
}

TEST_F(ProgramFileTest, ArgumentsAndResultsHaveTheNamesOfTheirNodesOrNumbers) {
  const auto program = ReadProgramFile(
      Written("d.txtpb",
              "graphs {\n"
              "  nodes { name: 'x' argument {} } nodes { argument {} }\n"
              "  nodes { name: 'y' compute {} } nodes { name: 'z' compute {} }\n"
              "  results { node: 2 } results { node: 3 } results { node: 3 output: 1 }\n"
              "  results { node: 9 }\n"
              "}\n"));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(ArgumentNames(*program), ElementsAre("x", "1"));
  EXPECT_THAT(ResultNames(*program), ElementsAre("y", "1", "2", "3"));
  EXPECT_THAT(ArgumentNames(v1::Program()), ElementsAre());
}

}  // namespace
}  // namespace fairway
