// SPDX-License-Identifier: Apache-2.0
#include "controller/daemon/web_pages.h"

#include <arpa/inet.h>

#include <algorithm>
#include <string_view>

#include <absl/strings/ascii.h>
#include <fmt/format.h>

namespace fairway {
namespace {

// The host of "host", "host:port" and "[v6]:port".
std::string_view WithoutPort(std::string_view host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

// An address in its binary form, of IPv4 as IPv6 has it; empty: `text` is none.
std::string Address(const std::string& text) {
  in6_addr out{};
  const bool v4 = ::inet_pton(AF_INET, text.c_str(), &out.s6_addr[12]) == 1;
  if (v4) out.s6_addr[10] = out.s6_addr[11] = 0xff;
  if (!v4 && ::inet_pton(AF_INET6, text.c_str(), &out) != 1) return "";
  return std::string(reinterpret_cast<const char*>(out.s6_addr), sizeof out.s6_addr);
}

bool IsLoopback(const std::string& host) {
  const std::string address = Address(host);
  return host == "localhost" || address == Address("::1") ||
         (!address.empty() && address.substr(0, 13) == Address("127.0.0.1").substr(0, 13));
}

// What a client sent, short enough for a line.
std::string Quoted(std::string_view text) { return fmt::format("'{}'", text.substr(0, 100)); }

}  // namespace

std::string RefusedPage(const HttpRequest& request, const std::vector<std::string>& names) {
  if (!request.site.empty() && request.site != "none" && request.site != "same-origin")
    return fmt::format(
        "a web page of another site asked (Sec-Fetch-Site: {}); only this host's own may",
        Quoted(request.site));
  const std::string own = fmt::format("{}://{}", request.secure ? "https" : "http", request.host);
  if (!request.origin.empty() && request.origin != own)
    return fmt::format("a web page of {} asked; only this host's own may", Quoted(request.origin));
  if (request.host.empty()) return "";
  const std::string host = absl::AsciiStrToLower(std::string(WithoutPort(request.host)));
  const std::string address = Address(host);
  const auto is = [&](const std::string& name) {
    return absl::AsciiStrToLower(name) == host || (!address.empty() && Address(name) == address);
  };
  if (IsLoopback(host) || is(std::string(request.address)) || std::ranges::any_of(names, is))
    return "";
  return fmt::format(
      "this host was asked by the name {}, which it does not know: ask by the IP address at which "
      "it "
      "listens, or start the controller with --http-name={}",
      Quoted(host), host.substr(0, 100));
}

}  // namespace fairway
