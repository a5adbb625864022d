// SPDX-License-Identifier: Apache-2.0
#include "controller/rpc/server_for_test.h"

#include <cstdlib>
#include <utility>

#include <grpcpp/grpcpp.h>

namespace fairway {

ServerForTest::ServerForTest(RpcMethods methods, int max_message) : rpcs_(std::move(methods)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.SetMaxReceiveMessageSize(max_message);
  rpcs_.AddTo(&builder);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) std::abort();
  rpcs_.Start();
}

ServerForTest::~ServerForTest() { Shutdown({}); }

void ServerForTest::Shutdown(std::chrono::milliseconds grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + grace);
  rpcs_.Stop();
  server_->Wait();
  server_ = nullptr;
}

}  // namespace fairway
