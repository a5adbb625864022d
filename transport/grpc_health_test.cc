// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc_health.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

namespace fairway {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";

// A client's end of HTTP/2, and what it has heard of each stream.
class Client {
 public:
  struct Answer {
    std::map<std::string, std::string> headers;
    std::string body;
    bool ended = false;
  };

  Client() {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t n,
                      const uint8_t* value, size_t m, uint8_t, void* self) {
          auto& answer = static_cast<Client*>(self)->answers_[frame->hd.stream_id];
          answer.headers[{reinterpret_cast<const char*>(name), n}] = {
              reinterpret_cast<const char*>(value), m};
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks, [](nghttp2_session*, uint8_t, int32_t stream, const uint8_t* bytes, size_t size,
                      void* self) {
          static_cast<Client*>(self)->answers_[stream].body.append(
              reinterpret_cast<const char*>(bytes), size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        callbacks, [](nghttp2_session*, int32_t stream, uint32_t, void* self) {
          static_cast<Client*>(self)->answers_[stream].ended = true;
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* self) {
          if (frame->hd.type == NGHTTP2_GOAWAY) static_cast<Client*>(self)->told_to_go_ = true;
          return 0;
        });
    nghttp2_session_client_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0);
  }
  ~Client() { nghttp2_session_del(session_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Begins a call with an empty message, and returns its stream.
  int32_t Call(std::string path, bool ends = true) {
    const auto header = [](std::string_view name, std::string_view value) {
      return nghttp2_nv{reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
                        reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(),
                        value.size(), NGHTTP2_NV_FLAG_NONE};
    };
    const std::vector<nghttp2_nv> headers = {
        header(":method", "POST"), header(":scheme", "http"),
        header(":path", path),     header(":authority", "a"),
        header("te", "trailers"),  header("content-type", "application/grpc")};
    nghttp2_data_provider message{};
    message.source.fd = ends ? 0 : 1;
    message.read_callback = [](nghttp2_session*, int32_t, uint8_t* into, size_t, uint32_t* flags,
                               nghttp2_data_source* source, void*) -> ssize_t {
      if (source->fd == 1) return NGHTTP2_ERR_DEFERRED;
      *flags |= NGHTTP2_DATA_FLAG_EOF;
      std::fill_n(into, 5, uint8_t{0});
      return 5;
    };
    return nghttp2_submit_request(session_, nullptr, headers.data(), headers.size(), &message,
                                  nullptr);
  }
  void Ping() { nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr); }

  std::string Send() {
    std::string out;
    const uint8_t* part = nullptr;
    ssize_t size = 0;
    while ((size = nghttp2_session_mem_send(session_, &part)) > 0)
      out.append(reinterpret_cast<const char*>(part), static_cast<size_t>(size));
    return out;
  }
  // Bytes to and fro until both are silent.
  absl::Status Talk(GrpcHealth& health) {
    for (std::string bytes = Send();; bytes = Send()) {
      if (!bytes.empty()) FAIRWAY_RETURN_IF_ERROR(health.Take(bytes));
      const std::string back = health.Send();
      if (bytes.empty() && back.empty()) return absl::OkStatus();
      nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(back.data()),
                               back.size());
    }
  }
  Answer& answer(int32_t stream) { return answers_[stream]; }
  bool told_to_go() const { return told_to_go_; }

 private:
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, Answer> answers_;
  bool told_to_go_ = false;
};

TEST(GrpcHealthTest, ACheckHearsOfTheProcessWhateverServiceItNames) {
  bool ready = false;
  GrpcHealth health([&] { return ready; });
  Client client;
  const int32_t first = client.Call(kCheck);
  ASSERT_TRUE(client.Talk(health).ok());
  EXPECT_EQ(client.answer(first).headers[":status"], "200");
  EXPECT_EQ(client.answer(first).headers["content-type"], "application/grpc");
  EXPECT_EQ(client.answer(first).headers["grpc-status"], "0");
  EXPECT_EQ(client.answer(first).body, std::string("\0\0\0\0\2\x08\x02", 7));
  EXPECT_TRUE(client.answer(first).ended);
  ready = true;
  const int32_t second = client.Call(kCheck);
  ASSERT_TRUE(client.Talk(health).ok());
  EXPECT_EQ(client.answer(second).body, std::string("\0\0\0\0\2\x08\x01", 7));
  EXPECT_EQ(health.answered(), 2U);
}

TEST(GrpcHealthTest, BytesMayComeOneByOne) {
  GrpcHealth health([] { return true; });
  Client client;
  client.Call(kCheck);
  for (const char byte : client.Send()) ASSERT_TRUE(health.Take({&byte, 1}).ok());
  EXPECT_EQ(health.answered(), 1U);
}

TEST(GrpcHealthTest, EveryOtherMethodIsUnimplemented) {
  GrpcHealth health([] { return true; });
  Client client;
  for (const char* path :
       {"/grpc.health.v1.Health/Watch", "/fairway.v1.Admin/GetStatus", "/healthz", "/metrics"}) {
    const int32_t stream = client.Call(path);
    ASSERT_TRUE(client.Talk(health).ok());
    EXPECT_EQ(client.answer(stream).headers["grpc-status"], "12") << path;
    EXPECT_THAT(client.answer(stream).headers["grpc-message"], HasSubstr("Health/Check only"));
    EXPECT_THAT(client.answer(stream).body, IsEmpty());
  }
}

TEST(GrpcHealthTest, WhatIsNoHttp2EndsTheConnection) {
  GrpcHealth health([] { return true; });
  EXPECT_FALSE(health.Take(std::string(GrpcHealth::kBegin) + "and nothing more of the kind").ok());
  EXPECT_THAT(health.Send(), ::testing::Not(IsEmpty()));  // why
  EXPECT_TRUE(health.over());
}

TEST(GrpcHealthTest, AClientThatCallsNothingHasSaidEnoughAfterSomeBytes) {
  GrpcHealth health([] { return true; });
  Client client;
  absl::Status status;
  int pings = 0;
  for (; status.ok() && pings < 10'000; ++pings) {
    client.Ping();
    status = client.Talk(health);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LT(pings, 1000);
}

TEST(GrpcHealthTest, CallsThatNeverEndAreFew) {
  GrpcHealth health([] { return true; });
  Client client;
  ASSERT_TRUE(client.Talk(health).ok());  // the client has heard how many there may be
  std::vector<int32_t> calls;
  for (uint32_t i = 0; i < 2 * GrpcHealth::kMostCalls; ++i)
    calls.push_back(client.Call(kCheck, /*ends=*/false));
  ASSERT_TRUE(client.Talk(health).ok());
  EXPECT_EQ(health.answered(), 0U);
  EXPECT_FALSE(client.answer(calls.front()).ended);
}

TEST(GrpcHealthTest, AtTheEndTheClientIsTold) {
  GrpcHealth health([] { return true; });
  Client client;
  client.Call(kCheck);
  ASSERT_TRUE(client.Talk(health).ok());
  EXPECT_FALSE(health.over());
  health.End();
  ASSERT_TRUE(client.Talk(health).ok());
  EXPECT_TRUE(client.told_to_go());
  EXPECT_TRUE(health.over());
}

}  // namespace
}  // namespace fairway
