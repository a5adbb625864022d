// SPDX-License-Identifier: Apache-2.0
#include "identity/gate.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "identity/network.h"

namespace fairway {
namespace {

using std::chrono::sys_seconds;

constexpr std::string_view kScheme = "Bearer ";

// SHA-256 spreads them evenly, and nobody who does not know a secret can choose its hash.
uint64_t PrefixOf(const TokenHash& hash) {
  uint64_t prefix = 0;
  std::memcpy(&prefix, hash.data(), sizeof prefix);
  return prefix;
}

constexpr std::string_view kHowToGetOne =
    "an admin makes one (`fairway token create`), and the client gives the file that has it: "
    "--token-file, FAIRWAY_TOKEN_FILE, token_file";

AuditLine LineOf(AuditEvent event, const Caller& caller, Verb verb, const absl::Status& status) {
  return {.event = event,
          .verb = Described(verb),
          .host = caller.host,
          .token = caller.token,
          .role = caller.token == 0 ? std::string_view() : NameOf(caller.role),
          .tenant = caller.tenant,
          .object = "",
          .status = status};
}

// Whether a call that asks for it is in the audit log by itself: once for each session or look, not
// for each message. What admins do is there with its result (Gate::Record).
bool IsUse(Verb verb) {
  return verb == Verb::kSeeStatus || verb == Verb::kReadLogs || verb == Verb::kSeeTokens ||
         verb == Verb::kOpenSession || verb == Verb::kReadMetrics;
}

absl::Status Denied(const Asked& asked, const TokenRecord& token) {
  if (asked.whose == Whose::kForeign) {
    return Error(absl::StatusCode::kPermissionDenied,
                 "token {} of tenant {} may not {} of another tenant", token.id,
                 token.tenant.empty() ? "none" : token.tenant, Described(asked.verb));
  }
  const std::string tenant = token.tenant.empty() ? "" : fmt::format(" of tenant {}", token.tenant);
  return Error(absl::StatusCode::kPermissionDenied,
               "token {} (role {}{}) may not {}; that takes the role {}: {}", token.id,
               NameOf(token.role), tenant, Described(asked.verb), RolesFor(asked.verb),
               kHowToGetOne);
}

}  // namespace

WrongTokens::Time Gate::SystemTime() {
  return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

absl::StatusOr<std::unique_ptr<Gate>> Gate::Open(const std::string& directory, Clock clock) {
  FAIRWAY_ASSIGN_OR_RETURN(auto store, TokenStore::Open(directory));
  FAIRWAY_ASSIGN_OR_RETURN(const auto all, store->All());
  FAIRWAY_ASSIGN_OR_RETURN(auto audit, AuditLog::Open(directory + "/audit"));
  std::unique_ptr<Gate> gate(new Gate(std::move(store), std::move(audit), std::move(clock)));
  for (const TokenStore::Kept& kept : all) gate->Learn(kept);
  return gate;
}

Gate::Gate(std::unique_ptr<TokenStore> store, std::unique_ptr<AuditLog> audit, Clock clock)
    : store_(std::move(store)), audit_(std::move(audit)), clock_(std::move(clock)) {}

sys_seconds Gate::Now() const { return std::chrono::floor<std::chrono::seconds>(clock_()); }

void Gate::Learn(const TokenStore::Kept& kept) {
  tokens_[kept.record.id] = kept;
  ids_.emplace(PrefixOf(kept.hash), kept.record.id);
}

void Gate::Unlearn(std::map<int64_t, TokenStore::Kept>::iterator token) {
  const auto [first, last] = ids_.equal_range(PrefixOf(token->second.hash));
  const auto id =
      std::find_if(first, last, [&](const auto& at) { return at.second == token->first; });
  if (id != last) ids_.erase(id);
  tokens_.erase(token);
}

const TokenRecord* Gate::Find(std::string_view secret) const {
  const auto hash = HashOfSecret(secret);
  if (!hash.ok()) return nullptr;
  const auto [first, last] = ids_.equal_range(PrefixOf(*hash));
  for (auto it = first; it != last; ++it) {
    const TokenStore::Kept& kept = tokens_.at(it->second);
    if (CRYPTO_memcmp(kept.hash.data(), hash->data(), hash->size()) == 0) return &kept.record;
  }
  return nullptr;
}

Verdict Gate::Judge(const Asked& asked) {
  Verdict out;
  {
    const std::lock_guard lock(mu_);
    out.status = Refusal(asked, out);
  }
  out.caller.host = asked.host;
  if (!out.status.ok()) {
    audit_->Write(LineOf(AuditEvent::kRefused, out.caller, asked.verb, out.status), clock_());
  } else if (IsUse(asked.verb)) {
    audit_->Write(LineOf(AuditEvent::kUsed, out.caller, asked.verb, out.status), clock_());
  }
  return out;
}

void Gate::Record(const Caller& caller, Verb verb, const std::string& object,
                  const absl::Status& status) {
  AuditLine line = LineOf(AuditEvent::kAdmin, caller, verb, status);
  line.object = object;
  audit_->Write(line, clock_());
}

absl::Status Gate::Refusal(const Asked& asked, Verdict& verdict) {
  constexpr auto kUnknown = absl::StatusCode::kUnauthenticated;
  if (asked.authorization.empty()) {
    return Error(kUnknown, "cannot {} without a token: {}", Described(asked.verb), kHowToGetOne);
  }
  const bool bearer = asked.authorization.starts_with(kScheme);
  const TokenRecord* const token =
      bearer ? Find(asked.authorization.substr(kScheme.size())) : nullptr;
  if (token == nullptr) {
    verdict.delay = wrong_.Count(NetworkOf(std::string(asked.host)), clock_());
    return Error(kUnknown, "cannot {}: this cluster does not know the token; {}",
                 Described(asked.verb), kHowToGetOne);
  }
  verdict.caller = {token->id, token->role, token->tenant, token->worker, ""};
  FAIRWAY_RETURN_IF_ERROR(
      Annotate(CheckToken(*token, Now()), fmt::format("cannot {}", Described(asked.verb))));
  if (!Authorize(token->role, asked.verb, asked.whose)) return Denied(asked, *token);
  return absl::OkStatus();
}

absl::Status Gate::Counts(int64_t token) const {
  const auto found = tokens_.find(token);
  if (found == tokens_.end())
    return Error(absl::StatusCode::kUnauthenticated, "token {} is forgotten", token);
  return CheckToken(found->second.record, Now());
}

absl::Status Gate::Keep(int64_t token, std::weak_ptr<OpenCall> call) {
  const std::lock_guard lock(mu_);
  FAIRWAY_RETURN_IF_ERROR(Counts(token));
  const auto alive = call.lock();
  if (alive != nullptr) calls_[token][alive.get()] = std::move(call);
  return absl::OkStatus();
}

void Gate::Forget(int64_t token, const OpenCall* call) {
  const std::lock_guard lock(mu_);
  const auto found = calls_.find(token);
  if (found == calls_.end()) return;
  found->second.erase(call);
  if (found->second.empty()) calls_.erase(found);
}

void Gate::EndExpired() {
  std::vector<std::pair<Calls, absl::Status>> ended;
  {
    const std::lock_guard lock(mu_);
    for (auto it = calls_.begin(); it != calls_.end();) {
      absl::Status status = Counts(it->first);
      if (status.ok()) {
        ++it;
        continue;
      }
      ended.emplace_back(std::move(it->second), std::move(status));
      it = calls_.erase(it);
    }
  }
  for (const auto& [calls, status] : ended) {
    for (const auto& [_, weak] : calls) {
      if (const auto call = weak.lock()) call->TokenEnded(status);
    }
  }
}

absl::StatusOr<TokenStore::Made> Gate::Create(const TokenSpec& spec) {
  const std::lock_guard writing(writing_);
  FAIRWAY_ASSIGN_OR_RETURN(TokenStore::Made made, store_->Create(spec, Now()));
  const std::lock_guard lock(mu_);
  for (auto it = tokens_.begin(); it != tokens_.end();) {
    const auto next = std::next(it);
    if (TokenStore::IsPast(it->second.record, Now())) Unlearn(it);
    it = next;
  }
  Learn(made.kept);
  return made;
}

void Gate::RevokeHere(int64_t id) {
  {
    const std::lock_guard lock(mu_);
    const auto found = tokens_.find(id);
    if (found != tokens_.end() && found->second.record.revoked == sys_seconds())
      found->second.record.revoked = Now();
  }
  EndExpired();
}

absl::Status Gate::Revoke(int64_t id) {
  RevokeHere(id);
  const std::lock_guard writing(writing_);
  absl::Status kept = store_->Revoke(id, Now());
  if (kept.ok() || kept.code() == absl::StatusCode::kNotFound) return kept;
  return NotWrittenDown(id, std::move(kept));
}

absl::Status Gate::NotWrittenDown(int64_t id, absl::Status why) {
  return Annotate(
      std::move(why),
      fmt::format("token {} counts no longer, but this could not be written down, so it "
                  "would count again after the controller's next start; revoke it again",
                  id));
}

absl::Status Gate::Check(int64_t token) {
  const std::lock_guard lock(mu_);
  return Counts(token);
}

absl::Status Gate::Use(int64_t id, const std::function<absl::Status()>& count) {
  const std::lock_guard writing(writing_);
  FAIRWAY_RETURN_IF_ERROR(Check(id));
  FAIRWAY_RETURN_IF_ERROR(count());
  const std::lock_guard lock(mu_);
  if (const auto found = tokens_.find(id); found != tokens_.end()) --found->second.record.uses;
  return absl::OkStatus();
}

std::vector<TokenRecord> Gate::TokensOfWorker(const std::string& worker) {
  const std::lock_guard lock(mu_);
  std::vector<TokenRecord> out;
  for (const auto& [id, kept] : tokens_) {
    if (kept.record.role == TokenRole::kWorker && kept.record.worker == worker && Counts(id).ok())
      out.push_back(kept.record);
  }
  return out;
}

std::vector<TokenRecord> Gate::List(int64_t after, size_t most) {
  const std::lock_guard lock(mu_);
  std::vector<TokenRecord> out;
  for (auto it = tokens_.upper_bound(after); it != tokens_.end() && out.size() < most; ++it)
    out.push_back(it->second.record);
  return out;
}

}  // namespace fairway
