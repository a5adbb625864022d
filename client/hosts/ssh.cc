// SPDX-License-Identifier: Apache-2.0
#include "client/hosts/ssh.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>

#include "client/cli/printable.h"
#include "client/cli/process.h"

namespace fairway {
namespace {

using Clock = std::chrono::steady_clock;

// What a host may answer. Beyond it the command is ended: a host must not fill this one's memory.
constexpr size_t kMostOutput = size_t{4} << 20;
constexpr int kSshFailed = 255;

// The path of a program in PATH; empty: there is none.
std::string FindProgram(const std::string& name) {
  const char* const path = std::getenv("PATH");
  for (const auto folder : absl::StrSplit(path != nullptr ? path : "/usr/bin:/bin", ':')) {
    std::string file = fmt::format("{}/{}", std::string(folder), name);
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// A child whose standard streams are ours.
class Child {
 public:
  static absl::StatusOr<Child> Start(const std::vector<std::string>& command, int input) {
    FAIRWAY_ASSIGN_OR_RETURN(auto out, MakePipe());
    FAIRWAY_ASSIGN_OR_RETURN(auto err, MakePipe());
    const ChildSpec spec{.command = command,
                         .log_file = {},
                         .inherited = {{input, STDIN_FILENO},
                                       {out.second.get(), STDOUT_FILENO},
                                       {err.second.get(), STDERR_FILENO}},
                         .own_group = false,  // Ctrl-C ends it, too
                         .ends_with_us = true};
    FAIRWAY_ASSIGN_OR_RETURN(const pid_t pid, StartChild(spec));
    for (const OwnedFd* fd : {&out.first, &err.first}) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
    return Child(pid, std::move(out.first), std::move(err.first));
  }

  // Reads what it writes. Returns waitpid's status. DEADLINE_EXCEEDED and RESOURCE_EXHAUSTED: it
  // was ended.
  absl::StatusOr<int> Wait(Clock::time_point deadline) {
    int status = 0;
    absl::Status failed;
    for (;;) {
      const pid_t ended = ::waitpid(pid_, &status, failed.ok() ? WNOHANG : 0);
      // What ssh leaves in the background keeps the streams open, so their end is not waited for.
      Read();
      if (ended == pid_) break;
      if (out.size() + err.size() > kMostOutput)
        failed = absl::ResourceExhaustedError("it writes without end");
      if (Clock::now() >= deadline) failed = absl::DeadlineExceededError("no end");
      if (!failed.ok()) ::kill(pid_, SIGKILL);
      constexpr int kLookAgainMs = 20;  // its end is no event of poll
      std::array<pollfd, 2> files = {pollfd{out_.get(), POLLIN, 0}, pollfd{err_.get(), POLLIN, 0}};
      if (failed.ok()) ::poll(files.data(), files.size(), kLookAgainMs);
    }
    FAIRWAY_RETURN_IF_ERROR(failed);
    return status;
  }

  std::string out, err;

 private:
  Child(pid_t pid, OwnedFd out, OwnedFd err)
      : pid_(pid), out_(std::move(out)), err_(std::move(err)) {}

  void Read() {
    for (auto [fd, text] : {std::pair(&out_, &out), std::pair(&err_, &err)}) {
      std::array<char, 65536> buffer{};
      ssize_t got = 0;
      while (fd->get() >= 0 && text->size() <= kMostOutput &&
             (got = ::read(fd->get(), buffer.data(), buffer.size())) > 0)
        text->append(buffer.data(), static_cast<size_t>(got));
      if (got == 0) fd->Reset();  // poll leaves out what is closed
    }
  }

  pid_t pid_;
  OwnedFd out_, err_;
};

// An unlinked file with the text, at its beginning. A pipe would have to be written while the
// answer is read.
absl::StatusOr<OwnedFd> FileOf(const std::string& text) {
  OwnedFd file(::memfd_create("fairway-ssh", MFD_CLOEXEC));
  size_t written = 0;
  while (file.get() >= 0 && written < text.size()) {
    const ssize_t n = ::write(file.get(), text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    written += static_cast<size_t>(n);
  }
  OwnedFd high(::fcntl(file.get(), F_DUPFD_CLOEXEC, 64));  // above those of the child
  if (high.get() < 0 || written < text.size() || ::lseek(high.get(), 0, SEEK_SET) != 0)
    return Error(absl::StatusCode::kUnavailable, "cannot make a file in memory: {}",
                 std::strerror(errno));
  return high;
}

absl::StatusOr<OwnedFd> OpenInput(const Ssh::Input& input) {
  if (input.path.empty()) return FileOf(input.text);
  const OwnedFd file(::open(input.path.c_str(), O_RDONLY | O_CLOEXEC));
  OwnedFd high(::fcntl(file.get(), F_DUPFD_CLOEXEC, 64));
  if (high.get() < 0) {
    return Error(absl::StatusCode::kNotFound, "cannot read {}: {}", input.path,
                 std::strerror(errno));
  }
  return high;
}

// The start of the names of folders for sockets; a process id follows.
constexpr std::string_view kSockets = "fairway-ssh-";

// Removes the folders of commands that were killed. Their connections end by themselves.
void RemoveAbandoned(const std::string& place) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(place, ignored)) {
    const std::string name = entry.path().filename().string();
    struct stat facts {};
    int64_t pid = 0;
    if (!name.starts_with(kSockets) || ::lstat(entry.path().c_str(), &facts) != 0 ||
        facts.st_uid != ::geteuid() || !S_ISDIR(facts.st_mode))
      continue;
    const std::string digits = name.substr(kSockets.size(), name.rfind('-') - kSockets.size());
    if (absl::SimpleAtoi(digits, &pid) && pid > 0 && ::kill(static_cast<pid_t>(pid), 0) != 0 &&
        errno == ESRCH)
      std::filesystem::remove_all(entry.path(), ignored);
  }
}

}  // namespace

std::string LastLine(std::string_view text) {
  std::string last = "it said nothing";
  for (const auto view : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    const auto line = absl::StripAsciiWhitespace(view);
    if (!line.empty()) last = std::string(line);
  }
  return BoundedText(Printable(last), 500);
}

std::string ExplainSsh(std::string_view host, std::string_view text) {
  struct Known {
    std::string_view said, meaning;
  };
  // The first that fits counts.
  static constexpr Known kKnown[] = {
      {"IDENTIFICATION HAS CHANGED",
       "its host key is not the one that ssh knows: another host answers there, or it was "
       "installed "
       "anew. Ask who runs it; `ssh-keygen -R HOST` forgets the old key"},
      {"Host key verification failed",
       "ssh does not know its host key: type `ssh HOST` once, and compare the key"},
      {"Permission denied",
       "it does not let this user in: its authorized_keys needs a key that ssh has here "
       "(`ssh HOST true` must work without a question)"},
      {"Connection refused", "nothing listens at its ssh port: is sshd running there?"},
      {"Could not resolve hostname", "its name has no address: correct it in the file"},
      {"timed out", "it does not answer: is it on, and is there a way to it?"},
      {"No route to host", "it does not answer: is it on, and is there a way to it?"},
      {"Network is unreachable", "there is no way to it from here"},
      {"closed by", "its sshd ended the connection: its log says why"},
  };
  const std::string name(host);
  for (const Known& known : kKnown) {
    if (text.find(known.said) == std::string_view::npos) continue;
    std::string meaning(known.meaning);
    if (const size_t at = meaning.find("HOST"); at != std::string::npos)
      meaning.replace(at, 4, name);
    return fmt::format("ssh cannot reach it: {} (ssh: {})", meaning, LastLine(text));
  }
  return fmt::format("ssh cannot reach it: {}", LastLine(text));
}

absl::StatusOr<std::unique_ptr<Ssh>> Ssh::Make(std::string config) {
  std::string program = FindProgram("ssh");
  if (program.empty()) {
    return Error(absl::StatusCode::kNotFound,
                 "no program `ssh` in PATH: install OpenSSH's client (Debian: openssh-client)");
  }
  if (!config.empty() && ::access(config.c_str(), R_OK) != 0) {
    return Error(absl::StatusCode::kNotFound, "cannot read ssh-config {}: {}", config,
                 std::strerror(errno));
  }
  // A short path: sockets have at most 108 bytes.
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const bool is_short = runtime != nullptr && *runtime != '\0' && std::strlen(runtime) < 30;
  const std::string place = is_short ? runtime : "/tmp";
  RemoveAbandoned(place);
  std::string sockets = fmt::format("{}/{}{}-XXXXXX", place, kSockets, ::getpid());
  if (::mkdtemp(sockets.data()) == nullptr) {
    return Error(absl::StatusCode::kUnavailable, "cannot make {}: {}", sockets,
                 std::strerror(errno));
  }
  return std::unique_ptr<Ssh>(new Ssh(std::move(program), std::move(config), std::move(sockets)));
}

Ssh::Ssh(std::string program, std::string config, std::string sockets)
    : program_(std::move(program)), config_(std::move(config)), sockets_(std::move(sockets)) {}

std::vector<std::string> Ssh::Command(const std::string& host) const {
  std::vector<std::string> out = {program_};
  if (!config_.empty()) out.insert(out.end(), {"-F", config_});
  // Nobody is asked. A host that is silent for 15 s is given up. One connection is made for all
  // commands; without any it ends after a minute, whatever becomes of this process.
  for (const char* const option :
       {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3",
        "ControlMaster=auto", "ControlPersist=60"})
    out.insert(out.end(), {"-o", option});
  out.insert(out.end(), {"-o", fmt::format("ControlPath={}/%C", sockets_), "-T", "-e", "none"});
  out.push_back(host);
  return out;
}

Ssh::~Ssh() {
  const auto null = FileOf("");
  for (const std::string& host : used_) {
    std::vector<std::string> command = Command(host);
    command.insert(command.end() - 1, {"-O", "exit"});
    if (!null.ok()) continue;
    if (auto child = Child::Start(command, null->get()); child.ok())
      (void)child->Wait(Clock::now() + std::chrono::seconds(5));
  }
  std::error_code ignored;
  std::filesystem::remove_all(sockets_, ignored);
}

absl::StatusOr<std::string> Ssh::Run(const std::string& host, const std::string& words,
                                     const Input& input, std::chrono::seconds limit) {
  {
    const std::lock_guard lock(mutex_);
    used_.insert(host);
  }
  FAIRWAY_ASSIGN_OR_RETURN(const OwnedFd file, OpenInput(input));
  std::vector<std::string> command = Command(host);
  command.push_back(words);
  FAIRWAY_ASSIGN_OR_RETURN(Child child, Child::Start(command, file.get()));
  const auto status = child.Wait(Clock::now() + limit);
  if (absl::IsDeadlineExceeded(status.status())) {
    return Error(absl::StatusCode::kDeadlineExceeded, "it has not done it within {} s",
                 limit.count());
  }
  if (!status.ok()) return status.status();
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return std::move(child.out);
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == kSshFailed)
    return Error(absl::StatusCode::kUnavailable, "{}", ExplainSsh(host, child.err));
  return Error(absl::StatusCode::kAborted, "{}", LastLine(child.err));
}

}  // namespace fairway
