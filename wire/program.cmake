# SPDX-License-Identifier: Apache-2.0
fairway_library(fairway_wire_program LAYER 4
  SRCS program_codec.cc
  DEPS fairway_graph fairway_program_proto)
fairway_test(wire_program_test SRCS program_codec_test.cc DEPS fairway_wire_program)
