// SPDX-License-Identifier: Apache-2.0
// Where every call of a client is judged, whichever port it comes to.
#ifndef FAIRWAY_IDENTITY_GATE_H_
#define FAIRWAY_IDENTITY_GATE_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "identity/audit_log.h"
#include "identity/authorize.h"
#include "identity/token.h"
#include "identity/token_store.h"
#include "identity/wrong_tokens.h"

namespace fairway {

// Who calls, as the token says.
struct Caller {
  int64_t token = 0;  // its id; 0: nobody was asked for one
  TokenRole role = TokenRole::kViewer;
  std::string tenant;  // of a user; else empty
  std::string worker;  // of a worker: its name; else empty
  std::string host;    // its address
};

// What a door knows of a call before it serves it.
struct Asked {
  Verb verb;
  Whose whose = Whose::kNone;
  std::string_view authorization;  // the header of that name; empty: there is none
  std::string_view host;           // the peer's address, without a port
};

struct Verdict {
  absl::Status status;  // OK: `caller` may do it
  Caller caller;
  // How long the refusal is to wait before it is sent.
  std::chrono::milliseconds delay{0};
};

// A call that goes on for long, such as a session's stream.
class OpenCall {
 public:
  virtual ~OpenCall() = default;
  // The token counts no longer: the call is to end, with that reason. Called once at most, on any
  // thread, without a lock of the gate.
  virtual void TokenEnded(const absl::Status& why) = 0;
};

// Thread-safe. Asks the disk only where it says so.
class Gate {
 public:
  using Clock = std::function<WrongTokens::Time()>;

  // Reads the tokens in the data directory, where the audit log is, too. Blocks. Errors: as
  // TokenStore::Open.
  static absl::StatusOr<std::unique_ptr<Gate>> Open(const std::string& directory,
                                                    Clock clock = SystemTime);
  static WrongTokens::Time SystemTime();

  // UNAUTHENTICATED: there is no token, a wrong one, or one that counts no longer.
  // PERMISSION_DENIED: its role may not do that. The audit log has refusals, and what opens
  // something or looks at the cluster. The text says what was tried, what was expected and how to
  // mend it; it has no secret.
  Verdict Judge(const Asked& asked);

  // For what was judged, and then waited. UNAUTHENTICATED: the token counts no longer.
  absl::Status Check(int64_t token);

  // From now on `call` is told if its token counts no longer, until Forget or its destruction. Not
  // OK: that is so already, and it is not told.
  absl::Status Keep(int64_t token, std::weak_ptr<OpenCall> call);
  void Forget(int64_t token, const OpenCall* call);
  // Ends the open calls whose tokens have expired. Called once a second or so.
  void EndExpired();

  // Writes what came of an admin's verb into the audit log. `object`: what it was about.
  void Record(const Caller& caller, Verb verb, const std::string& object,
              const absl::Status& status);

  // The verbs of an admin. Each blocks on the disk; errors are those of TokenStore.
  absl::StatusOr<TokenStore::Made> Create(const TokenSpec& spec);
  // Counts at once, and ends the token's open calls. RESOURCE_EXHAUSTED or UNAVAILABLE: the same,
  // but it could not be written down, so that the token would count again in the next process.
  absl::Status Revoke(int64_t id);
  // Counts a use of the token; `count` does so in the store. Errors: those of Check and `count`.
  absl::Status Use(int64_t id, const std::function<absl::Status()>& count);
  // Those by which this worker may join, and may still.
  std::vector<TokenRecord> TokensOfWorker(const std::string& worker);
  // Where the tokens are, for what is kept beside them.
  const std::shared_ptr<Database>& database() const { return store_->database(); }
  // The same, and it is not written down. Does not block.
  void RevokeHere(int64_t id);
  // What Revoke returns when `why` keeps it from being written down.
  static absl::Status NotWrittenDown(int64_t id, absl::Status why);
  // The tokens with ids above `after`, in their order; `most` at most. Does not block.
  std::vector<TokenRecord> List(int64_t after, size_t most);

 private:
  using Calls = std::map<const OpenCall*, std::weak_ptr<OpenCall>>;

  Gate(std::unique_ptr<TokenStore> store, std::unique_ptr<AuditLog> audit, Clock clock);
  std::chrono::sys_seconds Now() const;
  // The rest with mu_ held.
  void Learn(const TokenStore::Kept& kept);
  void Unlearn(std::map<int64_t, TokenStore::Kept>::iterator token);
  // The token that has this secret; nullptr: none.
  const TokenRecord* Find(std::string_view secret) const;
  absl::Status Counts(int64_t token) const;
  absl::Status Refusal(const Asked& asked, Verdict& verdict);

  const std::unique_ptr<TokenStore> store_;
  const std::unique_ptr<AuditLog> audit_;
  const Clock clock_;
  std::mutex writing_;  // one verb that changes tokens at a time; taken before mu_

  std::mutex mu_;
  // Guarded by mu_.
  std::map<int64_t, TokenStore::Kept> tokens_;
  std::unordered_multimap<uint64_t, int64_t> ids_;  // by the first bytes of the hash
  std::map<int64_t, Calls> calls_;                  // by token
  WrongTokens wrong_;
};

}  // namespace fairway

#endif  // FAIRWAY_IDENTITY_GATE_H_
