# SPDX-License-Identifier: Apache-2.0
fairway_proto_library(fairway_program_proto ROOT ${CMAKE_CURRENT_SOURCE_DIR}
  PROTOS fairway/v1/program.proto)
target_link_libraries(fairway_program_proto PUBLIC fairway_native_proto)
