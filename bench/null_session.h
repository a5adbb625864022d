// SPDX-License-Identifier: Apache-2.0
// The floor of the JAX front door: one client's conversation with a server that answers and does
// nothing. Programs are compiled, because JAX asks for their shapes and shardings, but never run;
// every array is zeros. Uploads are received and dropped.
#ifndef FAIRWAY_BENCH_NULL_SESSION_H_
#define FAIRWAY_BENCH_NULL_SESSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/virtual_device.h"
#include "core/sharding.h"
#include "fairway/v1/executable.pb.h"
#include "ifrt/messages.pb.h"
#include "worker/compiler/compiler.h"

namespace fairway {

// The state that the sessions of the process share. Thread-safe.
class NullServer {
 public:
  NullServer(int num_devices, std::unique_ptr<Compiler> compiler);

  const std::vector<VirtualDevice>& devices() const { return devices_; }

  // Caches by content. Fills in `options.devices` itself.
  absl::StatusOr<std::shared_ptr<const v1::ExecutableMetadata>> Compile(const std::string& program,
                                                                        v1::CompileOptions options);

  // A request names an upload; a call of its own brings it, before or after. `then` runs under the
  // server's lock once all that the session has named have come, perhaps at once.
  void ExpectUpload(uint64_t session, uint64_t handle);
  void UploadArrived(uint64_t session, uint64_t handle);
  void AfterUploads(uint64_t session, std::function<void()> then);

  // How many zeros a lookup of this host buffer returns; nullopt: there is no such buffer.
  std::optional<int64_t> HostBuffer(uint64_t session, uint64_t handle) const;
  void SetHostBuffer(uint64_t session, uint64_t handle, int64_t bytes);
  void DeleteHostBuffer(uint64_t session, uint64_t handle);
  void ForgetSession(uint64_t session);

 private:
  struct Uploads {
    std::set<uint64_t> expected;  // named, but not arrived
    std::set<uint64_t> arrived;   // arrived, but not named
    std::vector<std::function<void()>> waiting;
  };

  std::vector<VirtualDevice> devices_;
  mutable std::mutex mutex_;
  const std::unique_ptr<Compiler> compiler_;
  std::map<std::string, std::shared_ptr<const v1::ExecutableMetadata>> compiled_;
  std::map<std::pair<uint64_t, uint64_t>, int64_t> host_buffers_;
  std::map<uint64_t, Uploads> uploads_;  // by session
};

// Used by one thread at a time.
class NullSession {
 public:
  using Request = xla::ifrt::proxy::IfrtRequest;
  using Response = xla::ifrt::proxy::IfrtResponse;

  NullSession(uint64_t id, NullServer* server) : id_(id), server_(server) {}
  ~NullSession() { server_->ForgetSession(id_); }
  NullSession(const NullSession&) = delete;
  NullSession& operator=(const NullSession&) = delete;

  std::unique_ptr<Response> Handle(const Request& request);

 private:
  using Spec = std::shared_ptr<const ArraySpec>;
  struct Loaded {
    std::shared_ptr<const v1::ExecutableMetadata> metadata;
    std::vector<int32_t> devices;
    std::vector<Spec> outputs;
  };

  absl::Status Fill(const Request& request, Response& response);
  absl::Status MakeArray(const xla::ifrt::proxy::MakeArrayFromHostBufferRequest& request,
                         Response& response);
  absl::Status MakeShards(const xla::ifrt::proxy::MakeArraysFromHostBufferShardsRequest& request,
                          Response& response);
  absl::Status Disassemble(
      const xla::ifrt::proxy::DisassembleIntoSingleDeviceArraysRequest& request,
      Response& response);
  absl::Status CopyArrays(const xla::ifrt::proxy::CopyArraysRequest& request, Response& response);
  absl::Status CopyToHost(const xla::ifrt::proxy::CopyToHostBufferRequest& request);
  absl::Status Compile(const xla::ifrt::proxy::CompileRequest& request, Response& response);
  absl::Status Execute(const xla::ifrt::proxy::LoadedExecutableExecuteRequest& request,
                       Response& response);
  absl::StatusOr<const Loaded*> FindLoaded(uint64_t handle) const;
  absl::StatusOr<Spec> Find(uint64_t handle) const;
  // Keeps the array under the client's handle, or under one of our own if that is 0.
  uint64_t Keep(uint64_t handle, Spec spec);

  const uint64_t id_;
  NullServer* const server_;
  std::unordered_map<uint64_t, Spec> arrays_;
  std::unordered_map<uint64_t, Loaded> loaded_;
  uint64_t next_handle_ = uint64_t{1} << 60;
  int64_t next_seq_num_ = 0;
};

}  // namespace fairway

#endif  // FAIRWAY_BENCH_NULL_SESSION_H_
