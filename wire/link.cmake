# SPDX-License-Identifier: Apache-2.0
fairway_library(fairway_wire_link LAYER 4
  SRCS command_bodies.cc link_callbacks.cc link_codec.cc link_commands.cc link_protocol.cc sequence_codec.cc link_revocations.cc
  DEPS fairway_graph fairway_identity fairway_transport fairway_link_proto)
fairway_test(wire_link_test SRCS command_bodies_test.cc link_codec_test.cc link_protocol_test.cc DEPS fairway_wire_link)
