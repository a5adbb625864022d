# SPDX-License-Identifier: Apache-2.0
# Messages apart from the service, so that only the gRPC shell sees gRPC's headers.
fairway_proto_library(fairway_ifrt_proto ROOT ${CMAKE_CURRENT_SOURCE_DIR}
  PROTOS ifrt/error_codes.proto ifrt/status.proto ifrt/types.proto ifrt/xla.proto ifrt/ifrt.proto ifrt/messages.proto)
fairway_proto_library(fairway_ifrt_service_proto ROOT ${CMAKE_CURRENT_SOURCE_DIR} GRPC PROTOS ifrt/service.proto)
target_link_libraries(fairway_ifrt_service_proto PUBLIC fairway_ifrt_proto)
