// SPDX-License-Identifier: Apache-2.0
#include "controller/access/gated_methods.h"

namespace fairway {

void GatedMethods::Add(const std::string& rpc, std::function<RpcCall*(AdmittedCall)> make) {
  methods_[rpc] = [this, rpc,
                   make = std::move(make)](grpc::ServerContextBase* context) -> RpcCall* {
    const Verdict verdict = access_.Judge(*context, rpc);
    if (!verdict.status.ok()) return access_.Refuse(verdict);
    return make({.access = &access_,
                 .caller = verdict.caller,
                 .held = access_.Hold(verdict.caller, context),
                 .owner = access_.OwnerOf(verdict.caller, *context),
                 .context = context});
  };
}

}  // namespace fairway
