// SPDX-License-Identifier: Apache-2.0
#include "controller/admin/log_stream.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "base/host.h"
#include "base/redact.h"
#include "base/utf8.h"
#include "controller/admin/log_files.h"
#include "fairway/v1/admin.pb.h"

namespace fairway {
namespace {

constexpr int kDefaultLines = 100;
constexpr int kMaxLines = 100000;
// The most calls at one time. Each holds the lines of a process, some MiB of a file, until its
// client has read them.
constexpr int kMaxLogReaders = 4;
constexpr char kController[] = "controller";  // the name of this process

struct Shared {
  LogSources sources;
  std::atomic<int> readers{0};
};

// Streams lines of logs. Counts among the readers until they are gone. What it does comes one after
// the other: on the disk's thread, in the loop, or by gRPC's queue.
class LogStream final : public OneMessageCall<v1::GetLogsRequest> {
 public:
  LogStream(AdmittedCall admitted, std::shared_ptr<Shared> shared)
      : OneMessageCall(std::move(admitted)), shared_(std::move(shared)) {}
  ~LogStream() override {
    if (counted_) --shared_->readers;
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      NextLine();
    } else {
      Finish(absl::CancelledError());
    }
  }

 private:
  struct Process {
    enum class From : uint8_t { kFile, kMemory, kWorker };
    std::string name;
    From from;
  };

  void Begin() override;
  void FindProcesses(std::set<std::string> workers);
  void NextProcess();
  void TakeFile(const std::string& process);
  void TakeMemory();
  void AskWorker(const std::string& process);
  // `path`: as in LogLine.
  void Take(LastLines last, const std::string& host, const std::string& path);
  // Nothing can be had of the present process.
  void Failed(const absl::Status& status);
  void NextLine();
  size_t most_lines() const {
    const int lines = request().max_lines() <= 0 ? kDefaultLines : request().max_lines();
    return static_cast<size_t>(std::min(lines, kMaxLines));
  }

  const std::shared_ptr<Shared> shared_;
  const LogSources& from_ = shared_->sources;
  bool counted_ = false;
  std::vector<Process> processes_;
  size_t next_process_ = 0;
  v1::LogLine line_;  // to be sent next; of its process's first line it has more
  std::vector<std::string> lines_;
  size_t next_line_ = 0;
};

void LogStream::Begin() {
  counted_ = shared_->readers.fetch_add(1) < kMaxLogReaders;
  if (!counted_) {
    --shared_->readers;
    return End(Error(
        absl::StatusCode::kResourceExhausted,
        "{} others are reading the logs, and no more may at one time: each has its lines in the "
        "controller's memory until it has read them. End one of them, or wait until it ended",
        kMaxLogReaders));
  }
  if (!request().anywhere()) return from_.disk->Run([this] { FindProcesses({}); });
  from_.loop->Post("admin GetLogs", [this] {
    from_.disk->Run(
        [this, workers = from_.workers()]() mutable { FindProcesses(std::move(workers)); });
  });
}

void LogStream::FindProcesses(std::set<std::string> workers) {
  if (!request().anywhere() && from_.directory.empty()) {
    return End(Error(absl::StatusCode::kFailedPrecondition,
                     "the controller keeps no log files (it was started without --log-dir)"));
  }
  std::vector<std::string> files = ProcessesIn(from_.directory);
  std::set<std::string> known = std::move(workers);
  if (request().anywhere()) known.insert(kController);
  known.insert(files.begin(), files.end());
  const std::string& wanted = request().process();
  if (!wanted.empty() && !known.contains(wanted)) {
    return End(Error(absl::StatusCode::kNotFound, "no process '{}'; there are: {}", wanted,
                     fmt::join(known, ", ")));
  }
  using From = Process::From;
  for (const std::string& name : known) {
    if (!wanted.empty() && name != wanted) continue;
    const bool file = std::ranges::binary_search(files, name);
    processes_.push_back({name, file                  ? From::kFile
                                : name == kController ? From::kMemory
                                                      : From::kWorker});
  }
  // The controller's are there at once, so a client hears something while workers are asked.
  // clang 14 does not take std::ranges::stable_partition.
  std::stable_partition(processes_.begin(), processes_.end(),
                        [](const Process& p) { return p.name == kController; });
  NextProcess();
}

void LogStream::NextProcess() {
  if (next_process_ == processes_.size()) return Finish(absl::OkStatus());
  const Process& process = processes_[next_process_++];
  line_.Clear();
  line_.set_process(ValidUtf8(process.name));
  switch (process.from) {
    case Process::From::kFile:
      return from_.disk->Run([this, name = process.name] { TakeFile(name); });
    case Process::From::kMemory:
      return from_.disk->Run([this] { TakeMemory(); });
    case Process::From::kWorker:
      return from_.loop->Post("admin GetLogs", [this, name = process.name] { AskWorker(name); });
  }
}

void LogStream::TakeFile(const std::string& process) {
  Take(ReadLog(from_.directory, process, most_lines()), HostName(),
       LogFileOf(from_.directory, process));
}

void LogStream::TakeMemory() {
  const RecentLines::Tail tail = from_.lines->Get();
  Take(LastLinesOf(WithoutSecrets(tail.text), most_lines(), tail.older), HostName(), "");
}

void LogStream::AskWorker(const std::string& process) {
  from_.ask(process, [this](absl::StatusOr<WorkerTail> tail) {
    from_.disk->Run([this, tail = std::move(tail)] {
      if (!tail.ok()) return Failed(tail.status());
      Take(LastLinesOf(tail->text, most_lines(), tail->older), tail->host, "");
    });
  });
}

void LogStream::Take(LastLines last, const std::string& host, const std::string& path) {
  lines_ = std::move(last.lines);
  next_line_ = 0;
  line_.set_host(ValidUtf8(host));
  line_.set_path(ValidUtf8(path));
  line_.set_older(last.older);
  NextLine();
}

void LogStream::Failed(const absl::Status& status) {
  if (!request().process().empty()) return End(status);
  lines_ = {Text(status)};
  next_line_ = 0;
  line_.set_failed(true);
  NextLine();
}

void LogStream::NextLine() {
  if (next_line_ == lines_.size()) return NextProcess();
  if (next_line_ > 0) {
    line_.clear_host();
    line_.clear_path();
    line_.clear_older();
  }
  line_.set_line(ValidUtf8(lines_[next_line_]));
  lines_[next_line_++] = {};
  StartWrite(line_);
}

}  // namespace

void ServeLogs(GatedMethods& methods, LogSources sources) {
  const auto shared = std::make_shared<Shared>();
  shared->sources = std::move(sources);
  methods.AddOneMessage<LogStream>("fairway.v1.Admin.GetLogs", [shared](AdmittedCall admitted) {
    return new LogStream(std::move(admitted), shared);
  });
}

}  // namespace fairway
