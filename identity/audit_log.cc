// SPDX-License-Identifier: Apache-2.0
#include "identity/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include <spdlog/spdlog.h>
#include <nlohmann/json.hpp>

#include "identity/network.h"
#include "identity/token.h"

namespace fairway {
namespace {

constexpr int64_t kThousand = 1000;
constexpr size_t kLongestText = 1024;

// A line has 300 bytes or so. Strangers can have 6 KB a second written, in all; tokens' owners 30.
constexpr LineBudget::Rate kEachHost{20, 1};
constexpr LineBudget::Rate kAllHosts{400, 20};
constexpr LineBudget::Rate kEachToken{100, 10};
constexpr LineBudget::Rate kAllTokens{2000, 100};
constexpr LineBudget::Rate kAdminLines{1000, 50};
// In the file of admins: of operators, by token, and of joins that fail, by network. These push no
// older lines out within two days.
constexpr LineBudget::Rate kEachOther{10, 1};
constexpr LineBudget::Rate kAllOthers{100, 1};

constexpr std::string_view kNames[] = {"refused", "used", "admin"};

size_t IndexOf(AuditEvent event) { return static_cast<size_t>(event); }

// What a line counts against: those of its event, but for some in the file of admins.
enum Budget : size_t { kOfEvents = 3, kOfOperators = kOfEvents, kOfFailedJoins };
size_t BudgetOf(const AuditLine& line) {
  if (line.event == AuditEvent::kAdmin) {
    if (line.role == NameOf(TokenRole::kOperator)) return kOfOperators;
    if (line.role == NameOf(TokenRole::kWorker) && !line.status.ok()) return kOfFailedJoins;
  }
  return IndexOf(line.event);
}

// "2026-11-27T14:07:25.123Z"
std::string Stamp(LineBudget::Time time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const std::time_t whole = seconds.time_since_epoch().count();
  std::tm parts{};
  ::gmtime_r(&whole, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     (time - seconds).count());
}

std::string JsonOf(const AuditLine& line, LineBudget::Time now, int64_t left_out) {
  nlohmann::ordered_json json;
  json["time"] = Stamp(now);
  json["event"] = kNames[IndexOf(line.event)];
  json["verb"] = line.verb;
  json["host"] = line.host;
  if (line.token != 0) json["token"] = line.token;
  if (!line.role.empty()) json["role"] = line.role;
  if (!line.tenant.empty()) json["tenant"] = line.tenant;
  if (!line.object.empty()) json["object"] = BoundedText(line.object, kLongestText);
  json["code"] = absl::StatusCodeToString(line.status.code());
  if (!line.status.ok()) json["text"] = BoundedText(Text(line.status), kLongestText);
  if (left_out > 0) json["left_out"] = left_out;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

void LineBudget::Fill(Part& part, Rate rate, Time now) {
  // A clock that is set back fills nothing, and takes nothing away.
  const int64_t passed = std::max<int64_t>((now - part.at).count(), 0);
  const int64_t full = rate.full * kThousand;
  const int64_t most = full - part.left;
  part.left += passed >= full ? most : std::min(most, passed * rate.per_second);
  part.at = now;
}

bool LineBudget::Take(const std::string& whose, Time now) {
  if (!std::exchange(begun_, true)) whole_ = {all_.full * kThousand, now};
  Fill(whole_, all_, now);
  auto found = parts_.find(whose);
  if (found == parts_.end() && parts_.size() >= kMostParts) {
    // Whoever has a full part again needs none.
    for (auto it = parts_.begin(); it != parts_.end();) {
      Fill(it->second, each_, now);
      it = it->second.left >= each_.full * kThousand ? parts_.erase(it) : std::next(it);
    }
  }
  if (found == parts_.end()) {
    const std::string& key = parts_.size() < kMostParts ? whose : std::string();
    found = parts_.try_emplace(key, Part{each_.full * kThousand, now}).first;
  }
  Fill(found->second, each_, now);
  if (whole_.left < kThousand || found->second.left < kThousand) return false;
  whole_.left -= kThousand;
  found->second.left -= kThousand;
  return true;
}

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& directory,
                                                         size_t file_bytes) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error(absl::StatusCode::kUnavailable, "cannot make {}: {}", directory,
                 std::strerror(errno));
  }
  return std::unique_ptr<AuditLog>(new AuditLog(directory, file_bytes));
}

AuditLog::AuditLog(std::string directory, size_t file_bytes)
    : directory_(std::move(directory)),
      file_bytes_(file_bytes),
      budgets_{LineBudget(kEachHost, kAllHosts), LineBudget(kEachToken, kAllTokens),
               LineBudget(kAdminLines, kAdminLines), LineBudget(kEachOther, kAllOthers),
               LineBudget(kEachOther, kAllOthers)} {
  writer_ = std::thread([this] { WriteAll(); });
}

AuditLog::~AuditLog() {
  {
    const std::lock_guard lock(mu_);
    ending_ = true;
    changed_.notify_all();
  }
  writer_.join();
}

void AuditLog::Write(const AuditLine& line, LineBudget::Time now) {
  const size_t index = IndexOf(line.event);
  const size_t budget = BudgetOf(line);
  const bool by_network = line.event == AuditEvent::kRefused || budget == kOfFailedJoins;
  const std::string whose =
      by_network ? NetworkOf(std::string(line.host)) : std::to_string(line.token);
  const std::lock_guard lock(mu_);
  if (waiting_.size() >= kMostWaiting || !budgets_[budget].Take(whose, now)) {
    ++left_out_[index];
    return;
  }
  const int64_t left_out = std::exchange(left_out_[index], 0);
  waiting_.push_back({line.event, left_out, JsonOf(line, now, left_out)});
  changed_.notify_all();
}

void AuditLog::Flush() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return waiting_.empty() && !writing_; });
}

void AuditLog::WriteAll() {
  std::unique_lock lock(mu_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    writing_ = true;
    lock.unlock();
    const bool written = Append(next.event, next.text);
    lock.lock();
    writing_ = false;
    if (!written) {
      if (std::exchange(failing_, true) == false)
        spdlog::warn("{}: the audit log takes no lines: {}", directory_, std::strerror(errno));
      left_out_[IndexOf(next.event)] += 1 + next.left_out;
    } else {
      failing_ = false;
    }
    changed_.notify_all();
  }
}

bool AuditLog::Append(AuditEvent event, const std::string& text) {
  const std::string path = PathOf(event, 0);
  const int file =
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return false;
  struct stat facts {};
  const bool full = ::fstat(file, &facts) == 0 &&
                    static_cast<size_t>(facts.st_size) + text.size() > file_bytes_ &&
                    facts.st_size > 0;
  if (full) {
    ::close(file);
    for (int number = kOldFiles; number > 1; --number)
      ::rename(PathOf(event, number - 1).c_str(), PathOf(event, number).c_str());
    return ::rename(path.c_str(), PathOf(event, 1).c_str()) == 0 && Append(event, text);
  }
  const ssize_t put = ::write(file, text.data(), text.size());
  const bool all = put == static_cast<ssize_t>(text.size());
  // Half a line is taken back, so that each line stays whole.
  if (!all && put > 0 && ::ftruncate(file, facts.st_size) != 0) errno = ENOSPC;
  ::close(file);
  return all;
}

std::string AuditLog::PathOf(AuditEvent event, int number) const {
  const std::string path = fmt::format("{}/{}.log", directory_, kNames[IndexOf(event)]);
  return number == 0 ? path : fmt::format("{}.{}", path, number);
}

}  // namespace fairway
