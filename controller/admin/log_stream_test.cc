// SPDX-License-Identifier: Apache-2.0
#include "controller/admin/log_stream.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "controller/rpc/server_for_test.h"
#include "fairway/v1/admin.grpc.pb.h"

namespace fairway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// The method behind a gRPC server; its files are in `directory_`.
class LogStreamTest : public ::testing::Test {
 protected:
  LogStreamTest()
      : directory_(::testing::TempDir() + "/log_stream_test." + std::to_string(::getpid())) {
    std::filesystem::create_directories(directory_);
  }
  ~LogStreamTest() override {
    server_->Shutdown({});
    loop_.Stop();
    thread_.join();
    std::filesystem::remove_all(directory_);
  }
  // `with_files`: the controller has a log directory.
  void Serve(bool with_files) {
    ServeLogs(methods_,
              {.loop = &loop_,
               .disk = &disk_,
               .directory = with_files ? directory_ : "",
               .lines = lines_,
               .workers =
                   [] {
                     return std::set<std::string>{"w0", "w1", "w2"};
                   },
               .ask =
                   [this](const std::string& worker, const WorkerTailDone& done) {
                     asked_.push_back(worker);
                     if (worker == "w1") return done(absl::AbortedError("worker w1 is away"));
                     // Later, as a worker does.
                     loop_.Post("answer", [worker, done] {
                       done(WorkerTail{"host of " + worker, "one\n\xff two\nthree\n", true});
                     });
                   }});
    server_ = std::make_unique<ServerForTest>(methods_.all());
    grpc::ChannelArguments arguments;  // a fast connection would take all lines unread
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    stub_ = v1::Admin::NewStub(
        grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                  grpc::InsecureChannelCredentials(), arguments));
    thread_ = std::thread([this] { loop_.Run(); });
  }

  struct Reader {
    ~Reader() { context.TryCancel(); }
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::LogLine>> lines;
    v1::LogLine line;
    bool Read() { return lines->Read(&line); }
  };
  std::unique_ptr<Reader> GetLogs(const std::string& process = "", bool anywhere = false,
                                  int max_lines = 100000) {
    auto reader = std::make_unique<Reader>();
    v1::GetLogsRequest request;
    request.set_process(process);
    request.set_max_lines(max_lines);
    request.set_anywhere(anywhere);
    reader->lines = stub_->GetLogs(&reader->context, request);
    return reader;
  }
  // All that comes: "NAME@HOST,PATH,OLDER:LINE", and at the end the error.
  std::vector<std::string> All(std::unique_ptr<Reader> reader) {
    std::vector<std::string> out;
    while (reader->Read()) {
      const v1::LogLine& line = reader->line;
      const std::string from =
          line.host().empty()
              ? ""
              : fmt::format("@{}{}{}", line.host() == HostName() ? "here" : line.host(),
                            line.path().empty() ? "" : ",file", line.older() ? ",older" : "");
      out.push_back(
          fmt::format("{}{}{}: {}", line.process(), from, line.failed() ? "!" : "", line.line()));
    }
    if (const grpc::Status status = reader->lines->Finish(); !status.ok())
      out.push_back(status.error_message());
    return out;
  }
  static std::string HostName() {
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    return name;
  }

  const std::string directory_;
  BlockingPool disk_{"test-disk", 1};
  EventLoop loop_;
  std::shared_ptr<RecentLines> lines_ = std::make_shared<RecentLines>();
  std::vector<std::string> asked_;  // of the loop
  GatedMethods methods_{CallAccess()};
  std::unique_ptr<ServerForTest> server_;
  std::unique_ptr<v1::Admin::Stub> stub_;
  std::thread thread_;
};

TEST_F(LogStreamTest, WithoutFilesAllIsHadFromTheProcessesAndAFailureStopsNobodyElse) {
  lines_->Add("own with password=swordfish");
  Serve(/*with_files=*/false);
  EXPECT_THAT(
      All(GetLogs("", true, 2)),
      ElementsAre("controller@here: own with password=[left out]", "w0@host of w0: ? two",
                  "w0: three", "w1!: worker w1 is away", "w2@host of w2: ? two", "w2: three"));
  EXPECT_THAT(All(GetLogs("w0", true, 3)),
              ElementsAre("w0@host of w0,older: one", "w0: ? two", "w0: three"));
  EXPECT_THAT(All(GetLogs("w1", true)), ElementsAre("worker w1 is away"));
  EXPECT_THAT(All(GetLogs("w7", true)),
              ElementsAre("no process 'w7'; there are: controller, w0, w1, w2"));
}

TEST_F(LogStreamTest, AFileOfTheControllersDirectoryComesBeforeTheMemoryOfItsProcess) {
  lines_->Add("in memory");
  std::ofstream(directory_ + "/w0.log") << "in the file, token=swordfish\n";
  std::ofstream(directory_ + "/controller.log") << "in the file\n";
  Serve(/*with_files=*/true);
  EXPECT_THAT(All(GetLogs("", true, 1)),
              ElementsAre("controller@here,file: in the file",
                          "w0@here,file: in the file, token=[left out]", "w1!: worker w1 is away",
                          "w2@host of w2: three"));
  EXPECT_THAT(All(GetLogs("w0", false)),
              ElementsAre("w0@here,file: in the file, token=[left out]"));
  EXPECT_THAT(All(GetLogs("w2", false)), ElementsAre("no process 'w2'; there are: controller, w0"));
  server_->Shutdown({});
  EXPECT_THAT(asked_, ElementsAre("w1", "w2"));
}

TEST_F(LogStreamTest, AClientOfTheVersionBeforeIsToldThatThereAreNoFiles) {
  Serve(/*with_files=*/false);
  EXPECT_THAT(All(GetLogs()), ElementsAre("the controller keeps no log files (it was started "
                                          "without --log-dir)"));
}

TEST_F(LogStreamTest, AnyBytesMayStandInALog) {
  std::ofstream(directory_ + "/w\xff.log") << "cut \xe2\x82\n";
  Serve(/*with_files=*/true);
  EXPECT_THAT(All(GetLogs()), ElementsAre("w?@here,file: cut ??"));
}

TEST_F(LogStreamTest, ReadersThatDoNotReadAreFew) {
  std::ofstream out(directory_ + "/w0.log");  // more than is taken before the client reads
  for (int i = 0; i < 4000; ++i) out << std::string(1000, '.') << "\n";
  out.close();
  Serve(/*with_files=*/true);
  std::vector<std::unique_ptr<Reader>> readers;
  while (readers.size() < 10) {
    readers.push_back(GetLogs());
    if (!readers.back()->Read()) break;
  }
  ASSERT_EQ(readers.size(), 5u);
  const grpc::Status refused = readers.back()->lines->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.error_message(),
            "4 others are reading the logs, and no more may at one time: each has its lines in the "
            "controller's memory until it has read them. End one of them, or wait until it ended");

  // A reader that has ended makes room for another.
  readers.pop_back();
  while (readers.back()->Read()) continue;
  EXPECT_TRUE(readers.back()->lines->Finish().ok());
  bool again = false;
  while (!again) again = GetLogs()->Read();
}

}  // namespace
}  // namespace fairway
