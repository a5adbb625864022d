// SPDX-License-Identifier: Apache-2.0
#include "transport/tls_stream.h"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <array>
#include <functional>
#include <random>
#include <string>

#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/error.hpp>

#include "identity/files_for_test.h"

namespace fairway {
namespace {

using boost::system::error_code;

class TlsStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    const auto stream = [this](int fd, const std::shared_ptr<TlsIdentity>& identity,
                               TlsStream::Side side) {
      return std::make_shared<TlsStream>(
          TlsStream::Socket(io_, boost::asio::generic::stream_protocol(AF_UNIX, 0), fd),
          identity->Context().get(), side);
    };
    server_ = stream(fds[0], files_.Controller(), TlsStream::Side::kServer);
    client_ = stream(fds[1], files_.Worker("w0"), TlsStream::Side::kClient);
    error_code error;
    bool done = false;
    while (!done && !error) {
      done = client_->Shake(fds[1], error) == TlsStream::Wait::kNothing;
      if (!error) done = server_->Shake(fds[0], error) == TlsStream::Wait::kNothing && done;
    }
    ASSERT_FALSE(error) << error.message();
  }
  // Runs what is ready; whether anything was.
  bool Poll() {
    io_.restart();
    return io_.poll() > 0;
  }
  void RunUntil(const std::function<bool()>& holds) {
    io_.restart();
    while (!holds() && io_.run_one_for(std::chrono::minutes(2)) > 0) {
    }
    ASSERT_TRUE(holds());
  }
  // Reads on into `out`, in pieces of at most `most` bytes, until `size` have come or it fails.
  void ReadOn(TlsStream& stream, std::string& out, size_t size, size_t most) {
    const auto part = std::make_shared<std::string>(std::min(most, size - out.size()), ' ');
    stream.ReadSome(boost::asio::buffer(*part),
                    [&stream, &out, size, most, part, this](const error_code& error, size_t count) {
                      out.append(*part, 0, count);
                      last_ = error;
                      if (!error && out.size() < size) ReadOn(stream, out, size, most);
                    });
  }

  CertificateFiles files_;
  boost::asio::io_context io_;
  std::shared_ptr<TlsStream> server_, client_;
  error_code last_;
};

TEST_F(TlsStreamTest, WhatIsWrittenInAnyPiecesComesWholeInBothDirectionsAtOnce) {
  std::mt19937 random(7);
  std::string there(5'000'000, ' '), back(3'000'000, ' ');
  for (std::string* text : {&there, &back})
    for (char& byte : *text) byte = static_cast<char>(random());
  std::string came_there, came_back;
  ReadOn(*server_, came_there, there.size(), 700'000);
  ReadOn(*client_, came_back, back.size(), 10'000);
  // Pieces of no byte, of one, of less and more than a record, and of more than a send.
  const auto pieces = [&](const std::string& text) {
    std::vector<boost::asio::const_buffer> out;
    size_t at = 0;
    for (const size_t size : {0, 1, 5, 16'384, 0, 16'385, 300'000}) {
      out.emplace_back(text.data() + at, size);
      at += size;
    }
    out.emplace_back(text.data() + at, text.size() - at);
    return out;
  };
  size_t written_there = 0, written_back = 0;
  client_->Write(pieces(there), [&](const error_code&, size_t count) { written_there = count; });
  server_->Write(pieces(back), [&](const error_code&, size_t count) { written_back = count; });
  RunUntil([&] {
    return came_there.size() == there.size() && came_back.size() == back.size() &&
           written_there > 0 && written_back > 0;
  });
  EXPECT_EQ(written_there, there.size());
  EXPECT_EQ(written_back, back.size());
  EXPECT_TRUE(came_there == there);
  EXPECT_TRUE(came_back == back);
}

TEST_F(TlsStreamTest, NothingEndsInsideTheCallThatBeganIt) {
  bool inside = true;
  int ended = 0;
  const auto end = [&](const error_code& error, size_t count) {
    EXPECT_FALSE(inside);
    EXPECT_FALSE(error);
    EXPECT_EQ(count, 0u);
    ++ended;
  };
  client_->Write(boost::asio::const_buffer(), end);
  client_->ReadSome(boost::asio::mutable_buffer(), end);
  inside = false;
  RunUntil([&] { return ended == 2; });
}

TEST_F(TlsStreamTest, AnEndIsToldFromACut) {
  std::string came;
  ReadOn(*server_, came, 10, 10);
  client_->Write(boost::asio::buffer("last", 4), [](const error_code&, size_t) {});
  RunUntil([&] { return came == "last"; });
  client_->EndWriting([](const error_code&, size_t) {});
  RunUntil([&] { return static_cast<bool>(last_); });
  EXPECT_EQ(last_, boost::asio::error::eof);
  // The other direction goes on.
  std::string back;
  ReadOn(*client_, back, 10, 10);
  server_->Write(boost::asio::buffer("more", 4), [](const error_code&, size_t) {});
  RunUntil([&] { return back == "more"; });
  last_ = {};
  server_->socket().close();
  RunUntil([&] { return static_cast<bool>(last_); });
  EXPECT_EQ(last_, boost::asio::ssl::error::stream_truncated);
}

// Each change of keys that a peer asks for is answered. One that asks and does not read waits for
// itself: this end holds no more than what one read makes it answer.
TEST_F(TlsStreamTest, APeerThatAsksForNewKeysForEverIsReadNoFasterThanItReads) {
  std::string came;
  ReadOn(*server_, came, 1 << 30, 4096);
  bool free = true;
  size_t asked = 0;
  for (; asked < 200'000; ++asked) {
    while (!free && Poll()) {
    }
    if (!free) break;
    ASSERT_EQ(SSL_key_update(client_->native_handle(), SSL_KEY_UPDATE_REQUESTED), 1);
    free = false;
    client_->Write(boost::asio::buffer("x", 1), [&](const error_code&, size_t) { free = true; });
  }
  EXPECT_GT(asked, 1u);
  EXPECT_LT(asked, 200'000u);
  // It reads again, and all goes on.
  std::string back;
  ReadOn(*client_, back, 4, 4);
  server_->Write(boost::asio::buffer("here", 4), [](const error_code&, size_t) {});
  RunUntil([&] { return back == "here" && came.size() == asked; });
}

}  // namespace
}  // namespace fairway
