# SPDX-License-Identifier: Apache-2.0
fairway_library(fairway_wire_client LAYER 4
  SRCS client_values.cc
  DEPS fairway_base fairway_core fairway_client_proto)
fairway_test(wire_client_test SRCS client_values_test.cc DEPS fairway_wire_client)
