// SPDX-License-Identifier: Apache-2.0
#include "transport/tls_stream.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <optional>
#include <random>
#include <string>

#include <gtest/gtest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/error.hpp>

#include "identity/files_for_test.h"

namespace fairway {
namespace {

using boost::system::error_code;

// HKDF-Expand-Label (RFC 8446, 7.1) with SHA-256, for less than a hash.
std::string ExpandLabel(const std::string& secret, const std::string& label, size_t size) {
  std::string info = {'\0', static_cast<char>(size), static_cast<char>(6 + label.size())};
  info += "tls13 " + label + '\0' + '\1';
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(info.data()), info.size(), out, &length);
  return {reinterpret_cast<const char*>(out), size};
}

// The first record that a side sends with its traffic secret, by AES-128-GCM (RFC 8446, 5.2).
// `inner`: its content and, last, its type.
std::string SealedFirst(const std::string& secret, const std::string& inner) {
  const std::string key = ExpandLabel(secret, "key", 16), iv = ExpandLabel(secret, "iv", 12);
  const auto bytes = [](const std::string& of) {
    return reinterpret_cast<const unsigned char*>(of.data());
  };
  const size_t size = inner.size() + 16;
  const std::string header = {'\x17', '\x03', '\x03', '\0', static_cast<char>(size)};
  unsigned char out[256];
  int count = 0;
  EVP_CIPHER_CTX* const cipher = EVP_CIPHER_CTX_new();
  EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), nullptr, bytes(key), bytes(iv));
  EVP_EncryptUpdate(cipher, nullptr, &count, bytes(header), static_cast<int>(header.size()));
  EVP_EncryptUpdate(cipher, out, &count, bytes(inner), static_cast<int>(inner.size()));
  EVP_EncryptFinal_ex(cipher, out + count, &count);
  EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, 16, out + inner.size());
  EVP_CIPHER_CTX_free(cipher);
  return header + std::string(reinterpret_cast<const char*>(out), size);
}

class TlsStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    const auto stream = [this](int fd, const std::shared_ptr<TlsIdentity>& identity,
                               TlsStream::Side side) {
      return std::make_shared<TlsStream>(
          TlsStream::Socket(io_, boost::asio::generic::stream_protocol(AF_UNIX, 0), fd),
          identity->Context().get(), side, size_t{64} << 10);
    };
    server_ = stream(fds[0], files_.Controller(), TlsStream::Side::kServer);
    client_ = stream(fds[1], files_.Worker("w0"), TlsStream::Side::kClient);
    const auto context = SSL_get_SSL_CTX(client_->native_handle());
    SSL_CTX_set_keylog_callback(context, [](const SSL*, const char* line) {
      const std::string text = line;
      if (!text.starts_with("CLIENT_TRAFFIC_SECRET_0 ")) return;
      const std::string digits = text.substr(text.rfind(' ') + 1);
      secret_.clear();
      for (size_t i = 0; i + 1 < digits.size(); i += 2)
        secret_ += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
    });
    error_code error;
    bool done = false;
    while (!done && !error) {
      done = client_->Shake(fds[1], error) == TlsStream::Wait::kNothing;
      if (!error) done = server_->Shake(fds[0], error) == TlsStream::Wait::kNothing && done;
    }
    SSL_CTX_set_keylog_callback(context, nullptr);
    ASSERT_FALSE(error) << error.message();
    ASSERT_STREQ(SSL_get_cipher(client_->native_handle()), "TLS_AES_128_GCM_SHA256");
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
  static inline std::string secret_;  // of what the client sends
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

TEST_F(TlsStreamTest, AFaultBehindDataComesBehindItAndStays) {
  std::string came;
  client_->Write(boost::asio::buffer("data", 4), [](const error_code&, size_t) {});
  while (Poll()) {
  }
  const std::string wrong(
      "\x17\x03\x03\x00\x14"
      "this is no record at all",
      25);
  ASSERT_EQ(::send(client_->socket().native_handle(), wrong.data(), wrong.size(), 0), 25);
  ReadOn(*server_, came, 100, 100);
  RunUntil([&] { return static_cast<bool>(last_); });
  EXPECT_EQ(came, "data");
  const error_code first = last_;
  EXPECT_EQ(first.category(), boost::asio::error::get_ssl_category());
  last_ = {};
  ReadOn(*server_, came, 100, 100);
  RunUntil([&] { return static_cast<bool>(last_); });
  EXPECT_EQ(last_, first);
  // The peer is told.
  std::string back;
  last_ = {};
  ReadOn(*client_, back, 10, 10);
  RunUntil([&] { return static_cast<bool>(last_); });
  EXPECT_EQ(ERR_GET_REASON(static_cast<unsigned long>(last_.value())),  // NOLINT
            SSL_R_SSLV3_ALERT_BAD_RECORD_MAC);
}

// Each change of keys costs some 20 us, and an answer if the peer asks for one.
TEST_F(TlsStreamTest, APeerThatChangesItsKeysForEverGetsAnError) {
  std::string came;
  ReadOn(*server_, came, 1 << 20, 4096);
  int changes = 0;
  for (; changes < 1000 && !last_; ++changes) {
    ASSERT_EQ(SSL_key_update(client_->native_handle(), SSL_KEY_UPDATE_REQUESTED), 1);
    client_->Write(boost::asio::buffer("x", 1), [](const error_code&, size_t) {});
    while (Poll()) {
    }
  }
  EXPECT_EQ(last_, boost::asio::ssl::error::unexpected_result);
  EXPECT_EQ(changes, 33);
  EXPECT_EQ(came.size(), 32u);
}

// OpenSSL writes nothing behind half a message of the handshake, and calls that no error.
TEST_F(TlsStreamTest, AWriteBehindHalfAMessageOfTheHandshakeFails) {
  ASSERT_FALSE(secret_.empty());
  const std::string half = SealedFirst(secret_, std::string("\x18\x00\x00\x01", 4) + '\x16');
  ASSERT_EQ(::send(client_->socket().native_handle(), half.data(), half.size(), 0),
            static_cast<ssize_t>(half.size()));
  std::string came;
  ReadOn(*server_, came, 10, 10);
  while (Poll()) {
  }
  for (int tries = 0; tries < 2; ++tries) {
    std::optional<error_code> ended;
    size_t written = 1;
    server_->Write(boost::asio::buffer("answer", 6), [&](const error_code& error, size_t count) {
      ended = error;
      written = count;
    });
    RunUntil([&] { return ended.has_value(); });
    EXPECT_EQ(*ended, boost::asio::ssl::error::unexpected_result);
    EXPECT_EQ(written, 0u);
  }
}

// Whoever waits may have the stream itself.
TEST_F(TlsStreamTest, ALoopThatEndsFreesWhoWaits) {
  std::weak_ptr<int> waits;
  {
    boost::asio::io_context loop;
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const auto stream = std::make_shared<TlsStream>(
        TlsStream::Socket(loop, boost::asio::generic::stream_protocol(AF_UNIX, 0), fds[0]),
        files_.Controller()->Context().get(), TlsStream::Side::kServer, 1024);
    const auto owner = std::make_shared<int>(1);
    waits = owner;
    char byte;
    stream->ReadSome(boost::asio::buffer(&byte, 1), [owner, stream](const error_code&, size_t) {});
    loop.poll();
    ::close(fds[1]);
  }
  EXPECT_TRUE(waits.expired());
}

}  // namespace
}  // namespace fairway
