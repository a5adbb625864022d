// SPDX-License-Identifier: Apache-2.0
// The stream of one session (proto/fairway/v1/client.proto). Private to this folder.
#ifndef FAIRWAY_CLIENT_CPP_CONNECTION_H_
#define FAIRWAY_CLIENT_CPP_CONNECTION_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "client/cpp/credentials.h"
#include "fairway/session.h"
#include "fairway/status.h"
#include "fairway/v1/client.grpc.pb.h"

namespace fairway::client {

// Bytes to send in chunks.
struct Upload {
  uint64_t number = 0;
  std::shared_ptr<const void> keep_alive;
  const char* data = nullptr;
  size_t size = 0;
  size_t sent = 0;
};

// The connection of a session, shared by the session and its handles. Requests that gather while a
// message is being written go with the next message: a lone request leaves at once, thousands leave
// together. Thread-safe.
class Connection final : public grpc::ClientBidiReactor<v1::ClientMessage, v1::ServerMessage>,
                         public std::enable_shared_from_this<Connection> {
 public:
  // Handles one answer; returns true if it was the last. An error is always the last. Runs on
  // gRPC's threads.
  using OnAnswer = std::function<bool(const v1::Answer&)>;
  using Fill = std::function<void(v1::Request&)>;

  static Result<std::shared_ptr<Connection>> Open(const std::string& address,
                                                  const ConnectOptions& options);

  // Sends a request without an answer. Waits while the controller has not taken too many requests,
  // but never on gRPC's threads. Not OK: the session has ended.
  template <typename FillRequest>
  Status Send(FillRequest fill) {
    std::unique_lock lock(mu_);
    if (Status status = WaitForRoom(lock); !status.ok()) return status;
    v1::Request& request = *building_.add_requests();
    fill(request);
    unsent_bytes_ += request.ByteSizeLong();
    StartNext();
    return Status();
  }
  // Sends a request with an answer. If the session has ended, that error is the answer.
  void Ask(OnAnswer on_answer, const Fill& fill);
  // Sends bytes; call it after the request that announces them. Waits, as above, while too many
  // bytes of other uploads wait.
  void Send(std::vector<Upload> uploads);
  void ReleaseArray(uint64_t handle);
  void ReleaseExecutable(uint64_t handle);

  // Returns the first of `count` new handles. Upload numbers come from the same set.
  uint64_t NewHandles(uint64_t count) { return next_handle_.fetch_add(count); }

  Status status();
  void Close();

  const std::vector<Slice>& slices() const { return slices_; }
  const std::vector<Device>& devices() const { return devices_; }
  const std::string& server() const { return server_; }

  // The callbacks of gRPC.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  static constexpr size_t kMostUnsentBytes = size_t{64} << 20;
  static constexpr size_t kMostUploadBytes = size_t{256} << 20;
  static constexpr int kMostUnsentRequests = 50000;
  // The controller stops reading when too many calls wait, and they may wait for bytes that are not
  // sent yet; so this many requests may go before some of the waiting bytes.
  static constexpr int kMostRequestsBesideUploads = 1000;
  static constexpr size_t kChunkBytes = size_t{1} << 20;

  void Start(const std::string& address, const ClientTexts& texts);
  void Welcomed(const std::string& address, const v1::Welcome& welcome);
  Status WhyItEnded(const grpc::Status& status) const;
  Status WaitForRoom(std::unique_lock<std::mutex>& lock);
  // With mu_ held: writes the next message, if there is one and none is being written.
  void StartNext();
  void Dispatch(const v1::Answer& answer);

  std::unique_ptr<v1::Client::Stub> stub_;
  grpc::ClientContext context_;
  // Set until OnDone and Close. The caller of Close drops it: OnDone should not
  // (KeepInsteadOfAnother).
  std::shared_ptr<Connection> self_;
  v1::ServerMessage reading_;

  // Set before another thread sees this object.
  std::vector<Slice> slices_;
  std::vector<Device> devices_;
  std::string server_;
  std::string address_;  // empty: no Welcome came

  std::atomic<uint64_t> next_handle_{1};

  std::mutex mu_;
  std::condition_variable changed_;  // there is room, or the session has ended
  v1::ClientMessage building_;
  v1::ClientMessage message_;  // being written, while writing_
  bool writing_ = false;
  // No StartWrite any more. Requests made from then on until OnDone, which has the reason, are kept
  // unsent.
  bool ended_ = false;
  bool done_ = false;          // no callback comes any more
  bool closed_ = false;        // by Close
  bool nobody_waits_ = false;  // Close was called from a callback
  Status status_;              // OK until OnDone
  size_t unsent_bytes_ = 0;    // of building_
  std::vector<uint64_t> released_arrays_, released_executables_;
  std::deque<Upload> uploads_;
  size_t upload_bytes_ = 0;                        // of uploads_, not sent
  size_t announced_ = 0;                           // those of uploads_ whose puts were sent
  int sent_beside_uploads_ = 0;                    // requests since uploads_ was last empty
  std::vector<std::shared_ptr<const void>> sent_;  // keep_alive of uploads that were sent
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, OnAnswer> waiting_;
};

}  // namespace fairway::client

#endif  // FAIRWAY_CLIENT_CPP_CONNECTION_H_
