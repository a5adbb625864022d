# SPDX-License-Identifier: Apache-2.0
find_package(OpenSSL REQUIRED)
fairway_library(fairway_compile_service LAYER 5
  SRCS compile_service.cc
  DEPS fairway_base fairway_core fairway_cluster fairway_wire_ifrt fairway_executable_proto
  LIBS OpenSSL::Crypto)
fairway_library(fairway_program_service LAYER 5
  SRCS program_service.cc
  DEPS fairway_compile_service fairway_wire_program)
