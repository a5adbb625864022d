// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc_health.h"

#include <array>
#include <cstring>
#include <new>
#include <utility>

#include <nghttp2/nghttp2.h>

namespace fairway {
namespace {

constexpr std::string_view kCheck = "/grpc.health.v1.Health/Check";
// A message of gRPC: not compressed, two bytes long; HealthCheckResponse.status.
constexpr std::string_view kServing("\0\0\0\0\2\x08\x01", 7), kNotServing("\0\0\0\0\2\x08\x02", 7);

constexpr std::string_view kNotHere =
    "this port has HTTP and grpc.health.v1.Health/Check only; the controller's port of clients is "
    "another (its --port, 29000 by default)";

// A header whose texts are literals.
nghttp2_nv Header(std::string_view name, std::string_view value) {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));  // it only reads them
  };
  return {bytes(name), bytes(value), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
}

struct Free {
  void operator()(nghttp2_session* session) const { nghttp2_session_del(session); }
  void operator()(nghttp2_session_callbacks* all) const { nghttp2_session_callbacks_del(all); }
  void operator()(nghttp2_option* option) const { nghttp2_option_del(option); }
};

}  // namespace

struct GrpcHealth::State {
  explicit State(Ready is_ready) : ready(std::move(is_ready)) {}

  // nghttp2's callbacks; `self` is a State.
  static int OnHeader(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name,
                      size_t name_size, const uint8_t* value, size_t value_size, uint8_t,
                      void* self);
  static int OnFrame(nghttp2_session* session, const nghttp2_frame* frame, void* self);
  static ssize_t Message(nghttp2_session* session, int32_t stream, uint8_t* into, size_t room,
                         uint32_t* flags, nghttp2_data_source* source, void* self);

  int Answer(int32_t stream);

  const Ready ready;
  std::unique_ptr<nghttp2_session, Free> session;
  size_t answered = 0;
  size_t bytes = 0;  // that came since then
};

int GrpcHealth::State::OnHeader(nghttp2_session* session, const nghttp2_frame* frame,
                                const uint8_t* name, size_t name_size, const uint8_t* value,
                                size_t value_size, uint8_t, void* self) {
  const auto text = [](const uint8_t* bytes, size_t size) {
    return std::string_view(reinterpret_cast<const char*>(bytes), size);
  };
  // A stream with that mark is a Check.
  if (text(name, name_size) == ":path" && text(value, value_size) == kCheck)
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, self);
  return 0;
}

int GrpcHealth::State::OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* self) {
  const bool request = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
  if (!request || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
  return static_cast<State*>(self)->Answer(frame->hd.stream_id);
}

int GrpcHealth::State::Answer(int32_t stream) {
  ++answered;
  bytes = 0;
  const nghttp2_nv status = Header(":status", "200");
  const nghttp2_nv type = Header("content-type", "application/grpc");
  if (nghttp2_session_get_stream_user_data(session.get(), stream) == nullptr) {
    const std::array headers = {status, type, Header("grpc-status", "12"),  // UNIMPLEMENTED
                                Header("grpc-message", kNotHere)};
    return nghttp2_submit_response(session.get(), stream, headers.data(), headers.size(), nullptr);
  }
  const std::array headers = {status, type};
  nghttp2_data_provider message{};
  message.source.ptr = const_cast<std::string_view*>(ready() ? &kServing : &kNotServing);
  message.read_callback = Message;
  return nghttp2_submit_response(session.get(), stream, headers.data(), headers.size(), &message);
}

ssize_t GrpcHealth::State::Message(nghttp2_session* session, int32_t stream, uint8_t* into,
                                   size_t room, uint32_t* flags, nghttp2_data_source* source,
                                   void*) {
  const auto& message = *static_cast<const std::string_view*>(source->ptr);
  // The client's windows may have room for less, which no client of gRPC says.
  if (room < message.size()) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  std::memcpy(into, message.data(), message.size());
  *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
  const nghttp2_nv end = Header("grpc-status", "0");
  if (nghttp2_submit_trailer(session, stream, &end, 1) != 0) return NGHTTP2_ERR_CALLBACK_FAILURE;
  return static_cast<ssize_t>(message.size());
}

GrpcHealth::GrpcHealth(Ready ready) : state_(std::make_unique<State>(std::move(ready))) {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_option* options = nullptr;
  nghttp2_session* session = nullptr;
  // They fail for want of memory only.
  if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&options) != 0)
    throw std::bad_alloc();
  const std::unique_ptr<nghttp2_session_callbacks, Free> own_callbacks(callbacks);
  const std::unique_ptr<nghttp2_option, Free> own_options(options);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, State::OnHeader);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, State::OnFrame);
  nghttp2_option_set_no_closed_streams(options, 1);
  if (nghttp2_session_server_new2(&session, callbacks, state_.get(), options) != 0)
    throw std::bad_alloc();
  state_->session.reset(session);
  const std::array settings = {
      nghttp2_settings_entry{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kMostCalls},
      nghttp2_settings_entry{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMostBytes}};
  nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
}

GrpcHealth::~GrpcHealth() = default;

absl::Status GrpcHealth::Take(std::string_view bytes) {
  state_->bytes += bytes.size();
  const ssize_t taken = nghttp2_session_mem_recv(
      state_->session.get(), reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (taken < 0) {
    End();
    return InvalidArgument("no HTTP/2: {}", nghttp2_strerror(static_cast<int>(taken)));
  }
  if (state_->bytes <= kMostBytes) return absl::OkStatus();
  End();
  return Error(absl::StatusCode::kResourceExhausted, "more than {} bytes without a call",
               kMostBytes);
}

void GrpcHealth::End() {
  nghttp2_session_terminate_session(state_->session.get(), NGHTTP2_NO_ERROR);
}

std::string GrpcHealth::Send() {
  std::string out;
  const uint8_t* part = nullptr;
  ssize_t size = 0;
  while ((size = nghttp2_session_mem_send(state_->session.get(), &part)) > 0)
    out.append(reinterpret_cast<const char*>(part), static_cast<size_t>(size));
  return out;
}

size_t GrpcHealth::answered() const { return state_->answered; }

bool GrpcHealth::over() const {
  return nghttp2_session_want_read(state_->session.get()) == 0 &&
         nghttp2_session_want_write(state_->session.get()) == 0;
}

}  // namespace fairway
