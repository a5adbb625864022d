// SPDX-License-Identifier: Apache-2.0
// The Admin service (proto/fairway/v1/admin.proto): gRPC calls become questions to the event loop.
#ifndef FAIRWAY_CONTROLLER_ADMIN_ADMIN_SERVICE_H_
#define FAIRWAY_CONTROLLER_ADMIN_ADMIN_SERVICE_H_

#include <functional>
#include <memory>
#include <string>

#include "async/blocking_pool.h"
#include "async/event_loop.h"
#include "controller/access/call_access.h"
#include "controller/admin/log_stream.h"
#include "controller/daemon/snapshot.h"
#include "controller/events/event_ring.h"
#include "fairway/v1/admin.pb.h"
#include "identity/gate.h"
#include "identity/issuer.h"

namespace fairway {

struct AdminHooks {
  EventLoop* loop = nullptr;
  LogSources logs;
  std::function<ControllerSnapshot()> snapshot;  // called in the loop
  Cluster* cluster = nullptr;                    // asked in the loop; outlives the service
  const EventRing* events = nullptr;             // asked in the loop
  NoteEvent note;                                // called in the loop; empty: nobody hears
  // Called in the loop; answers as WorkerHub::RestartExecutor does.
  std::function<absl::StatusOr<Incarnation>(const std::string& worker)> restart_executor;
  // Called in the loop: ends all connections of a worker.
  std::function<void(const std::string& worker, const std::string& why)> end_worker;
  std::function<void()> shutdown;  // called in the loop, once the answer has been made
  CallAccess access{};             // judges the calls
  Gate* gate = nullptr;            // keeps the tokens; nullptr: there are none
  BlockingPool* tokens = nullptr;  // waits for the disk on which they are kept
  Issuer* issuer = nullptr;        // signs the certificates of workers; nullptr: as `gate`
  int link_port = 0;               // where workers connect
};

class AdminService {
 public:
  virtual ~AdminService() = default;
  // They work as long as this does.
  virtual const RpcMethods& methods() const = 0;
};

// The gRPC server must have ended before the service, the loop and the pool do.
std::unique_ptr<AdminService> MakeAdminService(AdminHooks hooks);

// The answer to GetStatus.
v1::GetStatusResponse ToStatusResponse(const ControllerSnapshot& snapshot);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_ADMIN_ADMIN_SERVICE_H_
