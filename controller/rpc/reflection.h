// SPDX-License-Identifier: Apache-2.0
// grpc.reflection.v1alpha: a server tells its services. gRPC's own service has gRPC's callback API,
// and so its threads.
#ifndef FAIRWAY_CONTROLLER_RPC_REFLECTION_H_
#define FAIRWAY_CONTROLLER_RPC_REFLECTION_H_

#include "controller/rpc/rpc_call.h"

namespace fairway {

// Adds the method that tells the services of `methods`, and its own. It asks nobody who it is.
void AddReflection(RpcMethods* methods);

}  // namespace fairway

#endif  // FAIRWAY_CONTROLLER_RPC_REFLECTION_H_
