# SPDX-License-Identifier: Apache-2.0
fairway_proto_library(fairway_admin_proto ROOT ${CMAKE_CURRENT_SOURCE_DIR} GRPC PROTOS fairway/v1/admin.proto)
fairway_proto_library(fairway_link_proto ROOT ${CMAKE_CURRENT_SOURCE_DIR} PROTOS fairway/v1/link.proto)
target_link_libraries(fairway_link_proto PUBLIC fairway_executable_proto)
fairway_proto_library(fairway_reflection_proto ROOT ${CMAKE_CURRENT_SOURCE_DIR} PROTOS grpc/reflection.proto)
